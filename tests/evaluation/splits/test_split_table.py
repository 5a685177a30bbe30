"""Splits of tables: as `geogp map` splits tiles, and by hashes and cells of points anywhere."""

import numpy as np
import pandas as pd
import pytest

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.point_splits import MIN_CELLS, point_cells, validation_part
from geogp.evaluation.splits.row_parts import TEST
from geogp.evaluation.splits.split_rows import SplitRows, split_parts
from geogp.evaluation.splits.split_table import split
from geogp.geodata.tiles.quadkeys import (
    codes_to_tiles,
    format_quadkeys,
    tile_centres,
    tiles_to_codes,
)


@pytest.fixture(scope="module")
def tiles():
    random = np.random.default_rng(0)
    column, row = 20_000 + random.integers(0, 400, 3000), 30_000 + random.integers(0, 400, 3000)
    codes = np.unique(tiles_to_codes(column, row))
    longitude, latitude = tile_centres(*codes_to_tiles(codes))
    return pd.DataFrame(
        {
            "quadkey": format_quadkeys(codes),
            "longitude": longitude,
            "latitude": latitude,
            "quarter": pd.PeriodIndex(random.choice(["2022Q1", "2022Q2"], len(codes)), freq="Q"),
            "county": np.where(longitude < longitude.mean(), "west", "east"),
        }
    )


@pytest.fixture(scope="module")
def points():
    random = np.random.default_rng(1)
    return pd.DataFrame({"a": random.uniform(0, 3, 800), "b": random.uniform(0, 9, 800)})


@pytest.mark.parametrize("how", ["random", "tiles", "blocks", "latest"])
def test_tiles_are_split_as_a_map_splits_them(tiles, how):
    quarter = (tiles.quarter.dt.year * 4 + tiles.quarter.dt.quarter - 1).to_numpy(np.int64)
    column = tiles.quadkey.map(lambda text: int(text, 4)).to_numpy(np.uint64)
    place = tiles.longitude.to_numpy(), tiles.latitude.to_numpy()
    parts = split_parts(how, SplitRows(column, quarter, *place), 3)
    train, test = split(tiles, how, random_state=3)
    assert test.index.tolist() == tiles.index[parts == TEST].tolist()
    assert set(train.index) == set(tiles.index) - set(test.index)


def test_a_buffer_keeps_its_distance(tiles):
    train, test = split(tiles, "buffer", buffer_km=20.0)
    degrees = np.hypot(
        train.longitude.to_numpy()[:, None] - test.longitude.to_numpy(),
        train.latitude.to_numpy()[:, None] - test.latitude.to_numpy(),
    )
    assert degrees.min() > 20 / 111.3
    assert len(train) + len(test) < len(tiles)


@pytest.mark.parametrize("how", ["random", "tiles", "blocks"])
def test_the_part_of_a_row_does_not_depend_on_order(points, how):
    shuffled = points.sample(frac=1, random_state=2)
    one, other = (split(part, how, x="a", y="b")[1] for part in (points, shuffled))
    assert set(one.index) == set(other.index)
    assert 0 < len(one) < len(points) / 2


def test_seeds_and_folds_test_other_rows(points):
    found = [split(points, x="a", y="b", fold=fold)[1].index for fold in range(5)]
    assert sorted(np.concatenate(found)) == points.index.tolist()
    again = split(points, x="a", y="b", random_state=1)[1].index
    assert set(again) != set(found[0])


def test_places_without_quadkeys_are_held_out_with_all_their_times(points):
    """Coordinates are rounded to seven decimals, as in the random split."""
    known = points.round(6)
    when = {year: known.assign(year=year, a=known["a"] + 1e-9 * year) for year in range(3)}
    test = split(pd.concat(when), "tiles", x="a", y="b", time="year")[1]
    places = [set(test.loc[year].index) for year in range(3)]
    assert places[0] == places[1] == places[2]
    assert 0.06 < len(places[0]) / len(points) < 0.14


