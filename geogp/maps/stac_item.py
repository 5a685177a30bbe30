"""A map as a SpatioTemporal Asset Catalog item (STAC 1.0), which catalogues of GIS desks read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from shapely.geometry import MultiPolygon, box, mapping
from shapely.geometry.base import BaseGeometry

from geogp.files import write_text
from geogp.geodata.tiles.ookla import LICENSE
from geogp.geodata.tiles.quadkeys import tile_size_m
from geogp.maps.frame import Frame
from geogp.maps.rasters import nodata_of, statistics_of

ITEM_FILE = "item.json"
"""The STAC item in a run folder."""

_FILES = {
    "grid.nc": ("application/netcdf", "all rasters, CF NetCDF", "data"),
    "tiles.parquet": ("application/vnd.apache.parquet", "a row for each tile, GeoParquet", "data"),
    "map.html": ("text/html", "interactive map", "overview"),
    "report.html": ("text/html", "report: are the intervals right?", "metadata"),
    "run.json": ("application/json", "settings and scores of the run", "metadata"),
}
"""Media type, title and role of files of a run, besides its rasters."""

_EXTENSIONS = [
    "https://stac-extensions.github.io/projection/v1.1.0/schema.json",
    "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
]
"""The last versions of the extensions that are for STAC 1.0."""

NO_LICENSE = "proprietary"
"""What STAC 1.0 calls data without a licence on the SPDX list."""

_OOKLA: dict[str, Any] = {
    "name": "Ookla",
    "description": "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps",
    "roles": ["producer", "licensor"],
    "url": "https://www.ookla.com/ookla-for-good/open-data",
}
_OOKLA_LICENSE = {
    "rel": "license",
    "href": "https://creativecommons.org/licenses/by-nc-sa/4.0/",
    "type": "text/html",
    "title": "CC BY-NC-SA 4.0",
}


def write_item(grid: xr.Dataset, folder: Path) -> Path:
    """Write the STAC item of a grid as item.json, and return its path."""
    path = folder / ITEM_FILE
    write_text(path, json.dumps(stac_item(grid), indent=1, ensure_ascii=False) + "\n")
    return path


def stac_item(grid: xr.Dataset) -> dict[str, Any]:
    """Return a grid as a STAC item, with the rasters and other files of its run as assets.

    The addresses of the files are relative to the item. The time of the item is the quarter of the
    map. The extensions ``proj`` and ``raster`` describe the pixels. The item has no time of its
    making, because equal runs have equal files. Only a map of Ookla's data names Ookla and its
    licence.
    """
    license_of_data = str(grid.attrs.get("license", NO_LICENSE))
    from_ookla = license_of_data == LICENSE
    frame = Frame.of_grid(grid)
    attributes, west, south, east, north = grid.attrs, *frame.bounds
    shape: BaseGeometry = box(west, south, east, north)
    if east > 180:  # GeoJSON cuts shapes at the antimeridian
        shape = MultiPolygon([box(west, south, 180, north), box(-180, south, east - 360, north)])
    quarter = pd.Period(str(attributes["quarter"]), freq="Q")
    cog = "image/tiff; application=geotiff; profile=cloud-optimized"
    files = {
        f"{name}.tif": (cog, str(band.attrs["long_name"]), "data")
        for name, band in grid.data_vars.items()
    }
    named = (
        attributes[key]
        for key in ("region_code", "target", "model", "quarter")
        if key in attributes
    )
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "stac_extensions": _EXTENSIONS,
        "id": "-".join(map(str, named)),
        "bbox": [west, south, east - 360 if east > 180 else east, north],
        "geometry": mapping(shape),
        "properties": {
            "datetime": None,
            "start_datetime": f"{quarter.start_time:%Y-%m-%dT%H:%M:%SZ}",
            "end_datetime": f"{quarter.end_time:%Y-%m-%dT%H:%M:%SZ}",
            "title": str(attributes["title"]),
            "description": f"{attributes['history']}. Data: {attributes.get('attribution', '')}",
            "license": license_of_data,
            "proj:epsg": 3857,
            "proj:bbox": list(frame.bounds_m),
            "proj:shape": [frame.height, frame.width],
            "proj:transform": list(frame.transform)[:6],
            **({"providers": [_OOKLA]} if from_ookla else {}),
        },
        "links": [_OOKLA_LICENSE] if from_ookla else [],
        "assets": {
            name.partition(".")[0]: {
                "href": f"./{name}",
                "type": kind,
                "title": title,
                "roles": [role],
                **(_bands(grid, name.removesuffix(".tif")) if kind == cog else {}),
            }
            for name, (kind, title, role) in (files | _FILES).items()
        },
    }


def _bands(grid: xr.Dataset, name: str) -> dict[str, Any]:
    """Return the description of the only band of a GeoTIFF, by the extension ``raster``."""
    band = grid[name]
    nodata = nodata_of(band)
    described: dict[str, Any] = {
        "data_type": band.dtype.name,
        "nodata": "nan" if nodata is not None and np.isnan(nodata) else nodata,
        "unit": band.attrs.get("units"),
        "sampling": "area",
        "spatial_resolution": tile_size_m(int(grid.attrs["zoom"])),
        "statistics": statistics_of(band.to_numpy(), nodata),
    }
    return {"raster:bands": [{key: value for key, value in described.items() if value is not None}]}
