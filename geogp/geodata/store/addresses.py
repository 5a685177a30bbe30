"""Addresses and folders of files, as text."""

import os
import re
from pathlib import Path

PUBLIC_SOURCE = "s3://ookla-open-data"  # Ookla's public bucket

PUBLIC_BOUNDARIES = "https://www2.census.gov/geo/tiger"
"""The Census Bureau's site, where each year's boundary files have a folder."""

_ADDRESSES = ("http://", "https://", "s3://")


def is_address(where: str) -> bool:
    """Return whether a recorded text is an address or a UNC path, and not a local path.

    geogp records local folders and files as absolute paths, which begin with a separator or drive.
    """
    return re.match(r"[^/\\]*[/\\]{2}", where) is not None


def absolute_place(where: str) -> str:
    """Return an address or folder as text that does not depend on the working directory.

    An address is not changed. The path of a folder becomes absolute and without links, so all ways
    to write the path give the same text.
    """
    if where.startswith(_ADDRESSES):
        return where
    return str(Path(os.path.expanduser(where)).resolve())  # noqa: PTH111 - keeps `~nobody`
