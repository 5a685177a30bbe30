"""STAC items, checked by the JSON Schemas of STAC 1.0."""

import json
import math
from pathlib import Path

import jsonschema
import pytest
import rasterio
import referencing
from shapely.geometry import box, shape

from geogp.geodata.tiles.ookla import LICENSE
from geogp.maps.frame import Frame
from geogp.maps.rasters import write_geotiffs
from geogp.maps.stac_item import stac_item, write_item

SCHEMAS = Path(__file__).parents[1] / "fixtures" / "stac-1.0.0"


def validator():
    """Return what checks items; a schema that is not stored here is an error."""
    stored = [json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.json")]
    resources = [
        (one["$id"].rstrip("#"), referencing.Resource.from_contents(one)) for one in stored
    ]
    (item,) = [one for one in stored if one["$id"].endswith("item.json#")]
    kind = jsonschema.validators.validator_for(item)
    registry = referencing.Registry().with_resources(resources)
    return kind(item, registry=registry, format_checker=kind.FORMAT_CHECKER)


@pytest.fixture
def grid(world):
    settings = {"quarter": "2023Q4", "model": "field", "attribution": "by <somebody>"}
    return world.grid.assign_attrs(settings)


def test_an_item_follows_the_schema_and_names_each_raster(grid, tmp_path):
    told = json.loads(write_item(grid, tmp_path).read_text("utf-8"))
    assert list(validator().iter_errors(told)) == []
    for name, band in grid.data_vars.items():
        asset = told["assets"][name]
        assert asset["href"] == f"./{name}.tif"
        assert asset["title"] == band.attrs["long_name"]
    assert told["properties"]["start_datetime"] == "2023-10-01T00:00:00Z"
    assert told["properties"]["end_datetime"] == "2023-12-31T23:59:59Z"
    assert shape(told["geometry"]).equals(box(*told["bbox"]))
    assert told["bbox"] == list(Frame.of_grid(grid).bounds)
    assert "by <somebody>" in told["properties"]["description"]


def test_the_extensions_describe_the_pixels_of_the_rasters(grid, tmp_path):
    """As the specifications of proj 1.1 and raster 1.1 say, and as the files have it."""
    told = json.loads(json.dumps(stac_item(grid), allow_nan=False))
    names = [one.split("/")[3:5] for one in told["stac_extensions"]]
    assert names == [["projection", "v1.1.0"], ["raster", "v1.1.0"]]
    properties = told["properties"]
    for path in write_geotiffs(grid, tmp_path):
        (band,) = told["assets"][path.stem]["raster:bands"]
        with rasterio.open(path) as raster:
            assert raster.crs.to_epsg() == properties["proj:epsg"]
            assert list(raster.shape) == properties["proj:shape"]
            assert properties["proj:transform"] == pytest.approx(list(raster.transform)[:6])
            assert properties["proj:bbox"] == pytest.approx(list(raster.bounds))
            assert band["data_type"] == raster.dtypes[0]
            assert band["spatial_resolution"] == pytest.approx(raster.res[0])
            nodata = "nan" if math.isnan(raster.nodata) else raster.nodata
            assert band["nodata"] == nodata
            assert band.get("unit", "") == (raster.units[0] or "")
            tags = raster.tags(1)
            for key in ("minimum", "maximum", "mean", "stddev"):
                assert band["statistics"][key] == float(tags[f"STATISTICS_{key.upper()}"])
            share = float(tags["STATISTICS_VALID_PERCENT"])
            assert band["statistics"]["valid_percent"] == pytest.approx(share, rel=1e-5)


def test_only_a_map_of_ooklas_data_has_its_licence(grid):
    """STAC 1.0 calls a licence that is not on the SPDX list proprietary."""
    own = json.loads(json.dumps(stac_item(grid)))
    assert own["properties"]["license"] == "proprietary"
    assert "Ookla" not in json.dumps(own)
    assert own["links"] == []
    told = json.loads(json.dumps(stac_item(grid.assign_attrs(license=LICENSE))))
    assert list(validator().iter_errors(told)) == []
    assert told["properties"]["license"] == "CC-BY-NC-SA-4.0"
    assert told["properties"]["providers"][0]["name"] == "Ookla"
    (link,) = told["links"]
    assert link["rel"] == "license"
    wrong = told | {"properties": told["properties"] | {"license": "CC BY-NC-SA 4.0"}}
    assert list(validator().iter_errors(wrong))


def test_the_schema_can_refuse(grid):
    told = json.loads(json.dumps(stac_item(grid)))
    assert list(validator().iter_errors(told)) == []
    wrong = [
        told | {"stac_version": "0.9"},
        told | {"bbox": [0, 1]},
        told | {"geometry": {"type": "Polygon", "coordinates": [1]}},
        told | {"properties": told["properties"] | {"start_datetime": "yesterday"}},
        {name: value for name, value in told.items() if name != "assets"},
    ]
    for one in wrong:
        assert list(validator().iter_errors(one))


def test_a_map_across_180_degrees_is_cut_there(grid):
    frame = Frame.of_grid(grid)
    west = frame.bounds[0]
    tiles = round((179.9 - west) / 360 * (1 << frame.zoom))
    size = float(grid["x"][1] - grid["x"][0])
    moved = grid.assign_coords(x=grid["x"] + tiles * size)
    told = json.loads(json.dumps(stac_item(moved)))
    assert list(validator().iter_errors(told)) == []
    parts = list(shape(told["geometry"]).geoms)
    assert len(parts) == 2
    assert told["bbox"][0] > 179
    assert -180 < told["bbox"][2] < 0
    width = sum(part.bounds[2] - part.bounds[0] for part in parts)
    assert width == pytest.approx(frame.bounds[2] - west)
