"""Covariates: interpolation against slow loops, files, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
import rasterio
import torch

from geogp import DataError, RequestError, read_covariate
from geogp.geodata.covariates import rasters
from geogp.geodata.covariates.points import HALF_TESTS, MEMORY, NEAREST
from geogp.geodata.tiles.quadkeys import EARTH_RADIUS_KM


def made_points(n=300, seed=0):
    """Points of two quarters with a smooth value, and a level that differs between quarters."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "longitude": np.repeat(random.uniform(-66.5, -66.0, n // 2), 2),
            "latitude": np.repeat(random.uniform(18.0, 18.4, n // 2), 2),
            "quarter": np.tile(["2022Q3", "2023Q3"], n // 2),
            "tests": random.integers(1, 20, n),
        }
    )
    smooth = np.sin(20 * table.longitude) + np.cos(20 * table.latitude)
    jump = np.where(table.quarter == "2022Q3", 0.0, 5.0)
    return table.assign(value=smooth + jump + 0.1 * random.standard_normal(n))


def kilometres(one, other):
    """The chord between two places in degrees."""
    a, b = np.deg2rad(one), np.deg2rad(other)
    east, north = np.sin((a - b) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.sqrt(north + math.cos(a[1]) * math.cos(b[1]) * east)


def slowly_kriged(table, place, quarter, model):
    """Simple kriging at one place, place by place, from all formulas of the module."""
    level = table.groupby("quarter").value.mean()
    index = {"2022Q3": 8090, "2023Q3": 8094}
    means, weights, places = [], [], []
    for where, rows in table.groupby(["longitude", "latitude"]):
        own = [
            row.tests
            / (row.tests + HALF_TESTS)
            * math.exp(-abs(index[row.quarter] - index[quarter]) / MEMORY)
            for row in rows.itertuples()
        ]
        deviation = [row.value - level[row.quarter] for row in rows.itertuples()]
        places.append(where)
        weights.append(sum(own))
        means.append(sum(w * a for w, a in zip(own, deviation, strict=True)) / sum(own))
    near = sorted(range(len(places)), key=lambda i: kilometres(places[i], place))[:NEAREST]
    s2, length, noise = model
    K = np.array(
        [[s2 * math.exp(-kilometres(places[i], places[j]) / length) for j in near] for i in near]
    )
    K += np.diag([noise * s2 / weights[i] for i in near])
    k = np.array([s2 * math.exp(-kilometres(places[i], place) / length) for i in near])
    share = np.linalg.solve(K, k)
    return share @ [means[i] for i in near], math.sqrt(s2 - share @ k)


def test_points_are_kriged_from_near_places_and_near_quarters():
    table = made_points()
    covariate = read_covariate(table)
    asked = [(-66.2, 18.2), (-66.31, 18.05), (table.longitude[0], table.latitude[0])]
    found = covariate.at(*np.transpose(asked), ["2023Q3"] * 3)
    for place, value, sd in zip(asked, *found, strict=True):
        expected = slowly_kriged(table, place, "2023Q3", covariate.model)
        assert (value, sd) == pytest.approx(expected, rel=1e-6)


def test_far_from_all_points_a_value_is_the_mean_and_as_uncertain_as_ever():
    covariate = read_covariate(made_points())
    found = covariate.at([10.0], [50.0])
    assert found.value == pytest.approx(0, abs=1e-9)
    assert found.sd == pytest.approx(covariate.prior_sd)
    assert found.sd > covariate.at([-66.2], [18.2]).sd


def test_kriging_predicts_points_that_it_has_not_seen():
    table = made_points(600)
    kept = table.index < 500
    found = read_covariate(table[kept]).at(
        table.longitude[~kept], table.latitude[~kept], table.quarter[~kept]
    )
    truth = table.value - table.groupby("quarter").value.transform("mean")
    errors = truth[~kept] - found.value
    assert errors.std() < 0.5 * truth.std()
    inside = np.abs(errors) < 1.96 * np.hypot(found.sd, 0.1)
    assert 0.85 < inside.mean() <= 1


def test_quarters_are_labels_periods_or_indices():
    table = made_points()
    covariate = read_covariate(table)
    place = [-66.2], [18.2]
    label = covariate.at(*place, ["2022Q3"])
    assert label == covariate.at(*place, pd.PeriodIndex(["2022Q3"], freq="Q"))
    assert label == covariate.at(*place, [8090])
    assert label != covariate.at(*place, ["2023Q3"])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_points_come_from_files(tmp_path, ending):
    table, path = made_points(), tmp_path / f"points{ending}"
    table.to_csv(path) if ending == ".csv" else table.to_parquet(path)
    place = [-66.2], [18.2], ["2022Q3"]
    expected = np.array(read_covariate(table).at(*place))
    assert np.array(read_covariate(path).at(*place)) == pytest.approx(expected)


def write_raster(path, cells, *, crs=32161, nodata=-1.0, **more):
    """Write a raster of cells of 1 km whose corner is near Puerto Rico's."""
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=cells.shape[0],
        width=cells.shape[1],
        count=more.pop("count", 1),
        dtype=cells.dtype,
        crs=crs,
        transform=more.pop("transform", rasterio.Affine(1000, 0, 150_000, 0, -1000, 260_000)),
        nodata=nodata,
        **more,
    ) as raster:
        raster.write(cells, 1)
    return path


def slowly_between(cells, column, row):
    """Bilinear interpolation at one position between the centres of cells; -1 is no data."""
    total = weight = 0.0
    for i in range(cells.shape[1]):
        for j in range(cells.shape[0]):
            share = max(0.0, 1 - abs(column - i)) * max(0.0, 1 - abs(row - j))
            if cells[j, i] != -1:
                total += share * cells[j, i]
                weight += share
    return total / weight if weight else math.nan


def test_a_raster_is_read_bilinearly_in_its_own_crs(tmp_path):
    from pyproj import Transformer

    random = np.random.default_rng(0)
    cells = random.uniform(1, 2, (12, 15))
    cells[3:6, 4:8] = -1
    covariate = read_covariate(write_raster(tmp_path / "height.tif", cells))
    x = 150_000 + random.uniform(-1500, 16_500, 200)
    y = 260_000 - random.uniform(-1500, 13_500, 200)
    to_degrees = Transformer.from_crs(32161, 4326, always_xy=True)
    found = covariate.at(*to_degrees.transform(x, y))
    column, row = (x - 150_000) / 1000 - 0.5, (260_000 - y) / 1000 - 0.5
    expected = [slowly_between(cells, *place) for place in zip(column, row, strict=True)]
    assert found.value == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert 10 < np.isnan(found.value).sum() < 100
    assert np.isnan(found.sd).all()


def test_files_that_are_refused(tmp_path):
    points, cells = made_points(), np.ones((3, 4))
    points.drop(columns="value").to_csv(tmp_path / "no.csv")
    points.assign(value="a").to_csv(tmp_path / "text.csv")
    points.assign(value=1.0).to_csv(tmp_path / "same.csv")
    points.assign(latitude=100.0).to_csv(tmp_path / "metres.csv")
    points.assign(quarter="last year").to_csv(tmp_path / "when.csv")
    points.assign(value=1e300 * points.value).to_csv(tmp_path / "huge.csv")
    points.assign(longitude=-66.0, latitude=18.0).to_csv(tmp_path / "place.csv")
    points[:0].to_csv(tmp_path / "empty.csv")
    (tmp_path / "nothing.csv").touch()
    (tmp_path / "other.tif").write_text("II, but not a TIFF")
    write_raster(tmp_path / "bare.tif", cells, crs=None)
    write_raster(tmp_path / "bands.tif", cells, count=2)
    (tmp_path / "cut.tif").write_bytes((tmp_path / "bare.tif").read_bytes()[:60])
    for name, match in {
        "no.csv": "has no column for value; its columns are",
        "huge.csv": r"expected finite numbers up to 1e\+30 .* found 300 other values",
        "place.csv": r"place\.csv cannot be used as a covariate: .* found 300 points at 1 places",
        "empty.csv": "expected from 1 to 5,000,000 points",
        "nothing.csv": "expected a row with the names of the columns",
        "text.csv": "300 bad rows of 300(?s:.*)no number in the column value, such as 'a'",
        "same.csv": "expected points with different values at two places or more",
        "metres.csv": "300 bad rows of 300(?s:.*)expected latitudes",
        "when.csv": "expected quarters such as 2023Q4",
        "other.tif": "is not a GeoTIFF",
        "bare.tif": "has no CRS",
        "bands.tif": "expected a raster of one band .* found 2",
        "cut.tif": "cannot be read as a GeoTIFF",
    }.items():
        with pytest.raises(DataError, match=match):
            read_covariate(tmp_path / name)
    (tmp_path / "folder.tif").mkdir()
    for name in ("none.tif", "points.xlsx", "folder.tif"):
        with pytest.raises(RequestError, match=r"ends in \.tif, .*found .*not a file"):
            read_covariate(tmp_path / name)


def test_rows_without_a_value_are_left_out(tmp_path):
    points = made_points()
    points.loc[[0, 7], "value"] = np.nan, np.inf
    points.to_csv(tmp_path / "gaps.csv", sep=";", index=False)
    with pytest.warns(UserWarning, match=r"left out of gaps\.csv, no .*value"):
        found = read_covariate(tmp_path / "gaps.csv")
    assert found.rows == 298
    expected = read_covariate(points.drop(index=[0, 7]))
    assert found.at([-66.2], [18.2]).value == expected.at([-66.2], [18.2]).value
    with pytest.raises(DataError, match=r"expected finite numbers .* 2 other values"):
        read_covariate(points)


def test_quarters_far_from_all_points_count_as_the_nearest():
    covariate = read_covariate(made_points())
    place = [-66.2], [18.2]
    assert np.array(covariate.at(*place, ["2099Q1"])) == pytest.approx(
        np.array(covariate.at(*place, ["2023Q3"]))
    )
    assert np.isfinite(covariate.at(*place, [10**6])).all()


@pytest.mark.parametrize("quarter", [20234, 2023, 2023.0])
def test_quarters_of_points_are_no_numbers(quarter):
    with pytest.raises(DataError, match=r"2023Q4 in the column quarter of the table, found numb"):
        read_covariate(made_points().assign(quarter=quarter))


def test_one_quarter_is_of_all_places_and_other_numbers_are_refused():
    covariate, places = read_covariate(made_points()), ([-66.2, -66.3, -66.1], [18.2, 18.1, 18.3])
    expected = np.array(covariate.at(*places, ["2022Q3"] * 3))
    assert np.array(covariate.at(*places, "2022Q3")) == pytest.approx(expected)
    with pytest.raises(DataError, match="a quarter for each of 3 places, found 2"):
        covariate.at(*places, ["2022Q3", "2023Q3"])


def test_places_without_coordinates_have_no_value(tmp_path):
    height = write_raster(tmp_path / "height.tif", np.ones((20, 30)))
    for covariate in (read_covariate(made_points()), read_covariate(height)):
        found = covariate.at([np.nan, -66.75], [18.25, 18.25])
        assert np.isnan(found.value).tolist() == [True, False]
        assert covariate.at(-66.75, 18.25).value == pytest.approx(found.value[1:])


def test_files_beside_a_raster_do_not_change_it(tmp_path):
    path = write_raster(tmp_path / "height.tif", np.full((20, 30), 7.0))
    (tmp_path / "height.tif.aux.xml").write_text(
        '<PAMDataset><PAMRasterBand band="1"><Offset>1000</Offset><Scale>2</Scale>'
        "</PAMRasterBand></PAMDataset>"
    )
    with rasterio.open(path) as raster:
        assert raster.offsets == (1000.0,)
    assert read_covariate(path).at([-66.75], [18.25]).value == pytest.approx([7.0])


def test_large_blocks_of_a_raster_are_refused(tmp_path, monkeypatch):
    path = write_raster(tmp_path / "height.tif", np.ones((20, 30)))
    monkeypatch.setattr(rasters, "MAX_BLOCK_BYTES", 1000)
    with pytest.raises(DataError, match=r"has blocks of 4,800 bytes; expected at most 1,000"):
        read_covariate(path)


def test_longitudes_of_a_raster_may_run_from_0_to_360(tmp_path):
    path = tmp_path / "world.tif"
    cells = np.repeat(np.arange(36.0)[None], 18, axis=0)
    write_raster(
        path, cells, crs=4326, nodata=None, transform=rasterio.Affine(10, 0, 0, 0, -10, 90)
    )
    found = read_covariate(path).at([-65.0, 295.0, 15.0], [5.0, 5.0, 5.0])
    assert found.value == pytest.approx([29.0, 29.0, 1.0])


@pytest.mark.parametrize("marker", [3.4e38, -3.4e38])
def test_values_that_mark_missing_data_are_declared_or_refused(tmp_path, marker):
    cells = np.ones((30, 40), np.float32)
    cells[:10] = marker
    declared = read_covariate(write_raster(tmp_path / "a.tif", cells, nodata=cells[0, 0]))
    assert declared.at(-66.7, 18.15).value == 1
    with pytest.raises(DataError, match=r"up to 1e\+30 in .*b\.tif, .* declare it as the value"):
        read_covariate(write_raster(tmp_path / "b.tif", cells)).at(
            np.linspace(-66.8, -66.6, 200), np.full(200, 18.3)
        )


def test_means_of_equal_cells_are_equal(tmp_path):
    covariate = read_covariate(write_raster(tmp_path / "a.tif", np.full((30, 40), 0.7)))
    found = covariate.at(np.linspace(-66.8, -66.6, 99), np.linspace(18.15, 18.3, 99)).value
    assert set(found) == {0.7}


def test_values_below_the_normal_range_are_read_as_they_are(tmp_path):
    """An answer flushes denormal numbers to 0."""
    cells = np.full((30, 40), 1e-38, np.float32)
    covariate = read_covariate(write_raster(tmp_path / "a.tif", cells))
    torch.set_flush_denormal(True)
    try:
        found = covariate.at([-66.7], [18.2]).value
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_allclose(found, 1e-38, rtol=1e-6, atol=0)
