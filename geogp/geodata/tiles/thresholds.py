"""Thresholds of speeds, latency and signals, and their names."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.choices import CLASS, COUNT
from geogp.errors import RequestError
from geogp.geodata.tiles.plausibility import LIMITS
from geogp.geodata.tiles.targets import FIXED, MOBILE, SERVICES, find_target
from geogp.value_scales import ValueScale

DEFAULTS: dict[str, tuple[float, ...]] = {
    "download": (7.0, 35.0, 100.0),
    "upload": (1.0, 3.0, 20.0),
    "latency": (50.0, 100.0),
    "rsrp": (-115.0, -105.0, -95.0),
    "rsrq": (-17.0, -14.0, -12.0),
    "sinr": (1.0, 5.0, 13.0),
    "rssi": (-103.0, -97.0, -89.0),
    "signal": (-115.0, -105.0, -95.0),
    "success": (80.0, 90.0, 95.0),
}
"""Default thresholds of each target, in the unit of the target, for the mobile service.

The speeds are those of the 5G tiers of `SPEED_TIERS`, and 100/20, which is broadband for the FCC; a
faster region is divided by it. The latency of 100 ms is the limit of the 5G Fund for mobile
service (47 CFR 54.1015(c)) and of BEAD for fixed service (NTIA's notice of May 2022), and 50 ms is
half of this limit. The signals are limits between the bars of
Android phones for LTE and GSM (those of RSRQ and SINR are in its ``SignalStrengthTest``).
The FCC requires of the tests of supported networks that 80 % reach four fifths of the speed and 95
% the latency (DA 18-710); 90 % lies between.
"""

FIXED_DEFAULTS = {"download": (25.0, 100.0), "upload": (3.0, 20.0)}
"""Default thresholds for the fixed service, where they differ: the speeds of its tiers."""

_LEAST, MOST = 1e-3, 1e6  # the range of a threshold above 0: from `_LEAST` to below `MOST`

LEAST = -156.0
"""The lowest threshold of any target: that of signals, the lower limit of RSRP."""


_SHOWN = {
    COUNT: "bounds of the number of tests and the probability of no test",
    CLASS: "the probability of each class",
}


@dataclass(frozen=True)
class Threshold:
    """A value that speeds should reach, or that latency should not exceed, in the target's unit."""

    value: float
    target: str

    @property
    def scale(self) -> ValueScale:
        """The scale of the models."""
        return find_target(self.target).scale

    @property
    def modelled(self) -> float:
        """The threshold on the scale of the models."""
        return float(self.scale.modelled(self.value))

    @property
    def at_most(self) -> bool:
        """Whether low values are good, as for latency."""
        return find_target(self.target).low_is_good

    @property
    def sign(self) -> float:
        """1 if high values are good, -1 for latency."""
        return -1.0 if self.at_most else 1.0

    @property
    def number(self) -> str:
        """The value as text: ``7`` or ``1.5``."""
        return f"{self.value:g}"

    @property
    def tag(self) -> str:
        """The value and its unit in file names: ``7_mbps``, ``1_5_mbps``, ``minus_110_dbm``."""
        number = self.number.replace("-", "minus_").replace(".", "_")
        return f"{number}_{find_target(self.target).suffix}"

    @property
    def variable(self) -> str:
        """Name of the probability in files: ``p_at_least_7_mbps`` or ``p_at_most_50_ms``."""
        return f"p_at_{'most' if self.at_most else 'least'}_{self.tag}"

    @property
    def met(self) -> str:
        """Words for meeting the threshold: ``at least 7 Mbps`` or ``at most 50 ms``."""
        return f"at {'most' if self.at_most else 'least'} {self._amount}"

    @property
    def missed(self) -> str:
        """Words for missing the threshold: ``below 7 Mbps`` or ``above 50 ms``."""
        return f"{'above' if self.at_most else 'below'} {self._amount}"

    @property
    def _amount(self) -> str:
        return f"{self.number} {find_target(self.target).unit}"

    def holds(self, y: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether each value of the model meets the threshold; equality is enough."""
        return self.sign * (y - self.modelled) >= -1e-12  # log10 of a quotient may be rounded

    def probability(self, prediction: Any) -> NDArray[np.float64]:
        """Return the probability that each of n predicted values meets the threshold."""
        verb = prediction.cdf if self.at_most else prediction.exceedance
        return np.asarray(np.clip(verb(self.modelled), 0, 1))


def thresholds_of(
    target: str, given: Iterable[float] | None = None, service: str = MOBILE
) -> tuple[Threshold, ...]:
    """Return the thresholds of a target, the smallest first: `given`, or those of the service.

    The targets ``tests`` and ``tier`` have no thresholds. Raises RequestError if a threshold is out
    of range or given twice, or if `given` has thresholds for such a target.
    """
    find_target(target)
    if given is None:
        defaults = DEFAULTS | (FIXED_DEFAULTS if service == FIXED else {})
        return tuple(Threshold(value, target) for value in defaults.get(target, ()))
    thresholds = tuple(Threshold(float(value), target) for value in sorted(given))
    if not thresholds:
        return ()
    if target not in DEFAULTS:
        raise RequestError(
            f"--threshold is for {', '.join(DEFAULTS)}; --target {target} has no thresholds: its "
            f"map shows {_SHOWN[find_target(target).kind]}. Leave --threshold out."
        )
    unit, (least, most) = find_target(target).unit, _range_of(target)
    for threshold in thresholds:
        if not least <= threshold.value < most:
            raise RequestError(
                f"expected a threshold from {least:g} to {most:g} {unit}, found "
                f"{threshold.value:g}."
            )
    tags = [threshold.tag for threshold in thresholds]
    if len(set(tags)) < len(tags):
        raise RequestError(
            "expected each threshold once, found "
            f"{', '.join(threshold.number for threshold in thresholds)} {unit}."
        )
    return thresholds


def nearest_threshold(thresholds: Iterable[Threshold], y: float) -> Threshold:
    """Return the threshold nearest to a value of the model; the first of those equally near."""
    return min(thresholds, key=lambda threshold: abs(threshold.modelled - y))


def _range_of(target: str) -> tuple[float, float]:
    """Return the range of a target's thresholds; those of a signal may be any possible value."""
    column = find_target(target)
    limit = LIMITS[SERVICES[0]][column.columns[0]]
    return (_LEAST, MOST) if limit.least is None else (limit.least, limit.most)
