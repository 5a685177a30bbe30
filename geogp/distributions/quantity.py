"""The names of a predicted quantity in files and on maps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Variable = tuple[NDArray[np.float64], str, str]
"""A variable of a map: its values at n points, its long name, and its unit in CF conventions."""


@dataclass(frozen=True)
class Quantity:
    """The names of a target in files and on maps.

    `suffix`: last part of the names of variables: ``mbps`` or ``ms``.
    `unit`: unit in texts for people: ``Mbps`` or ``ms``.
    `cf_unit`: unit in the spelling of the CF conventions (UDUNITS).
    `subject`: ``download speed``, ``upload speed``, ``latency`` or ``number of tests``.
    `bound`: the cautious end of the interval: ``upper`` for latency, else ``lower``.
    `counted`: whether the target is a number of tests.
    """

    suffix: str
    unit: str
    cf_unit: str
    subject: str
    bound: str
    counted: bool

    @property
    def kernel_unit(self) -> str:
        """The unit of the kernel: the squared ln for counts, and the squared log10 otherwise."""
        return f"({'ln' if self.counted else 'log10'})²"