def test_rows_of_one_place_stay_together(points):
    twice = pd.concat([points, points], ignore_index=True)
    _, test = split(twice, "random", x="a", y="b")
    counts = test.groupby(["a", "b"]).size()
    assert (counts == 2).all()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_cells_suit_the_points(points, scale):
    """In any unit: enough cells, and several places in each."""
    place = scale * points.a.to_numpy(), scale * points.b.to_numpy()
    cells = len(np.unique(point_cells(*place, (0.1, 0.1)), axis=0))
    assert MIN_CELLS <= cells <= 800 / 4


def test_a_cell_of_ones_own(points):
    train, test = split(points, x="a", y="b", cell=1.0)
    cells = [set(map(tuple, np.floor(part.to_numpy()))) for part in (train, test)]
    assert not cells[0] & cells[1]


@pytest.mark.parametrize("how", ["random", "blocks"])
@pytest.mark.parametrize("n", [3, 20, 300])
def test_some_rows_validate_however_few(how, n):
    x, y = np.random.default_rng(n).uniform(0, 1, (2, n))
    found = validation_part(x, y, None, how=how, seed=0, side=(0.1, 0.1))
    assert 0 < found.rows.sum() <= max(1, n // 3)
    assert (found.cells is None) == (how == "random")
    if found.cells is not None:  # whole cells
        assert not set(found.cells[found.rows]) & set(found.cells[~found.rows])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"how": "half"}, RequestError, "unknown split 'half'"),
        ({"x": "c"}, RequestError, "column 'c' of coordinates"),
        ({"fold": 7}, RequestError, "5 folds"),
        ({"how": "county"}, RequestError, "boundaries of counties"),
        ({"how": "session"}, RequestError, "needs rows of drives, found none"),
        ({"how": "latest"}, RequestError, "needs 2 or more different quarters"),
        ({"random_state": None}, RequestError, "random_state"),
        ({"fold": 1.5}, RequestError, "fold"),
        ({"cell": 0}, RequestError, "cell above 0"),
        ({"how": "buffer", "buffer_km": -1}, RequestError, "buffer_km above 0"),
    ],
)
def test_what_is_refused(points, arguments, error, match):
    with pytest.raises(error, match=match):
        split(points, **{"x": "a", "y": "b", **arguments})


def test_points_at_one_place_are_refused():
    with pytest.raises(DataError, match="several places"):
        split(pd.DataFrame({"longitude": [1.0, 1.0], "latitude": [2.0, 2.0]}))
    with pytest.raises(DataError, match="finite"):
        split(pd.DataFrame({"longitude": [1.0, np.nan], "latitude": [2.0, 2.0]}))


def test_the_resolution_of_dates_does_not_matter(points):
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(len(points)), "h")
    found = [
        split(
            points.assign(when=pd.Series(dates).dt.as_unit(unit)),
            "random",
            x="a",
            y="b",
            time="when",
            random_state=np.int64(3),
        )[1].index.tolist()
        for unit in ("s", "us", "ns")
    ]
    assert found[0] == found[1] == found[2]


def test_rows_in_no_county_are_left_out(tiles):
    names = np.array([None, "a", "b", "c", "d"], object)
    some = tiles.assign(county=names[np.arange(len(tiles)) % 5])
    train, test = split(some, "county")
    assert len(train) + len(test) == some.county.notna().sum()


def test_whole_drives_are_held_out(points):
    drive = np.arange(len(points)) // 40
    train, test = split(
        points.assign(car=drive), "session", x="a", y="b", session="car", random_state=2
    )
    assert len(train) + len(test) == len(points)
    assert set(test["car"]).isdisjoint(train["car"])
    assert test["car"].nunique() == 4
    lacking = points.assign(car=np.where(drive == 3, np.nan, drive))
    with pytest.raises(DataError, match="expected a session in each row of 'car'"):
        split(lacking, "session", x="a", y="b", session="car")


def test_metres_have_no_buffer():
    metres = pd.DataFrame({"longitude": [1e5, 2e5], "latitude": [1e5, 3e5]})
    with pytest.raises(DataError, match="expected degrees"):
        split(metres, "buffer")
