"""The place of the cache; knowing it needs no library of the network."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return the cache folder: ``GEOGP_CACHE``, or the default folder of the user."""
    return Path(os.environ.get("GEOGP_CACHE") or platformdirs.user_cache_dir("geogp"))
