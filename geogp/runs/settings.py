"""The settings of a map; see `geogp.records.map_settings`."""

from geogp.records.map_settings import (
    AUTO,
    DEFAULT_MODELS,
    DEVICE_CHOICES,
    MAX_TILES,
    STRATUM,
    MapRequest,
)

__all__ = ["AUTO", "DEFAULT_MODELS", "DEVICE_CHOICES", "MAX_TILES", "STRATUM", "MapRequest"]
