"""Tables of areas as files: CSV without polygons, GeoPackage and GeoParquet with polygons."""

import io
from pathlib import Path

import geopandas as gpd

from geogp.commands.csv_tables import write_csv
from geogp.files import write_bytes


def write_areas(frame: gpd.GeoDataFrame, folder: Path, name: str) -> list[Path]:
    """Write a table as NAME.csv, NAME.gpkg and NAME.parquet; return the paths.

    Raises OutputError if a file cannot be written.
    """
    paths = [folder / f"{name}.{end}" for end in ("csv", "gpkg", "parquet")]
    write_csv(paths[0], frame.drop(columns="geometry"))
    package, parquet = io.BytesIO(), io.BytesIO()
    frame.to_file(package, driver="GPKG", layer=name)
    write_bytes(paths[1], package.getvalue())
    frame.to_parquet(parquet, index=False)
    write_bytes(paths[2], parquet.getvalue())
    return paths
