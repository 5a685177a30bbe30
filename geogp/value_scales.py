"""The scales of models: log10 of speeds and latencies, plain decibels, and shares in per cent.

Nothing else says how a value in its unit becomes the value that a model sees, how a difference of
such values is shown, or how both are called.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ValueScale:
    """The scale of a model's values; see `LOG10`, `DECIBELS` and `PERCENT`.

    `logarithmic`: whether a model sees log10 of the value; otherwise, it sees the value itself.
    `tag`: end of the names of variables on the scale of the model: ``log10``, ``db``, ``points``.
    `change_tag`, `change_unit`: end of the names of variables with differences of two values as
        people see them, and their unit: ``percent`` and ``%``, ``db`` and ``dB``, or ``points``.
    `cf_unit`: unit of differences on the scale of the model, in CF conventions.
    `average`, `averaged`: the mean over tiles in words, alone and with what it is of: a mean of
        log10 is a geometric mean.
    `average_facts`: the same for JSON files.
    `better`: the word for having the better value, such as ``faster``.
    `question`: the question that a map of the value answers.
    `decade`: how far apart two values are on this scale of which one is ten times the other; of
        shares, half of the range.
    `most`: the largest value, if values have no others than from 0 to it.
    """

    logarithmic: bool
    tag: str
    change_tag: str
    change_unit: str
    cf_unit: str
    average: str
    averaged: str
    average_facts: str
    better: str
    question: str
    decade: float
    most: float | None = None

    def modelled(self, values: ArrayLike) -> Floats:
        """Return values of the model from values in their unit."""
        found = np.asarray(values, np.float64)
        return np.log10(found) if self.logarithmic else found

    def values(self, modelled: ArrayLike) -> Floats:
        """Return values in their unit from values of the model, of the same type of numbers."""
        found = np.asarray(modelled)
        if self.most is not None:
            return np.asarray(np.clip(found, 0, self.most))
        return np.asarray(10**found if self.logarithmic else found)

    def changes(self, differences: ArrayLike) -> Floats:
        """Return differences of values of the model as people see them: in per cent or in dB."""
        found = np.asarray(differences, np.float64)
        return 100 * (10**found - 1) if self.logarithmic else found

    def differences(self, changes: ArrayLike) -> Floats:
        """Return differences of values of the model; the inverse of `changes`."""
        found = np.asarray(changes, np.float64)
        return np.log10(1 + found / 100) if self.logarithmic else found

    def error_variance(self, values: ArrayLike, variances: ArrayLike) -> Floats:
        """Return variances of values of the model, from those of values in their unit, (n,).

        A logarithm has the variance of the value divided by (value ln 10)², the delta method; of
        values of 0 or less, which have no logarithm, it is 0.
        """
        found, square = (np.asarray(part, np.float64) for part in (values, variances))
        if not self.logarithmic:
            return np.asarray(square)
        size = np.where(found > 0, found, np.inf) * np.log(10)
        return np.asarray(square / size**2)

    def unit(self, unit: str) -> str:
        """Return the unit of differences of values of the model, such as ``log10 Mbps``."""
        return f"log10 {unit}" if self.logarithmic else self.change_unit

    def named(self, subject: str, unit: str) -> str:
        """Return the name of the model's value, such as ``log10 latency (ms)``."""
        return f"{'log10 ' if self.logarithmic else ''}{subject} ({unit})"


LOG10 = ValueScale(
    logarithmic=True,
    tag="log10",
    change_tag="percent",
    change_unit="%",
    cf_unit="1",
    average="geometric mean",
    averaged="geometric mean over the tiles",
    average_facts="geometric: of log10, over tiles",
    better="faster",
    question="How fast",
    decade=1.0,
)
"""Speeds and latencies: differences of log10 are factors."""

DECIBELS = ValueScale(
    logarithmic=False,
    tag="db",
    change_tag="db",
    change_unit="dB",
    cf_unit="dB",
    average="mean",
    averaged="mean of decibels over the tiles",
    average_facts="arithmetic: of decibels, over tiles",
    better="stronger",
    question="How strong",
    decade=10.0,
)
"""Levels and ratios of power, which are logarithms already: 10 dB is a factor of ten."""

PERCENT = ValueScale(
    logarithmic=False,
    tag="points",
    change_tag="points",
    change_unit="points",
    cf_unit="percent",
    average="mean",
    averaged="mean over the tiles",
    average_facts="arithmetic: of per cent, over tiles",
    better="higher",
    question="How often",
    decade=50.0,
    most=100.0,
)
"""Shares in per cent: differences are percentage points."""

_SCALES = {"dB": DECIBELS, "dBm": DECIBELS, "%": PERCENT}


def scale_of(unit: str) -> ValueScale:
    """Return the scale on which values of a unit are modelled."""
    return _SCALES.get(unit, LOG10)


def suffix_of(unit: str) -> str:
    """Return the end of the names of columns with values in a unit, such as ``mbps``."""
    return "percent" if unit == "%" else unit.lower()
