"""Where files are, in words: addresses and folders, before anything is opened."""

import os
import re
from pathlib import Path

PUBLIC_SOURCE = "s3://ookla-open-data"
"""Ookla's public bucket."""

PUBLIC_BOUNDARIES = "https://www2.census.gov/geo/tiger"
"""The Census Bureau's site: its cartographic boundary files are in one folder for each year."""

_ADDRESSES = ("http://", "https://", "s3://")


def is_address(where: str) -> bool:
    """Tell whether a place that geogp wrote is on another machine: an address, or a UNC path.

    Folders and files are written as absolute paths, which begin with one separator or a drive.
    """
    return re.match(r"[^/\\]*[/\\]{2}", where) is not None


def absolute_place(where: str) -> str:
    """Return a place that names the same folder from any working directory.

    Addresses stay as they are. A folder becomes absolute, without links, so that two ways of
    writing it are one.
    """
    if where.startswith(_ADDRESSES):
        return where
    return str(Path(os.path.expanduser(where)).resolve())  # noqa: PTH111 - `~nobody` stays
