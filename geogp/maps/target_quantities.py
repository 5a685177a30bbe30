"""The names and units of the targets, for maps and answers."""

from geogp.choices import one_of
from geogp.distributions.quantity import Quantity
from geogp.geodata.tiles.targets import TARGETS

_NAMES = {
    "download": ("Mbit s-1", "download speed", "lower"),
    "upload": ("Mbit s-1", "upload speed", "lower"),
    "latency": ("ms", "latency", "upper"),
    "tests": ("1", "number of tests", "lower"),
    "tier": ("1", "tier", "lower"),
}


def quantity_of(target: str) -> Quantity:
    """Return the names and units of a target; raise RequestError if it is unknown."""
    one_of("target", target, _NAMES)
    column = TARGETS[target]
    return Quantity(
        column.suffix,
        column.unit,
        *_NAMES[target],
        counted=column.counted,
        classes=column.classes,
    )
