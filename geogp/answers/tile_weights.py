"""Weights of the tiles of a map, such as the number of people who live in each tile."""

from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.answers.map_tiles import TILES_FILE
from geogp.errors import DataError, RequestError, named, quoted
from geogp.geodata.covariates.rasters import RasterCovariate
from geogp.geodata.covariates.read_covariate import RASTERS, read_valued_points
from geogp.geodata.places.area_kinds import BY_STRATUM, CENSUS_LAYERS
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.polygons import choose_polygons
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.parquet_files import read_table
from geogp.geodata.tiles.quadkeys import tile_areas_km2, tiles_at, tiles_to_codes
from geogp.records.map_settings import MAX_TILES
from geogp.runs.reopen import Reopened

Floats = NDArray[np.float64]

_NEGLIGIBLE = 1e-20  # ratio to the largest weight, such as that of 1e-38 to one person

FINER = 2
"""A raster is read at the centres of the tiles that are this number of zoom levels finer."""


def tile_weights(opened: Reopened, asked: str, by: str | None, crs: str | None = None) -> Floats:
    """Return the weight of each tile of the map, (n,): a size of a population, 0 or more.

    `asked` is one of

    - a GeoTIFF of a density, such as people per km²: the weight of a tile is its area times the
      mean of the raster in the tile; places without data have the density 0;
    - a file of points with a column ``value``, such as the people at each point: the weight of a
      tile is the sum over the points in it;
    - a column of the file of polygons `by`: the value of each polygon is shared among the tiles
      whose centre it contains, in proportion to their areas;
    - a column of tiles.parquet of the run, such as ``tests``.

    Warns of places without data, and of weights that are negligible beside the others. Raises
    RequestError if `asked` is none of these. Raises DataError if a weight is negative or not a
    number, or if all weights are 0.
    """
    path = Path(asked)
    if path.suffix.lower() in RASTERS:
        weights = _of_raster(opened, path)
    elif path.is_file() and path.suffix:
        weights = _of_points(opened, path)
    else:
        weights = _of_column(opened, asked, by, crs)
    wrong = [
        f"{what} in {_share(opened.tiles, where)}"
        for what, where in (
            ("no number", np.isnan(weights)),
            ("infinite values", np.isinf(weights)),
            ("negative values", (weights < 0) & np.isfinite(weights)),
        )
        if where.any()
    ]
    if wrong or not weights.any():
        raise DataError(
            f"expected weights of 0 or more in {asked}, and some above 0 in "
            f"{opened.inputs.region.name}, found "
            f"{', '.join(wrong) or 'only 0'}. "
            "Correct them, or choose another column or raster with --weights."
        )
    tiny = (weights > 0) & (weights < _NEGLIGIBLE * weights.max())
    if tiny.any():
        opened.listener.warn(
            f"the weights of {asked} are above 0, but below {_NEGLIGIBLE:g} of the largest weight, "
            f"in {_share(opened.tiles, tiny)}, which hardly count. If they mean missing data, "
            "write them as such."
        )
    return weights


def _share(tiles: Tiles, where: NDArray[Any]) -> str:
    """Return in words how much of the region some tiles are; `where` may be parts of tiles."""
    km2 = tile_areas_km2(tiles.centres[1], tiles.zoom)
    share, count = float(km2 @ where / km2.sum()), int(np.count_nonzero(where))
    return (
        f"{share:.{1 if share >= 0.001 else 4}%} of the region ({count:,} of {len(tiles):,} tiles)"
    )


def _of_raster(opened: Reopened, path: Path) -> Floats:
    """Return the area of each tile times the mean of a raster in the tile; warn of missing data."""
    if not path.is_file():
        raise RequestError(f"no file {path}: expected a GeoTIFF of weights with --weights.")
    raster, side, tiles = RasterCovariate(path), 1 << FINER, opened.tiles
    total, missing = np.zeros(len(tiles)), np.zeros(len(tiles))
    for across, down in np.ndindex(side, side):
        finer = Tiles(tiles.column * side + across, tiles.row * side + down, tiles.zoom + FINER)
        value = raster.at(*finer.centres).value
        total += np.nan_to_num(value) / side**2
        missing += np.isnan(value)
    if missing.all():
        raise DataError(
            f"expected weights in {path}, found none in {opened.inputs.region.name}: the raster is "
            "of another place, or has no finite value there. Choose another raster with --weights."
        )
    if missing.any():
        opened.listener.warn(
            f"{path} has no finite value (outside the raster, without data, or infinite) in "
            f"{_share(tiles, missing / side**2)}, and the weight there is 0."
        )
    weights: Floats = total * tile_areas_km2(tiles.centres[1], tiles.zoom)
    return weights


