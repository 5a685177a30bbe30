"""The names and units of the targets, for maps and answers."""

from geogp.choices import one_of
from geogp.distributions.quantity import Quantity
from geogp.geodata.tiles.targets import find_target, target_names

_NAMES = {
    "download": ("Mbit s-1", "download speed"),
    "upload": ("Mbit s-1", "upload speed"),
    "latency": ("ms", "latency"),
    "tests": ("1", "number of tests"),
    "tier": ("1", "tier"),
    "fixed-tier": ("1", "tier"),
    "signal": ("dBm", "signal strength"),
    "rsrp": ("dBm", "RSRP"),
    "rsrq": ("dB", "RSRQ"),
    "sinr": ("dB", "SINR"),
    "rssi": ("dBm", "RSSI"),
    "success": ("percent", "share of tests that succeeded"),
}
"""The CF unit of each target, and what it is called."""


def quantity_of(target: str) -> Quantity:
    """Return the names and units of a target, or of the first of several joined by commas.

    Raises RequestError if it is unknown.
    """
    target = target_names(target)[0]
    one_of("target", target, _NAMES)
    column = find_target(target)
    return Quantity(
        column.suffix,
        column.unit,
        *_NAMES[target],
        bound="upper" if column.low_is_good else "lower",
        counted=column.counted,
        classes=column.classes,
    )
