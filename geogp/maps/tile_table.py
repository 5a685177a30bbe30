"""The map as a GeoParquet table with a row for each tile."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
import xarray as xr
from numpy.typing import NDArray
from pyarrow import parquet
from pyproj import CRS

from geogp.distributions.prediction import Prediction
from geogp.distributions.quantity import Quantity, Variable
from geogp.errors import DataError
from geogp.files import write_bytes
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.quadkeys import (
    format_quadkeys,
    tile_bounds,
    tile_centres,
    tiles_to_codes,
)
from geogp.maps.frame import Frame
from geogp.maps.grid import OWN_FLAG, stratum_at
from geogp.maps.target_quantities import quantity_of

_CRS = "OGC:CRS84"
_ROW_GROUP = 65_536

LEVELS = (50, 80)
"""Levels, in percent, of the intervals that the table has and the rasters lack."""


def tile_table(
    grid: xr.Dataset,
    tiles: Tiles,
    *,
    county: NDArray[np.object_] | None = None,
    prediction: Prediction | None = None,
) -> pa.Table:
    """Return the values of a grid as a table with a row for each of n tiles, ordered by quadkey.

    The columns are ``quadkey``, ``longitude`` and ``latitude`` of the centre in degrees (from -180
    to 180), ``stratum`` (such as urban, rural or unknown), ``county`` if `county` is given, each
    variable of the grid (flags as booleans, classes as text), and ``geometry``, the tile as a
    polygon (GeoParquet 1.1, OGC:CRS84). `county` (n,) has the name of each tile's county, or None.
    With the `prediction` of n measurements, the ends of its 50 % and 80 % intervals are further
    columns. Raises DataError if a tile lies outside the grid, or `county` does not have n values.
    """
    quantity = quantity_of(str(grid.attrs["target"]))
    if county is not None and len(county) != len(tiles):
        raise DataError(f"expected a county for each of {len(tiles)} tiles, found {len(county)}.")
    column = tiles.column % (1 << tiles.zoom)
    codes = tiles_to_codes(column, tiles.row, tiles.zoom)
    order = np.argsort(codes)
    pixels = tuple(place[order] for place in Frame.of_grid(grid).pixels(tiles))
    bounds = tile_bounds(column[order], tiles.row[order], tiles.zoom)
    longitude, latitude = tile_centres(column[order], tiles.row[order], tiles.zoom)
    columns: dict[str, NDArray[Any]] = {
        "quadkey": format_quadkeys(codes[order], tiles.zoom),
        "longitude": longitude,
        "latitude": latitude,
        "stratum": stratum_at(grid, pixels),
    }
    if county is not None:
        columns["county"] = county[order]
    attributes: dict[str, dict[str, str]] = {}
    for name, variable in grid.data_vars.items():
        if name == OWN_FLAG:  # the column ``stratum`` has the names of the strata
            continue
        values = variable.to_numpy()[pixels]
        if quantity.classes and name == quantity.suffix:
            values = np.array(quantity.classes, object)[values]
        elif "flag_values" in variable.attrs:
            values = values == 1
        columns[str(name)] = values
        attributes[str(name)] = {
            key: str(variable.attrs[key]) for key in ("long_name", "units") if key in variable.attrs
        }
    for name, (values, label, unit) in _bounds(prediction, quantity).items():
        columns[name] = values[order].astype(np.float32)
        attributes[name] = {"long_name": label, "units": unit}
    arrays = [
        pa.array(values, pa.string() if values.dtype == object else None)
        for values in columns.values()
    ]
    fields = [
        pa.field(name, values.type, metadata=attributes.get(name))
        for name, values in zip(columns, arrays, strict=True)
    ]
    squares = shapely.to_wkb(shapely.box(bounds.west, bounds.south, bounds.east, bounds.north))
    arrays.append(pa.array(squares, pa.binary()))
    extent = [bounds.west.min(), bounds.south.min(), bounds.east.max(), bounds.north.max()]
    schema = pa.schema(
        [*fields, pa.field("geometry", pa.binary())],
        metadata={"geo": json.dumps(_geo(extent)), "geogp": json.dumps(grid.attrs)},
    )
    return pa.Table.from_arrays(arrays, schema=schema)


def write_tile_table(
    grid: xr.Dataset,
    tiles: Tiles,
    path: Path,
    *,
    county: NDArray[np.object_] | None = None,
    prediction: Prediction | None = None,
) -> None:
    """Write the table of tiles (see `tile_table`) as GeoParquet, compressed by zstd."""
    table, stream = tile_table(grid, tiles, county=county, prediction=prediction), io.BytesIO()
    types = {field.name: field.type for field in table.schema}
    parquet.write_table(
        table,
        stream,
        compression="zstd",
        row_group_size=_ROW_GROUP,
        use_dictionary=[name for name, kind in types.items() if pa.types.is_string(kind)],
        # This encoding stores bytes of the same significance together, which saves a third of the
        # size.
        column_encoding={
            name: "BYTE_STREAM_SPLIT" for name, kind in types.items() if pa.types.is_float32(kind)
        },
    )
    write_bytes(path, stream.getvalue())


def _bounds(prediction: Prediction | None, quantity: Quantity) -> dict[str, Variable]:
    """Return the ends of the narrower intervals; none without a prediction of values."""
    found: dict[str, Variable] = {}
    if prediction is None or quantity.classes:
        return found
    for level in LEVELS:
        for side, bound in zip(("lower", "upper"), prediction.interval(level / 100), strict=True):
            values = bound if quantity.counted else quantity.scale.values(bound)
            label = f"{side} end of the {level} % interval of the predicted {quantity.subject}"
            found[f"{side}_{level}_{quantity.suffix}"] = values, label, quantity.cf_unit
    return found


def _geo(extent: list[float]) -> dict[str, object]:
    """Return the metadata that makes a Parquet file GeoParquet 1.1."""
    column = {
        "encoding": "WKB",
        "geometry_types": ["Polygon"],
        "crs": CRS(_CRS).to_json_dict(),
        "orientation": "counterclockwise",
        "edges": "planar",
        "bbox": [float(edge) for edge in extent],
    }
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
