"""The names of a predicted quantity in files and on maps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Variable = tuple[NDArray[np.float64], str, str]
"""Values of a map's variable at n points, its long name, and its unit in CF's spelling."""


@dataclass(frozen=True)
class Quantity:
    """The names of a target in files and on maps.

    `suffix`: end of the names of variables: ``mbps`` or ``ms``.
    `unit`: unit for people: ``Mbps`` or ``ms``.
    `cf_unit`: unit in the spelling of the CF conventions (UDUNITS).
    `subject`: ``download speed``, ``upload speed``, ``latency`` or ``number of tests``.
    `bound`: the cautious end of the interval: ``upper`` for latency, else ``lower``.
    `counted`: whether it is a number of tests, which is 0 where nothing was measured.
    """

    suffix: str
    unit: str
    cf_unit: str
    subject: str
    bound: str
    counted: bool

    @property
    def kernel_unit(self) -> str:
        """The squared unit of the modelled function, which for counts is the ln of their rate."""
        return f"({'ln' if self.counted else 'log10'})²"
