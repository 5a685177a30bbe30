"""What is measured, by name: targets and services, known without the tiles."""

from dataclasses import dataclass

from geogp.errors import RequestError


@dataclass(frozen=True)
class TargetColumn:
    """Where a target comes from and how it is spoken of.

    Attributes
    ----------
    column
        Column of Ookla's files: an average over the tests of a tile.
    divisor
        The column's unit in units of `unit` (kbps to Mbps: 1000).
    unit
        ``Mbps`` or ``ms``; the modelled target is its log10. ``tests`` for counts, which are
        modelled as they are.
    suffix
        Ending of variable names in that unit.
    counted
        Whether it is a number of tests, which is 0 in the tiles that Ookla's files leave out.
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
    """Return a target by name.

    Raises
    ------
    RequestError
        No such target.
    """
    if name not in TARGETS:
        raise RequestError(f"unknown target {name!r}; choose one of {', '.join(TARGETS)}.")
    return TARGETS[name]
