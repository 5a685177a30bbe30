"""The table of observations to which models are fitted: one row per tile and quarter.

A tile may have a row for each provider, or for each drive.

For the target ``tests``, each tile of the region has a row, even a tile without a test.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.places.stratum_names import STRATA
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.targets import find_target, target_names

MAX_ROWS = 5_000_000
"""Largest number of rows, tiles times quarters; a larger table would take over 0.4 GB."""


@dataclass(frozen=True)
class Observations:
    """Measured tiles of one region, service and target, ordered by quarter and quadkey.

    For the target ``tests``, all tiles of the region have a row in each quarter, measured or not.

    Attributes
    ----------
    quadkey, quarter
        Codes at zoom 16, uint64 (n,); indices of quarters, int64 (n,).
    longitude, latitude
        Centroids in degrees, longitudes unwrapped around the region, float64 (n,).
    y
        log10 of the tile's average in Mbps (ms for latency), its number of tests, or the number of
        its tier, float64 (n,).
    tests, devices
        Numbers of tests and devices behind the average, int64 (n,); 0 for a tile without tests.
    stratum
        One of `strata`, or ``unknown``, str (n,).
    provider
        Name of the provider, object (n,), if a tile has a row for each provider; otherwise None.
    drive
        Name of the drive, object (n,), if a tile has a row for each drive; otherwise None.
    error_variance
        Known variance of the error of y, float64 (n,), if a file of tests has it; otherwise None.
    every
        Values of several targets of one map, float64 (n, t), the first of which is y; None for one
        target. `target` then has their names, joined by commas.
    """

    quadkey: NDArray[np.uint64]
    quarter: NDArray[np.int64]
    longitude: NDArray[np.float64]
    latitude: NDArray[np.float64]
    y: NDArray[np.float64]
    tests: NDArray[np.int64]
    devices: NDArray[np.int64]
    stratum: NDArray[np.str_]
    target: str
    service: str
    strata: tuple[str, str] = STRATA
    provider: NDArray[np.object_] | None = None
    drive: NDArray[np.object_] | None = None
    error_variance: NDArray[np.float64] | None = None
    every: NDArray[np.float64] | None = None

    @classmethod
    def of_table(
        cls, table: pd.DataFrame, region: Region, target: str, service: str
    ) -> "Observations":
        """Return the rows of `TileRows.table`, with their ``quarter``.

        The columns ``provider``, ``drive`` and ``error_variance`` may be missing.
        """
        codes = table["quadkey"].to_numpy()
        longitude, latitude = quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes))
        column = find_target(target)
        values = table[list(range(len(column.columns)))].to_numpy(np.float64).T
        return cls(
            quadkey=codes,
            quarter=table["quarter"].to_numpy(),
            longitude=region.unwrap(longitude),
            latitude=latitude,
            y=column.modelled(values),
            every=column.modelled_together(values),
            tests=table["tests"].to_numpy(),
            devices=table["devices"].to_numpy(),
            stratum=region.stratum(longitude, latitude),
            target=target,
            service=service,
            strata=region.strata_names,
            **{
                name: table[name].to_numpy() if name in table else None
                for name in ("provider", "drive", "error_variance")
            },
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def quarters(self) -> tuple[int, ...]:
        """Indices of the quarters that have rows, in increasing order."""
        return tuple(np.unique(self.quarter).tolist())

    def typical_devices(self, tests: int) -> int:
        """Return the typical number of devices for a number of tests, from 1 to `tests`.

        For k tests, the number is k^c, rounded. The exponent c is the least-squares slope of log
        devices against log tests. The line goes through (0, 0), as one test has one device.
        """
        tested = self.tests > 1
        x, y = np.log(self.tests[tested]), np.log(self.devices[tested])
        power = float(x @ y / (x @ x)) if len(x) else 1.0
        devices: float = tests**power
        return max(1, min(tests, round(devices)))

    def taken(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Observations":
        """Return the rows that a mask (n,) or an array of indices selects."""
        taken: dict[str, Any] = {
            name: values[rows]
            for name, values in vars(self).items()
            if isinstance(values, np.ndarray)
        }
        return replace(self, **taken)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return target_names(self.target)

    def of_target(self, name: str) -> "Observations":
        """Return the same rows with one of several targets."""
        if self.every is None:
            return self
        return replace(self, y=self.every[:, self.targets.index(name)], every=None, target=name)

    def of_provider(self, name: str | None) -> "Observations":
        """Return the rows of one provider; all rows if `name` is None."""
        return self if name is None else self.taken(np.asarray(self.provider == name, np.bool_))


def quarter_periods(indices: NDArray[np.int64]) -> pd.PeriodIndex:
    """Convert indices of quarters, (n,), to calendar quarters of pandas."""
    since_1970 = indices - 4 * 1970  # as pandas counts quarters
    return pd.PeriodIndex(pd.arrays.PeriodArray(since_1970, pd.PeriodDtype("Q")))


def complete_counts(table: pd.DataFrame, region: Region) -> pd.DataFrame:
    """Return a row for each tile and quarter of a region, including tiles without a test.

    Ookla publishes only tiles with tests. The other zoom-16 tiles with their centre in the region
    get 0 tests, because a model of counts needs the zeros, too. Raises RequestError for over 5
    million rows.
    """
    quarters = table["quarter"].unique()
    most = MAX_ROWS // len(quarters)
    count = region.about_tiles(quadkeys.ZOOM, most)
    if count > most:
        fewer = MAX_ROWS // count
        cure = f"Choose {fewer} or fewer with --quarters." if fewer else "Map a part of the region."
        raise RequestError(
            f"{region.name} has about {count:,} tiles; with {len(quarters)} quarters this gives "
            f"{count * len(quarters):,} counts, more than {MAX_ROWS:,}. {cure}"
        )
    tiles = region.tiles(quadkeys.ZOOM)
    codes = np.union1d(quadkeys.tiles_to_codes(tiles.column, tiles.row), table["quadkey"])
    every = pd.MultiIndex.from_product([quarters, codes], names=["quarter", "quadkey"])
    complete = table.set_index(every.names).reindex(every).reset_index()
    return complete.fillna(0).astype(table.dtypes)
