"""Zip files with the names and columns of the Census Bureau's, written by the tests."""

import zipfile
from pathlib import Path

import geopandas as gpd
from bucket_files import ISLAND, MAINLAND, TOWN
from shapely.geometry import MultiPolygon, box

FAR_TOWN = box(-84.5, 33.5, -84.0, 34.0)
BORDER_TOWN = box(-66.02, 18.2, -65.8, 18.25)  # reaches out of the region
HALVES = [box(-66.2, 18.1, -66.1, 18.3), box(-66.1, 18.1, -65.88, 18.3)]

STATES = "GENZ2018/shp/cb_2018_us_state_500k.zip"
COUNTIES = "GENZ2018/shp/cb_2018_us_county_500k.zip"
URBAN = {
    2010: "GENZ2018/shp/cb_2018_us_ua10_500k.zip",
    2020: "GENZ2020/shp/cb_2020_us_ua20_500k.zip",
}


def states(crs=4269) -> gpd.GeoDataFrame:
    table = {
        "STATEFP": ["72", "13", "15"],
        "STUSPS": ["PR", "GA", "HI"],
        "NAME": ["Puerto Rico", "Georgia", "Hawaii"],
    }
    shapes = [MultiPolygon([MAINLAND, ISLAND]), box(-85, 31, -81, 35), box(-160, 19, -155, 22)]
    return gpd.GeoDataFrame(table, geometry=shapes, crs=crs)


def towns(column="UACE10", crs=4269) -> gpd.GeoDataFrame:
    table = {column: ["1", "2", "3"], f"NAME{column[-2:]}": ["Town", "Far", "Border"]}
    return gpd.GeoDataFrame(table, geometry=[TOWN, FAR_TOWN, BORDER_TOWN], crs=crs)


def counties() -> gpd.GeoDataFrame:
    table = {"STATEFP": ["72", "72", "13"], "GEOID": ["1", "2", "3"], "NAME": ["W", "E", "Fulton"]}
    return gpd.GeoDataFrame(table, geometry=[*HALVES, FAR_TOWN], crs=4269)


def zipped(table: gpd.GeoDataFrame, path: Path) -> None:
    """Write a zipped shapefile named as its zip file, as the Census Bureau does."""
    shapes = path.parent / "shapes"
    shapes.mkdir(parents=True, exist_ok=True)
    table.to_file(shapes / f"{path.stem}.shp")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in shapes.glob(f"{path.stem}.*"):
            archive.write(part, part.name)


def write_national(folder: Path, vintages=(2010, 2020)) -> Path:
    """Write the files of the whole country as the Bureau's site has them."""
    zipped(states(), folder / STATES)
    zipped(counties(), folder / COUNTIES)
    for year in vintages:
        zipped(towns(f"UACE{year % 100}"), folder / URBAN[year])
    return folder
