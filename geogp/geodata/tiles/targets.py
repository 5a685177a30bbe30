"""The targets and services of geogp, by name."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.choices import AVERAGE, CLASS, COUNT, one_of
from geogp.geodata.tiles.speed_tiers import SPEED_TIERS, tier_codes


@dataclass(frozen=True)
class TargetColumn:
    """The columns of a target in Ookla's files, and its unit.

    `columns` contain averages over the tests of a tile, or the number of tests. Their values
    divided by `divisor` have the unit `unit`, such as Mbps instead of kbps. Models use log10 of
    speed and latency, but the plain number of tests. Names of variables end in `suffix`. A
    `counted` target is 0 in tiles that Ookla's files omit. A target with `classes`, which are in
    increasing order, is the number of a class, from 0; it is computed from two speeds.
    """

    columns: tuple[str, ...]
    divisor: float
    unit: str
    suffix: str
    counted: bool = False
    classes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the target: average, count or class."""
        if self.classes:
            return CLASS
        return COUNT if self.counted else AVERAGE

    def modelled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the target of models, (n,), from values in the unit `unit`, (columns, n)."""
        if self.classes:
            known = np.isfinite(values).all(0)  # rows that are left out have NaN
            codes = np.full(values.shape[1], np.nan)
            codes[known] = tier_codes(*values[:, known])
            return codes
        return np.asarray(values[0] if self.counted else np.log10(values[0]))


TARGETS: dict[str, TargetColumn] = {
    "download": TargetColumn(("avg_d_kbps",), 1000.0, "Mbps", "mbps"),
    "upload": TargetColumn(("avg_u_kbps",), 1000.0, "Mbps", "mbps"),
    "latency": TargetColumn(("avg_lat_ms",), 1.0, "ms", "ms"),
    "tests": TargetColumn(("tests",), 1.0, "tests", "tests", counted=True),
    "tier": TargetColumn(
        ("avg_d_kbps", "avg_u_kbps"), 1000.0, "tier", "tier", classes=tuple(SPEED_TIERS)
    ),
}
"""Each target by its name."""

SERVICES = ("mobile", "fixed")  # the two kinds of networks for which Ookla publishes tiles


def find_target(name: str) -> TargetColumn:
    """Return a target by name; raise RequestError if the name is unknown."""
    one_of("target", name, TARGETS)
    return TARGETS[name]
