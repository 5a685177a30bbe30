import errno

import mercantile
import netCDF4
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from maps_worlds import smooth_prediction
from rasterio.vrt import WarpedVRT
from rio_cogeo.cogeo import cog_validate

from geogp.errors import OutputError
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.quadkeys import tiles_at
from geogp.maps.frame import Frame, to_mercator
from geogp.maps.grid import build_grid
from geogp.maps.rasters import write_geotiffs, write_netcdf, write_zarr
from geogp.maps.stac_item import stac_item


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
        assert found["time"].values == np.datetime64("2023-10-01")
        assert found["median_mbps"].sel(x=found["x"][0])["time"] == found["time"]


def test_whole_numbers_that_are_all_known_stay_whole_in_xarray(world, tmp_path):
    """A map of a full rectangle has no missing pixel; that of another region needs float."""
    frame, inside = Frame.of_tiles(world.tiles), ~np.isnan(world.grid["median_mbps"].values)
    squares = inside[:-1, :-1] & inside[1:, 1:] & inside[1:, :-1] & inside[:-1, 1:]
    row, column = np.argwhere(squares)[0]
    down, across = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    tiles = Tiles(frame.column + column + across, frame.row + row + down, frame.zoom)
    grid = build_grid(
        world.region,
        tiles,
        smooth_prediction(tiles),
        target="download",
        distance_km=np.ones(4),
        far_km=5.0,
        measured=np.array([0, 7, 0, 1]),
    )
    write_netcdf(grid, tmp_path / "grid.nc")
    with xr.open_dataset(tmp_path / "grid.nc") as found:
        assert found["tests"].dtype == np.int32
        assert found["far"].dtype == np.uint8
        np.testing.assert_array_equal(found["tests"], [[0, 7], [0, 1]])
    by_name = {path.stem: path for path in write_geotiffs(grid, tmp_path)}
    with rasterio.open(by_name["tests"]) as raster:
        assert raster.nodata is None
        assert raster.tags(1)["STATISTICS_VALID_PERCENT"] == "100"
        np.testing.assert_array_equal(raster.read(1), [[0, 7], [0, 1]])
    item = stac_item(grid.assign_attrs(quarter="2023Q4"))
    assert "nodata" not in item["assets"]["tests"]["raster:bands"][0]


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
        assert found["time"].standard_name == "time"
        assert found["median_mbps"].coordinates == "time"
        assert found["median_mbps"].filters()["zlib"]