def _of_points(opened: Reopened, path: Path) -> Floats:
    """Return the sum of the values of the points in each tile; warn of points without a tile."""
    table, left_out = read_valued_points(path)
    for text in left_out:
        opened.listener.warn(text)
    tiles, value = opened.tiles, table["value"].to_numpy(np.float64)
    if (value < 0).any():
        raise DataError(
            f"expected weights of 0 or more in {path}, found {int((value < 0).sum()):,} negative "
            f"values of {len(value):,}. Correct them."
        )
    code = tiles_to_codes(*tiles_at(table["longitude"], table["latitude"], tiles.zoom), tiles.zoom)
    own = tiles_to_codes(tiles.column % (1 << tiles.zoom), tiles.row, tiles.zoom)
    place = pd.Index(own).get_indexer(pd.Index(code))
    outside = value[place < 0].sum()
    if outside > 0:
        opened.listener.warn(
            f"{outside / value.sum():.1%} of the weights of {path.name} lie outside the tiles of "
            f"{opened.inputs.region.name}, and are left out."
        )
    total = np.bincount(place[place >= 0], value[place >= 0], minlength=len(tiles))
    return total.astype(np.float64)


def _of_column(opened: Reopened, column: str, by: str | None, crs: str | None) -> Floats:
    """Return the weights in a column of the polygons of ``--by``, or else of tiles.parquet."""
    numeric: list[str] = []
    if by is not None and by not in {BY_STRATUM, *CENSUS_LAYERS} and not by.startswith("h3:"):
        # Rows that are left out are in the warnings of the areas.
        polygons = choose_polygons(by, "FILE or FILE:COLUMN", crs, []).table
        numeric = [name for name in polygons if pd.api.types.is_numeric_dtype(polygons[name])]
        if column in numeric:
            return _spread(opened, polygons, column)
    table = read_table(opened.path / TILES_FILE, MAX_TILES).to_pandas().set_index("quadkey")
    own = [name for name in table if pd.api.types.is_numeric_dtype(table[name])]
    if column in own:
        weights: Floats = table[column].reindex(opened.tiles.quadkeys).to_numpy(np.float64)
        return weights
    raise RequestError(
        f"expected --weights with a GeoTIFF or one of the columns {named([*numeric, *own], 40)}, "
        f"found {quoted(column)}."
    )


def _spread(opened: Reopened, polygons: gpd.GeoDataFrame, column: str) -> Floats:
    """Return the values of polygons, shared among their tiles; warn of polygons without a tile."""
    centres, count = opened.tiles.centres, len(polygons)
    layer = PolygonLayer.of_table("", polygons.assign(row=range(count)), "row")
    # The labels of the layer are the numbers of the rows, as text.
    place = np.array([*map(int, layer.labels), count])[layer.index(*centres)]
    values = np.append(polygons[column].to_numpy(np.float64, na_value=np.nan), 0.0)
    km2 = tile_areas_km2(centres[1], opened.tiles.zoom)
    total = np.bincount(place, km2, minlength=count + 1)
    inside = polygons.representative_point().within(opened.inputs.region.wrapped).to_numpy()
    for where, why in (
        (
            inside,
            "contain no centre of a tile, and is left out. Map the region with a higher --zoom.",
        ),
        (~inside, "lie outside the region, and is left out."),
    ):
        lost = values[:-1][where & (total[:-1] == 0)].sum()
        if lost > 0:
            share = lost / values.sum()
            opened.listener.warn(f"{share:.1%} of {column} belongs to polygons that {why}")
    weights: Floats = values[place] * km2 / total[place]
    return weights
