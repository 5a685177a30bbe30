"""Tables of areas and tiles as files: CSV, JSON, and with polygons GeoPackage and GeoParquet."""

import io
import json
from pathlib import Path
from typing import Any

import geopandas as gpd

from geogp.commands.answers.run_answer import plain_rows
from geogp.commands.csv_tables import write_csv
from geogp.errors import DataError
from geogp.files import write_bytes, write_text
from geogp.geodata.places.polygons import DAMAGE, geo_table
from geogp.geodata.tiles.parquet_files import read_table
from geogp.runs.run_folder import locked_run


def write_areas(
    frame: gpd.GeoDataFrame, described: dict[str, Any], folder: Path, name: str
) -> list[Path]:
    """Write a table as NAME.csv, .gpkg, .parquet and .json; return the paths.

    The JSON file has the facts `described` and the rows; the report of the run reads it. Raises
    OutputError if a file cannot be written.
    """
    paths = [folder / f"{name}.{end}" for end in ("csv", "gpkg", "parquet", "json")]
    table = frame.drop(columns="geometry")
    write_csv(paths[0], table)
    parquet = io.BytesIO()
    _write_package(frame, paths[1])
    frame.to_parquet(parquet, index=False)
    write_bytes(paths[2], parquet.getvalue())
    told = {**described, "areas": plain_rows(table)}
    write_text(paths[3], json.dumps(told, indent=1, allow_nan=False) + "\n")
    return paths


def write_tiles(run: Path) -> Path:
    """Write tiles.gpkg, the table of tiles of a finished run as a GeoPackage; return its path.

    Raises RequestError if the folder is not a finished run or is locked, DataError if tiles.parquet
    is damaged, and OutputError if the file cannot be written.
    """
    path, source = run / "tiles.gpkg", run / "tiles.parquet"
    with locked_run(run):
        try:
            frame = geo_table(read_table(source))
        except DAMAGE as error:
            raise DataError(
                f"{source} is damaged ({error}). Give the command `geogp map` of the run again."
            ) from error
        _write_package(frame, path)
    return path


def _write_package(frame: gpd.GeoDataFrame, path: Path) -> None:
    package = io.BytesIO()
    frame.to_file(package, driver="GPKG", layer=path.stem)
    write_bytes(path, package.getvalue())
