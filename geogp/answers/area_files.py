"""Answers as files: CSV, JSON, GeoPackage, GeoParquet and rasters."""

import io
import json
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pyarrow import parquet

from geogp.answers.tile_areas import TileAreas
from geogp.errors import DataError
from geogp.files import output_errors, remove, write_bytes, write_text
from geogp.geodata.places.polygons import DAMAGE, geo_table
from geogp.geodata.tiles.parquet_files import read_table
from geogp.maps.csv_tables import write_csv
from geogp.maps.frame import Frame
from geogp.maps.rasters import write_geotiffs
from geogp.runs.reopen import Reopened
from geogp.runs.run_folder import locked_run

CREDITS = ("attribution", "license")
"""Attributes of files that name the source of the data and its licence."""


def write_areas(
    opened: Reopened,
    areas: TileAreas,
    frame: gpd.GeoDataFrame,
    content: dict[str, Any],
    name: str,
    *,
    picture: bytes,
) -> list[Path]:
    """Write an answer as NAME.csv, .gpkg, .parquet, .json, .tif and .png; return the paths.

    The tables have the rows of `frame`. The raster has for each tile the row of its area in the
    table, from 1, or 0. If a tile lies in several areas, this is the last of them. The JSON file
    has the content. Raises OutputError if a file cannot be written.
    """
    paths = [opened.path / f"{name}.{end}" for end in ("csv", "gpkg", "parquet", "json", "png")]
    credits_of_data = opened.inputs.ingested.credits
    forget(paths[3])
    write_csv(paths[0], frame.drop(columns="geometry"))
    _write_package(frame, paths[1], credits_of_data)
    _write_parquet(frame, paths[2], credits_of_data)
    number = np.zeros(len(opened.tiles), np.int32)
    for row, inside in enumerate(areas.tiles, start=1):
        number[inside] = row
    meanings = " ".join("_".join(label.split()) for label in areas.labels)
    attributes = {
        "long_name": "area",
        "flag_values": list(range(1, len(areas) + 1)),
        "flag_meanings": meanings,
    }
    rasters = write_geotiffs(answer_grid(opened, {name: (number, 0, attributes)}), opened.path)
    write_bytes(paths[4], picture)
    write_json(paths[3], content)
    return [*paths[:-1], *rasters, paths[-1]]


def forget(path: Path) -> None:
    """Delete the JSON file of an earlier answer; raise OutputError if this fails.

    This comes before the first file of an answer, because files of two answers are none.
    """
    with output_errors(path):
        remove(path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write the content of an answer; raise OutputError if the file cannot be written.

    This is the last file of an answer, because an answer without its other files is none.
    """
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def answer_grid(
    opened: "Reopened", variables: dict[str, tuple[NDArray[Any], float, dict[str, Any]]]
) -> xr.Dataset:
    """Return rasters of tiles, from the values (n,), the value elsewhere, and attributes."""
    tiles, frame = opened.tiles, Frame.of_tiles(opened.tiles)
    request = opened.settings
    return xr.Dataset(
        {
            name: (("y", "x"), frame.place(tiles, values, none), attributes, {"_FillValue": none})
            for name, (values, none, attributes) in variables.items()
        },
        coords={"x": frame.x, "y": frame.y},
        attrs={
            "zoom": tiles.zoom,
            "region_code": opened.inputs.region.code,
            "target": request.target,
            **opened.inputs.ingested.credits,
        },
    )


def write_tiles(run: Path) -> Path:
    """Write tiles.gpkg, the table of tiles of a finished run as a GeoPackage; return its path.

    Raises RequestError if the folder is not a finished run or is locked, DataError if tiles.parquet
    is damaged, and OutputError if the file cannot be written.
    """
    path, source = run / "tiles.gpkg", run / "tiles.parquet"
    with locked_run(run):
        try:
            table = read_table(source)
            stored = json.loads((table.schema.metadata or {}).get(b"geogp", b"{}"))
            about_data = {name: str(stored[name]) for name in CREDITS if name in stored}
            frame = geo_table(table)
        except DAMAGE as error:
            raise DataError(
                f"{source} is damaged ({error}). Give the command `geogp map` of the run again."
            ) from error
        _write_package(frame, path, about_data)
    return path


def _write_package(frame: gpd.GeoDataFrame, path: Path, about_data: dict[str, str]) -> None:
    package = io.BytesIO()
    frame.to_file(package, driver="GPKG", layer=path.stem, layer_metadata=about_data)
    write_bytes(path, package.getvalue())


def _write_parquet(frame: gpd.GeoDataFrame, path: Path, about_data: dict[str, str]) -> None:
    """Write a table as GeoParquet, with attributes under the key of the table of tiles."""
    plain, stream = io.BytesIO(), io.BytesIO()
    frame.to_parquet(plain, index=False)
    table = parquet.read_table(plain)
    metadata = {**table.schema.metadata, "geogp": json.dumps(about_data)}
    parquet.write_table(table.replace_schema_metadata(metadata), stream)
    write_bytes(path, stream.getvalue())
