"""Targets and services by name, known without the tiles."""

from dataclasses import dataclass

from geogp.choices import one_of


@dataclass(frozen=True)
class TargetColumn:
    """The source column of a target, and its words.

    `column` is an average over the tests of a tile in Ookla's files; `divisor` turns it into `unit`
    (kbps to Mbps: 1000). The modelled target is log10 of ``Mbps`` or ``ms``; ``tests`` are modelled
    as they are. `suffix` ends variable names. A `counted` target is 0 in tiles that Ookla's files
    omit.
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
"""The targets by name."""

SERVICES = ("mobile", "fixed")
"""Ookla's two kinds of networks."""


def find_target(name: str) -> TargetColumn:
    """Return a target by name; RequestError for an unknown one."""
    one_of("target", name, TARGETS)
    return TARGETS[name]
