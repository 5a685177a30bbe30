"""Tables of areas as files: CSV and JSON, and with polygons GeoPackage and GeoParquet."""

import io
import json
from pathlib import Path
from typing import Any

import geopandas as gpd

from geogp.commands.csv_tables import write_csv
from geogp.files import write_bytes, write_text


def write_areas(
    frame: gpd.GeoDataFrame, described: dict[str, Any], folder: Path, name: str
) -> list[Path]:
    """Write a table as NAME.csv, .gpkg, .parquet and .json; return the paths.

    The JSON file has the facts `described` and the rows; the report of the run reads it.

    Raises OutputError if a file cannot be written.
    """
    paths = [folder / f"{name}.{end}" for end in ("csv", "gpkg", "parquet", "json")]
    table = frame.drop(columns="geometry")
    write_csv(paths[0], table)
    package, parquet = io.BytesIO(), io.BytesIO()
    frame.to_file(package, driver="GPKG", layer=name)
    write_bytes(paths[1], package.getvalue())
    frame.to_parquet(parquet, index=False)
    write_bytes(paths[2], parquet.getvalue())
    told = {**described, "areas": table.to_dict(orient="records")}
    write_text(paths[3], json.dumps(told, indent=1, allow_nan=False) + "\n")
    return paths
