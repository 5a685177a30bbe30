"""The targets and services of geogp, by name."""

from dataclasses import dataclass

from geogp.choices import one_of


@dataclass(frozen=True)
class TargetColumn:
    """The column of a target in Ookla's files, and its unit.

    `column` contains averages over the tests of a tile, or the number of tests. The values of
    `column` divided by `divisor` have the unit `unit`, such as Mbps instead of kbps. Models use
    log10 of speed and latency, but the plain number of tests. Names of variables end in `suffix`. A
    `counted` target is 0 in tiles that Ookla's files omit.
    """

    column: str
    divisor: float
    unit: str
    suffix: str
    counted: bool = False


TARGETS: dict[str, TargetColumn] = {
    "download": TargetColumn("avg_d_kbps", 1000.0, "Mbps", "mbps"),
    "upload": TargetColumn("avg_u_kbps", 1000.0, "Mbps", "mbps"),
    "latency": TargetColumn("avg_lat_ms", 1.0, "ms", "ms"),
    "tests": TargetColumn("tests", 1.0, "tests", "tests", counted=True),
}
"""Each target by its name."""

SERVICES = ("mobile", "fixed")  # the two kinds of networks for which Ookla publishes tiles


def find_target(name: str) -> TargetColumn:
    """Return a target by name; raise RequestError if the name is unknown."""
    one_of("target", name, TARGETS)
    return TARGETS[name]
