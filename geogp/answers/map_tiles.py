"""The tiles of a run's map, as tiles.parquet in its folder holds them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geogp.errors import DataError, named
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.parquet_files import DamagedParquetError, open_parquet

Floats = NDArray[np.float64]

TILES_FILE = "tiles.parquet"

_NEEDED = ("quadkey", "stratum", "tests")


@dataclass(frozen=True)
class MapTiles:
    """The n tiles of a run's map: codes in increasing order, counties (or None), and tests.

    `tests` are sums over all quarters. `columns` are those that were asked for and are there.
    """

    zoom: int
    code: NDArray[np.uint64]
    stratum: NDArray[np.str_]
    county: NDArray[np.object_] | None
    tests: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def centres(self) -> tuple[Floats, Floats]:
        """Longitudes and latitudes of the centres in degrees."""
        return quadkeys.tile_centres(*quadkeys.codes_to_tiles(self.code), self.zoom)

    def at(self, longitude: Floats, latitude: Floats) -> NDArray[np.int64]:
        """Return the index of the tile at each place, (m,); -1 for a place outside the region.

        The region of a map is made of whole tiles, so a place at its border may lie in a tile whose
        centre is outside. Such a place belongs to the nearest tile of the map, if the centre of
        this tile is less than the width of a tile away.
        """
        column, row = quadkeys.tiles_at(longitude, latitude, self.zoom)
        width = 360 / (1 << self.zoom)
        height = width * np.cos(np.deg2rad(latitude))
        index = np.full(len(column), -1, np.int64)
        nearest = np.ones(len(column))
        for across, down in product((0, -1, 1), repeat=2):
            code = quadkeys.tiles_to_codes(column + across, row + down, self.zoom)
            place = np.minimum(np.searchsorted(self.code, code), len(self.code) - 1)
            x, y = quadkeys.tile_centres(column + across, row + down, self.zoom)
            apart = np.hypot((x - longitude) / width, (y - latitude) / height)
            better = (self.code[place] == code) & (apart < nearest)
            if not (across or down):  # the place's own tile comes first
                better, apart = self.code[place] == code, np.zeros(len(column))
            index, nearest = np.where(better, place, index), np.where(better, apart, nearest)
        return index


def read_map_tiles(path: Path, values: Collection[str] = ()) -> MapTiles:
    """Return the tiles of a map from tiles.parquet, with those of the columns `values` it has.

    Raises DataError if the file is damaged.
    """
    cure = "Make the run again with geogp map."
    try:
        return _map_tiles(path, values)
    except FileNotFoundError as error:
        raise DataError(f"expected the map's tiles in {path}, found no file. {cure}") from error
    except (DataError, DamagedParquetError, OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path} is damaged: {' '.join(str(error).split())} {cure}") from error


def _map_tiles(path: Path, values: Collection[str]) -> MapTiles:
    with open_parquet(path) as opened:
        names = opened.schema.names
        absent = [name for name in _NEEDED if name not in names]
        if absent:
            raise DataError(f"expected the columns {named(absent)}.")
        county = [name for name in ("county",) if name in names]
        more = [name for name in names if name in {*values}]
        table = opened.read(None, [*_NEEDED, *county, *more]).to_pandas()
    texts = table["quadkey"].to_numpy(np.str_)
    zoom = len(str(texts[0])) if len(texts) else quadkeys.ZOOM
    code = quadkeys.parse_quadkeys(texts, zoom)
    if not len(code) or (np.diff(code.astype(np.int64)) <= 0).any():
        raise DataError("expected distinct tiles in the order of their quadkeys.")
    return MapTiles(
        zoom,
        code,
        table["stratum"].to_numpy(np.str_),
        table["county"].to_numpy(object) if county else None,
        table["tests"].to_numpy(np.int64),
        {name: table[name].to_numpy() for name in more},
    )