@pytest.mark.parametrize("convention", ["1.8", "1.10", "1.11"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_netcdf_passes_a_cf_checker(netcdf, convention, monkeypatch):
    from compliance_checker.cf import appendix_f
    from compliance_checker.suite import CheckSuite

    # Version 6.1.0 lacks a comma, and asks for the letters of the name as attributes.
    for table in (appendix_f.grid_mapping_dict16, appendix_f.grid_mapping_dict17):
        parameters, *others = table["mercator"]
        if isinstance(parameters, str):
            monkeypatch.setitem(table, "mercator", [(parameters,), *others])
    CheckSuite.load_all_available_checkers()
    suite, name = CheckSuite(), f"cf:{convention}"
    with suite.load_dataset(str(netcdf)) as opened:
        results, errors = suite.run_all(opened, [name])[name]
    assert not errors
    assert len(results) > 15
    every = {text for result in results for text in _messages(result)}
    told = {text for text in every if not text.endswith("found in same group")}  # no fault
    expected = {
        "1.8": {"Conventions", "datatype is uint8", "datatype is int64"},  # CF 1.9 allows them
        "1.10": set(),
        "1.11": {"Conventions"},
    }[convention]
    assert {text for text in told if not any(part in text for part in expected)} == set()
    assert all(any(part in text for text in told) for part in expected)


def _messages(result):
    return [*result.msgs, *(text for child in result.children for text in _messages(child))]


@pytest.fixture(scope="module")
def zarr_store(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "grid.zarr"
    write_zarr(world.grid, path)
    return path


def test_zarr_reads_back_as_the_netcdf_does(netcdf, zarr_store):
    with (
        xr.open_dataset(netcdf, decode_coords="all") as expected,
        xr.open_zarr(zarr_store, consolidated=True, decode_coords="all") as found,
    ):
        xr.testing.assert_identical(found.load(), expected.load())
        assert found.rio.crs.to_epsg() == 3857


def test_zarr_opens_in_gdal_at_the_right_place(world, zarr_store):
    with rasterio.open(f'ZARR:"{zarr_store}":/upper_mbps') as found:
        assert found.crs.to_epsg() == 3857
        expected = Frame.of_grid(world.grid).transform
        assert found.transform.almost_equals(expected, precision=1e-6)
        np.testing.assert_array_equal(found.read(1), world.grid["upper_mbps"].values)


def test_zarr_has_square_chunks(world, tmp_path):
    factor = 10
    wide = world.grid.isel(x=np.repeat(np.arange(world.grid.sizes["x"]), factor))
    write_zarr(wide, tmp_path / "grid.zarr")
    with xr.open_zarr(tmp_path / "grid.zarr") as found:
        assert found["median_mbps"].encoding["chunks"] == (31, 256)
    assert "chunks" not in wide["median_mbps"].encoding


def test_zarr_replaces_what_was_there(world, tmp_path):
    path = tmp_path / "grid.zarr"
    (path / "old").mkdir(parents=True)
    write_zarr(world.grid, path)
    assert not (path / "old").exists()
    assert [found.name for found in tmp_path.iterdir()] == ["grid.zarr"]


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
        "distance_km.tif",
        "tests.tif",
        "far.tif",
        "urban.tif",
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
            variable = world.grid[path.stem]
            np.testing.assert_equal(found.nodata, float(variable.encoding["_FillValue"]))
            assert found.dtypes == (variable.dtype.name,)
            assert found.compression.name == "deflate"
            assert found.descriptions == (variable.attrs["long_name"],)
            assert (found.units[0] or "") == variable.attrs.get("units", "")
            assert (found.scales, found.offsets) == ((1.0,), (0.0,))
            assert (found.tags(1)["scale"], found.tags(1)["offset"]) == ("1", "0")
            assert found.tags()["model"] == "dbk-rbf"
            assert found.tags()["seed"] == "3"
            np.testing.assert_array_equal(found.read(1), variable.values)
    with rioxarray.open_rasterio(geotiffs[0], masked=True) as found:
        np.testing.assert_allclose(found["x"], world.grid["x"], rtol=1e-12)
        np.testing.assert_allclose(found["y"], world.grid["y"], rtol=1e-12)


def test_statistics_are_those_of_the_values(world, geotiffs):
    names = ("MINIMUM", "MAXIMUM", "MEAN", "STDDEV", "VALID_PERCENT")
    inside = np.isfinite(world.grid["median_mbps"].values)
    for path in geotiffs:
        with rasterio.open(path) as found:
            told = [float(found.tags(1)[f"STATISTICS_{name}"]) for name in names]
        values = world.grid[path.stem].values[inside].astype(float)
        expected = [values.min(), values.max(), values.mean(), values.std(), 100 * inside.mean()]
        np.testing.assert_allclose(told[:4], expected[:4], rtol=1e-14)
        np.testing.assert_allclose(told[4], expected[4], rtol=1e-5)
        with rasterio.open(path) as found:
            shown = found.stats(indexes=1)[0]
        np.testing.assert_allclose((shown.min, shown.max, shown.mean, shown.std), told[:4])


def test_without_a_value_there_are_no_statistics(world, tmp_path):
    empty = world.grid[["mean_mbps"]].copy(deep=True)
    empty["mean_mbps"][:] = np.nan
    with rasterio.open(write_geotiffs(empty, tmp_path)[0]) as found:
        assert not any("STATISTICS_M" in name for name in found.tags(1))
        assert np.isnan(found.read(1)).all()


def test_flags_say_what_they_mean(geotiffs):
    (far,) = (path for path in geotiffs if path.stem == "far")
    with rasterio.open(far) as found:
        assert found.tags(1)["flag_values"] == "0 1"
        assert found.tags(1)["flag_meanings"] == "near far_from_any_measurement"


def quartets(raster):
    """Return the four values of each square of four pixels, (height / 2, width / 2, 4)."""
    height, width = raster.shape
    squares = raster.reshape(height // 2, 2, width // 2, 2).swapaxes(1, 2)
    return squares.reshape(height // 2, width // 2, 4)


def test_overviews_of_a_small_raster(world, tmp_path):
    """Values are averaged; of flags the most frequent one is kept."""
    even = world.grid.isel(x=slice(0, 60), y=slice(0, 30))
    whole = quartets(even["far"].values != 255).all(axis=2)
    for path in write_geotiffs(even, tmp_path):
        with rasterio.open(path) as found:
            assert found.overviews(1) == [2]
            values = quartets(found.read(1).astype(float))
        with rasterio.open(path, overview_level=0) as found:
            small = found.read(1)
        assert small.shape == (15, 30)
        if path.stem in {"far", "urban"}:
            clear = whole & (values.sum(axis=2) != 2)
            np.testing.assert_array_equal(small[clear], (values.sum(axis=2) > 2)[clear])
            assert set(np.unique(small)) <= {0, 1, 255}
        else:
            atol = 0.51 if path.stem == "tests" else 1e-6
            expected = values.mean(axis=2)[whole]
            np.testing.assert_allclose(small[whole], expected, rtol=1e-5, atol=atol)


def test_a_raster_of_one_tile(world, tmp_path):
    one = world.grid.isel(x=slice(30, 31), y=slice(10, 11))
    with rasterio.open(write_geotiffs(one, tmp_path)[0]) as found:
        np.testing.assert_array_equal(found.read(1), one["median_mbps"].values)


@pytest.fixture(scope="module")
def marked(world, tmp_path_factory):
    """A raster in which one tile, known by its quadkey, is 1 and the rest 0."""
    quadkey = "03230020301233"
    tile = mercantile.quadkey_to_tile(quadkey)
    frame = Frame.of_grid(world.grid)
    grid = world.grid[["distance_km"]].copy(deep=True)
    grid["distance_km"][:] = 0
    grid["distance_km"][tile.y - frame.row, tile.x - frame.column] = 1
    (path,) = write_geotiffs(grid, tmp_path_factory.mktemp("marked"))
    return path, tile


def test_a_known_tile_lies_where_it_should_in_web_mercator(marked):
    path, tile = marked
    expected = mercantile.xy_bounds(tile)
    with rasterio.open(path) as found:
        (row,), (column,) = np.nonzero(found.read(1) == 1)
        west, north = found.transform @ (column, row)
        east, south = found.transform @ (column + 1, row + 1)
        pixel = found.res[0]
    assert (west, south, east, north) == pytest.approx(expected, abs=1e-6 * pixel)


def test_a_known_tile_lies_where_it_should_in_degrees(marked):
    """Warped by GDAL to pixels of a fortieth of a tile: its edges to a tenth of a tile."""
    path, tile = marked
    expected = mercantile.bounds(tile)
    wide, high = expected.east - expected.west, expected.north - expected.south
    west, north = expected.west - 2 * wide, expected.north + 2 * high
    to = rasterio.Affine(wide / 40, 0, west, 0, -high / 40, north)
    with (
        rasterio.open(path) as found,
        WarpedVRT(found, crs="EPSG:4326", transform=to, width=200, height=200) as warped,
    ):
        rows, columns = np.nonzero(warped.read(1) == 1)
    edges = [west + columns.min() * wide / 40, west + (columns.max() + 1) * wide / 40]
    assert edges == pytest.approx([expected.west, expected.east], abs=wide / 10)
    edges = [north - (rows.max() + 1) * high / 40, north - rows.min() * high / 40]
    assert edges == pytest.approx([expected.south, expected.north], abs=high / 10)


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


def test_a_store_that_cannot_be_written_leaves_nothing_behind(world, tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "grid.zarr").mkdir()
    (tmp_path / "grid.zarr" / "old").touch()
    monkeypatch.setattr("zarr.core.array.save_metadata", full)
    with pytest.raises(OutputError, match="the disk is full"):
        write_zarr(world.grid, tmp_path / "grid.zarr")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["grid.zarr", "old"]
