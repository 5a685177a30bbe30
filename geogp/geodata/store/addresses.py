"""Web addresses and folders of data sources, as text."""

import os
import re
from pathlib import Path

PUBLIC_SOURCE = "s3://ookla-open-data"  # Ookla's public bucket

PUBLIC_BOUNDARIES = "https://www2.census.gov/geo/tiger"
"""The Census Bureau's site, with a folder of boundary files for each year."""

_ADDRESSES = ("http://", "https://", "s3://")


def is_address(where: str) -> bool:
    """Return whether a recorded text is a web address or a UNC path, and not a local path.

    geogp records local paths as absolute paths, which begin with a separator or a drive letter.
    """
    return re.match(r"[^/\\]*[/\\]{2}", where) is not None


def s3_endpoint() -> str | None:
    """Return the server of buckets that the environment gives; None means Amazon's server."""
    address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return address or None


def absolute_place(where: str) -> str:
    """Return a web address unchanged, or the absolute path of a folder.

    Symbolic links are resolved, so all ways to write the path of a folder give the same text.
    """
    if where.startswith(_ADDRESSES):
        return where
    return str(Path(os.path.expanduser(where)).resolve())  # noqa: PTH111 - keeps `~nobody`
