"""Tiers of download and upload speed, as classes of tiles."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError

SPEED_TIERS: dict[str, tuple[float, float]] = {
    "below 5/1": (0.0, 0.0),
    "5/1": (5.0, 1.0),
    "7/1": (7.0, 1.0),
    "35/3": (35.0, 3.0),
}
"""Download and upload speed, in Mbps, that a tile of each tier reaches at least.

These are the mobile tiers of the FCC's National Broadband Map: 5/1 for 4G LTE, 7/1 and 35/3 for 5G.
"""


def speed_tiers(download: ArrayLike, upload: ArrayLike) -> NDArray[np.str_]:
    """Return the highest tier whose two speeds each tile reaches, (n,).

    `download`, `upload`: speeds in Mbps, (n,). Raises DataError if the shapes differ, or a speed is
    negative or not finite.

    Examples
    --------
    >>> speed_tiers([40.0, 40.0, 6.0], [5.0, 2.0, 0.5]).tolist()
    ['35/3', '7/1', 'below 5/1']
    """
    return np.array(list(SPEED_TIERS))[tier_codes(download, upload)]


def tier_codes(download: ArrayLike, upload: ArrayLike) -> NDArray[np.intp]:
    """Return the number of the tier of each tile, (n,), from 0; see `speed_tiers`."""
    down, up = (np.asarray(speed, np.float64) for speed in (download, upload))
    if down.shape != up.shape or down.ndim != 1:
        raise DataError(
            f"expected a download and an upload speed of each tile, found shapes {down.shape} and "
            f"{up.shape}."
        )
    speeds = np.stack([down, up])
    if not (np.isfinite(speeds) & (speeds >= 0)).all():
        raise DataError("expected speeds in Mbps of 0 or more, found others.")
    # The tiers are in increasing order, so the number of reached tiers says which one is highest.
    reached = [(down >= d) & (up >= u) for d, u in SPEED_TIERS.values()]
    return np.asarray(np.sum(reached, 0) - 1, np.intp)
