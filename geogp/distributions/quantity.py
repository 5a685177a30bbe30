"""The names of a predicted quantity in files and on maps."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.value_scales import ValueScale, scale_of

Variable = tuple[NDArray[np.float64], str, str]
"""A variable of a map: its values at n points, its long name, and its unit in CF conventions."""


def class_tags(classes: tuple[str, ...]) -> list[str]:
    """Return classes as parts of names of variables, such as ``below_5_1`` for ``below 5/1``."""
    return [re.sub(r"[^0-9a-z]+", "_", name.lower()) for name in classes]


@dataclass(frozen=True)
class Quantity:
    """The names of a target in files and on maps.

    `suffix`: last part of the names of variables: ``mbps``, ``ms``, ``dbm`` or ``db``.
    `unit`: unit in texts for people: ``Mbps``, ``ms``, ``dBm`` or ``dB``.
    `cf_unit`: unit in the spelling of the CF conventions (UDUNITS).
    `subject`: ``download speed``, ``latency``, ``RSRP``, ``number of tests``, ``tier`` and others.
    `bound`: the cautious end of the interval: ``upper`` for latency, else ``lower``.
    `counted`: whether the target is a number of tests.
    `classes`: the classes of the target, in increasing order; none for a number.
    """

    suffix: str
    unit: str
    cf_unit: str
    subject: str
    bound: str
    counted: bool
    classes: tuple[str, ...] = ()

    @property
    def scale(self) -> ValueScale:
        """The scale on which models see the values of an average."""
        return scale_of(self.unit)

    @property
    def class_tags(self) -> list[str]:
        """The classes as parts of names of variables; see `class_tags`."""
        return class_tags(self.classes)

    @property
    def at_least(self) -> list[str]:
        """Variables with the probability of a class or a higher one, for all but the lowest."""
        return [f"p_at_least_{tag}" for tag in self.class_tags[1:]]

    @property
    def kernel_unit(self) -> str:
        """The unit of the kernel: squared logit of a class, ln of a count, log10 or dB."""
        if self.classes:
            return "logit²"
        if self.counted:
            return "(ln)²"
        return "(log10)²" if self.scale.logarithmic else f"{self.scale.change_unit}²"
