import errno

import netCDF4
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from rio_cogeo.cogeo import cog_validate

from geogp.errors import OutputError
from geogp.geodata.quadkeys import tiles_at
from geogp.maps.frame import Frame, to_mercator
from geogp.maps.rasters import write_geotiffs, write_netcdf


@pytest.fixture(scope="module")
def netcdf(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "grid.nc"
    write_netcdf(world.grid, path)
    return path


@pytest.fixture(scope="module")
def geotiffs(world, tmp_path_factory):
    return write_geotiffs(world.grid, tmp_path_factory.mktemp("tif"))


def test_netcdf_reads_back_the_same_in_xarray(world, netcdf):
    with xr.open_dataset(netcdf, decode_coords="all") as found:
        assert set(found.data_vars) == set(world.grid.data_vars)
        for name, variable in world.grid.data_vars.items():
            raw = variable.values.astype(float)
            outside = np.isnan(world.grid["median_mbps"].values)
            expected = np.where(outside, np.nan, raw)
            np.testing.assert_array_equal(found[name].values, expected, err_msg=name)
        np.testing.assert_array_equal(found["x"], world.grid["x"])
        np.testing.assert_array_equal(found["y"], world.grid["y"])
        assert found.rio.crs.to_epsg() == 3857
        assert found["median_mbps"].rio.crs.to_epsg() == 3857
        assert found.attrs == world.grid.attrs


def test_netcdf_follows_cf_in_netcdf4(netcdf):
    with netCDF4.Dataset(netcdf) as found:
        assert found.Conventions == "CF-1.10"
        for name in ("median_mbps", "far", "tests"):
            assert found[name].grid_mapping == "spatial_ref"
            assert found[name].long_name
            assert "_FillValue" in found[name].ncattrs()
        assert found["median_mbps"].dtype == np.float32
        assert np.isnan(found["median_mbps"]._FillValue)
        assert found["far"].flag_meanings == "near far_from_any_measurement"
        assert found["far"].flag_values.tolist() == [0, 1]
        assert "_FillValue" not in found["x"].ncattrs()
        assert found["x"].units in {"m", "metre"}
        assert found["median_mbps"].filters()["zlib"]


def test_netcdf_opens_in_gdal_at_the_right_place(world, netcdf):
    with rasterio.open(f"netcdf:{netcdf}:median_mbps") as found:
        assert found.crs.to_epsg() == 3857
        expected = Frame.of_grid(world.grid).transform
        assert found.transform.almost_equals(expected, precision=1e-6)
        np.testing.assert_array_equal(found.read(1), world.grid["median_mbps"].values)


def test_geotiffs_are_valid_and_named(geotiffs):
    assert [path.name for path in geotiffs] == [
        "median_mbps.tif",
        "mean_mbps.tif",
        "lower_mbps.tif",
        "upper_mbps.tif",
        "width_log10.tif",
        "function_sd_log10.tif",
        "field_sd_log10.tif",
        "tile_sd_log10.tif",
        "noise_sd_log10.tif",
    ]
    for path in geotiffs:
        valid, errors, warnings = cog_validate(path, strict=True, quiet=True)
        assert (valid, errors, warnings) == (True, [], []), path.name


# rioxarray still multiplies transforms in the way that affine 3 no longer likes.
@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
def test_geotiff_round_trip(world, geotiffs):
    for path in geotiffs:
        with rasterio.open(path) as found:
            assert found.crs.to_epsg() == 3857
            assert found.transform == Frame.of_grid(world.grid).transform
            assert np.isnan(found.nodata)
            assert found.dtypes == ("float32",)
            assert found.compression.name == "deflate"
            variable = world.grid[path.stem]
            assert found.descriptions == (variable.attrs["long_name"],)
            assert found.units == (variable.attrs["units"],)
            assert found.tags()["model"] == "dbk-rbf"
            assert found.tags()["seed"] == "3"
            np.testing.assert_array_equal(found.read(1), variable.values)
    with rioxarray.open_rasterio(geotiffs[0], masked=True) as found:
        np.testing.assert_allclose(found["x"], world.grid["x"], rtol=1e-12)
        np.testing.assert_allclose(found["y"], world.grid["y"], rtol=1e-12)


def test_geotiff_sampled_at_a_tiles_centre_gives_that_tiles_value(world, geotiffs):
    easting, northing = to_mercator(*world.tiles.centres)
    with rasterio.open(geotiffs[0]) as found:
        sampled = np.ravel(list(found.sample(zip(easting, northing, strict=True))))
    np.testing.assert_allclose(sampled, 10**world.prediction.mean, rtol=1e-6)


def test_geotiff_pixel_maps_back_to_the_right_tile(world, geotiffs):
    with rasterio.open(geotiffs[0]) as found:
        x, y = found.xy(7, 11)
        (longitude,), (latitude,) = rasterio.warp.transform(found.crs, "EPSG:4326", [x], [y])
    column, row = tiles_at(longitude, latitude, 14)
    frame = Frame.of_grid(world.grid)
    assert (column, row) == (frame.column + 11, frame.row + 7)


def test_a_large_geotiff_has_overviews(world, tmp_path):
    factor = 20
    wide = world.grid.isel(
        x=np.repeat(np.arange(world.grid.sizes["x"]), factor),
        y=np.repeat(np.arange(world.grid.sizes["y"]), factor),
    )
    with rasterio.open(write_geotiffs(wide, tmp_path)[0]) as found:
        assert found.overviews(1)


def test_a_full_disk_leaves_nothing_behind(world, tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("geogp.files.os.fsync", full)
    with pytest.raises(OutputError, match="the disk is full"):
        write_netcdf(world.grid, tmp_path / "grid.nc")
    with pytest.raises(OutputError, match="the disk is full"):
        write_geotiffs(world.grid, tmp_path)
    assert list(tmp_path.iterdir()) == []
