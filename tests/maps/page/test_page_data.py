"""The data of the page: what is decoded from it is the map, within the steps it states."""

import json
from dataclasses import replace

import numpy as np
import pytest
from maps_worlds import irregular_region, make_slices, make_world, smooth_prediction
from scipy.stats import norm
from shapely.geometry import MultiPolygon, Point, Polygon, box

from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.prediction import Prediction
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import DataError
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.thresholds import thresholds_of
from geogp.maps.frame import Frame
from geogp.maps.grid import build_grid
from geogp.maps.page import page_places
from geogp.maps.page.interactive_page import map_page, outlines, outlines_within
from geogp.maps.page.kernel_basis import coarser, kernel_basis
from geogp.maps.page.kernel_error import KernelFeatures
from geogp.maps.page.packing import text_bytes, unpack
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_places import (
    labelled_tiles,
    main_bounds,
    named_places,
    town_near,
    towns_on,
)
from geogp.maps.page.page_quantiles import (
    PAST_LEVELS,
    SHOWN_LEVELS,
    QuarterMap,
    choose_levels,
    normal_scores,
    pack_quantiles,
    pack_within,
    past_quantiles,
    probabilities,
    quantiles_of,
    slider_values,
    unpack_quantiles,
)
from geogp.maps.views import find_view


def halves(region, name="county"):
    west, south, east, north = region.bounds
    middle = (west + east) / 2
    shapes = (box(middle, south, east, north), box(west, south, middle, north))
    return PolygonLayer(name, ("East & <b>", "West"), shapes)


def content_of(world, **changes):
    coarse = coarser(world.tiles, world.tiles.zoom - 1)
    quarters = [
        QuarterMap("2023Q3", coarse, smooth_prediction(coarse, seed=2)),
        QuarterMap("2023Q4", world.tiles, world.prediction),
    ]
    options = {
        "region": world.region,
        "tiles": world.tiles,
        "title": "Isla: download speed",
        "predicted": "new measurements",
        "quarters": quarters,
        "shown": 1,
        "slices": make_slices(world.tiles),
        "thresholds": thresholds_of("download"),
        "counties": halves(world.region),
    }
    return PageContent(**(options | changes))


@pytest.fixture(scope="module")
def data(world):
    return json.loads(json.dumps(page_data(world.grid, content_of(world)), allow_nan=False))


def at_tiles(raster, tiles):
    return raster[(..., *Frame.of_tiles(tiles).pixels(tiles))]


def test_quantiles_are_those_of_the_prediction_within_half_a_step(world, data):
    found = at_tiles(unpack_quantiles(data["quantiles"], data["levels"]), world.tiles)
    for level, values in zip(data["levels"], found, strict=True):
        expected = world.prediction.mean + norm.ppf(level) * world.prediction.sd
        assert np.abs(values - expected).max() <= data["steps"]["quantile_log10"] * 0.50001
    tiles = coarser(world.tiles, 13)
    past = smooth_prediction(tiles, seed=2)
    assert data["past"]["frame"]["zoom"] == tiles.zoom
    middle, lower, more = (at_tiles(unpack(one)[0], tiles) for one in data["past"]["quantiles"])
    for score, values in ((-1, middle - lower), (0, middle), (1, middle + lower + more)):
        expected = past.mean + score * norm.ppf(0.975) * past.sd
        assert np.abs(values - expected).max() <= data["steps"]["past_quantile_log10"] * 0.50001


def test_another_quarter_has_the_shape_of_the_shown_distribution():
    levels = (0.025, 0.05, 0.5, 0.8, 0.975)
    shown = Prediction(np.array([1.0, 2.0]), np.array([0.1, 0.2]), np.array([0.3, 0.1]))
    other = Prediction(np.array([1.5, 1.0]), np.array([0.3, 0.4]), np.array([0.2, 0.9]))
    ends = quantiles_of(other, PAST_LEVELS)
    found = past_quantiles(quantiles_of(shown, levels), levels, ends)
    np.testing.assert_allclose(found, quantiles_of(other, levels), rtol=1e-12)
    # A skewed distribution: twice as wide below, half as wide above.
    skewed = past_quantiles(
        np.array([[-2.0], [-1], [0], [1], [4]]), levels, np.array([[1.0], [5], [7]])
    )
    np.testing.assert_allclose(skewed[:, 0], [1, 3, 5, 5.5, 7])


def test_the_stated_error_of_probabilities_in_other_quarters_is_the_largest(world):
    prediction = student(smooth_prediction(world.tiles, seed=2), df=5.0)
    quarters = [
        QuarterMap("2023Q3", world.tiles, prediction),
        QuarterMap("2023Q4", world.tiles, student(world.prediction)),
    ]
    data = page_data(world.grid, content_of(world, quarters=quarters))
    shown = at_tiles(unpack_quantiles(data["quantiles"], data["levels"]), world.tiles)
    middle, lower, more = (
        at_tiles(unpack(one)[0], world.tiles) for one in data["past"]["quantiles"]
    )
    past = np.stack([middle - lower, middle, middle + lower + more])
    found = past_quantiles(shown, data["levels"], past)
    values = data["threshold"]["values"]
    met = probabilities(found, data["levels"], np.log10(values), at_most=False)
    exact = [prediction.exceedance(np.log10(value)) for value in values]
    assert data["steps"]["past_probability"] == pytest.approx(np.abs(met - exact).max(), abs=1e-9)


def test_the_layer_of_change_needs_quarters_with_tiles_of_one_size(world, data):
    """Between tiles of different sizes, the median also differs where nothing changed."""
    assert data["past"]["frame"]["zoom"] < data["frame"]["zoom"]
    assert "change" not in {layer["id"] for layer in data["layers"]}
    past = smooth_prediction(world.tiles, seed=2)
    quarters = [
        QuarterMap("2023Q3", world.tiles, past),
        QuarterMap("2023Q4", world.tiles, world.prediction),
    ]
    layers = page_data(world.grid, content_of(world, quarters=quarters))["layers"]
    (change,) = [layer for layer in layers if layer["id"] == "change"]
    expected = 100 * (10 ** (world.prediction.mean - past.mean) - 1)
    assert change["scale"]["low"] < np.percentile(expected, 10)
    assert change["scale"]["high"] > np.percentile(expected, 90)


def test_a_normal_law_needs_few_levels():
    mean = np.linspace(0, 2, 50)
    gaussian = Prediction(mean, np.full(50, 0.02), np.full(50, 0.05))
    assert choose_levels(gaussian, "lower") == (0.025, 0.05, 0.5, 0.975)
    assert choose_levels(gaussian, "upper") == (0.025, 0.5, 0.95, 0.975)


def student(prediction, df=2.2):
    shape = NormalPlusStudent(prediction.function_variance, prediction.noise_variance, df)
    return replace(prediction, shape=shape)


@pytest.mark.parametrize(("bound", "level"), [("lower", 0.05), ("upper", 0.95)])
def test_other_laws_have_every_level_that_is_shown(world, bound, level):
    levels = choose_levels(student(world.prediction), bound)
    assert levels == tuple(sorted(levels))
    assert {*SHOWN_LEVELS, level} <= set(levels)
    assert len(levels) <= 11


def test_every_end_of_an_interval_is_within_half_a_step_whatever_the_law(world):
    prediction = student(world.prediction)
    quarter = QuarterMap("2023Q4", world.tiles, prediction)
    found = page_data(world.grid, content_of(world, quarters=[quarter], shown=0))
    levels, steps = found["levels"], found["steps"]
    values = at_tiles(unpack_quantiles(found["quantiles"], levels), world.tiles)
    for level in (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975):
        error = np.abs(values[levels.index(level)] - prediction.quantile(level)).max()
        assert error <= steps["quantile_log10"] * 0.50001
    # Student-t tails are bent on the scale of normal scores.
    assert steps["probability"] < 0.008


def test_normal_scores_are_exact_for_normal_laws_even_beyond_the_ends():
    mean, sd = np.array([0.5, 1.0]), np.array([0.2, 0.5])
    levels = (0.025, 0.05, 0.5, 0.975)
    quantiles = mean + sd * norm.ppf(levels)[:, None]
    at = np.linspace(-2, 4, 25)[:, None]
    np.testing.assert_allclose(normal_scores(quantiles, levels, at), (at - mean) / sd, atol=1e-9)
    met = probabilities(quantiles, levels, [0, 1], at_most=False)
    np.testing.assert_allclose(met, norm.sf((np.array([[0.0], [1.0]]) - mean) / sd), atol=1e-9)
    kept = probabilities(quantiles, levels, [0, 1], at_most=True)
    np.testing.assert_allclose(met + kept, 1)


def test_the_stated_error_of_probabilities_is_the_largest(world, data):
    p, threshold = world.prediction, data["threshold"]
    quantiles = at_tiles(unpack_quantiles(data["quantiles"], data["levels"]), world.tiles)
    values = np.log10(threshold["values"])
    found = probabilities(quantiles, data["levels"], values, at_most=False)
    exact = norm.sf((values[:, None] - p.mean) / p.sd)
    assert data["steps"]["probability"] == pytest.approx(np.abs(found - exact).max(), abs=1e-9)
    assert 0 < data["steps"]["probability"] < 0.005
    assert data["steps"]["probability_tiles"] == len(world.tiles)


def test_the_slider_has_the_thresholds_of_the_run_and_spans_the_predictions(world, data):
    values, p = data["threshold"]["values"], world.prediction
    assert values == sorted(set(values))
    assert {7, 35, 100} <= set(values)
    middle = np.median(p.mean)
    nearest = min((7, 35, 100), key=lambda value: abs(np.log10(value) - middle))
    assert data["threshold"]["shown"] == nearest
    assert not data["threshold"]["at_most"]
    low = np.percentile(p.mean - 1.96 * p.sd, 1)
    high = np.percentile(p.mean + 1.96 * p.sd, 99)
    assert values[0] <= 10**low < values[2]
    assert values[-2] < 10**high <= values[-1]


@pytest.mark.parametrize(("low", "high"), [(3.0, 4.0), (0.01, 9000.0), (1e-3, 1e5), (50.0, 50.0)])
def test_slider_values_are_round_and_few(low, high):
    values = slider_values(low, high, thresholds_of("latency"))
    assert values[0] <= low
    assert values[-1] >= high
    assert {50.0, 100.0} <= set(values)
    assert len(values) <= 42
    assert all(float(f"{value:.2g}") == value for value in values)


def test_latency_asks_for_at_most(latency_world):
    quarter = QuarterMap("2023Q4", latency_world.tiles, latency_world.prediction)
    content = content_of(
        latency_world,
        quarters=[quarter],
        shown=0,
        slices=[],
        thresholds=thresholds_of("latency"),
        counties=None,
    )
    found = page_data(latency_world.grid, content)
    assert found["bound"] == "upper"
    assert found["threshold"]["at_most"]
    layers = {layer["id"]: layer for layer in found["layers"]}
    assert layers["bound"]["source"] == {"quantile": 0.95}
    assert "at most" in layers["bound"]["label"]
    assert found["names"] == {"stratum": [], "county": []}  # neither urban areas nor counties
    assert set(found["arrays"]) == {"tests", "far"}
    assert {place["kind"] for place in found["places"]} == {"town"}
    assert found["slices"] == []
    assert found["kernel"] is None


def test_layers_show_what_they_say(world):
    past = QuarterMap("2023Q3", world.tiles, smooth_prediction(world.tiles, seed=2))
    quarters = [past, QuarterMap("2023Q4", world.tiles, world.prediction)]
    data = page_data(world.grid, content_of(world, quarters=quarters))
    layers = {layer["id"]: layer for layer in data["layers"]}
    speeds = ["level", "bound", "width", "probability", "tests", "change"]
    expected = [*speeds, "slice-0", "slice-1", "slice-2"]
    assert list(layers) == expected
    assert layers["bound"]["source"] == {"quantile": 0.05}
    assert "19 of 20" in layers["bound"]["hint"]
    assert layers["level"]["source"]["quantile"] in data["levels"]
    assert set(layers["width"]["source"]["width"]) <= set(data["levels"])
    lower = 10 ** world.prediction.quantile(0.05)
    assert layers["bound"]["scale"]["low"] <= np.percentile(lower, 1)
    for name in speeds:
        scale = layers[name]["scale"]
        assert len(scale["colours"]) == 96
        assert scale["ticks"][0] == scale["low"] < scale["high"] == scale["ticks"][-1]


def test_arrays_are_those_of_the_grid(world, data):
    tests = unpack(data["arrays"]["tests"])
    # All rows are counted, those of the test split as well.
    assert "training" not in world.grid["tests"].attrs["long_name"]
    (layer,) = (one for one in data["layers"] if one["id"] == "tests")
    assert "made from" not in layer["hint"]
    np.testing.assert_array_equal(np.nan_to_num(tests, nan=-1), world.grid["tests"].values)
    far = at_tiles(unpack(data["arrays"]["far"]), world.tiles)
    np.testing.assert_array_equal(far, world.distance_km > 5)
    stratum = at_tiles(unpack(data["arrays"]["stratum"]), world.tiles).astype(int)
    np.testing.assert_array_equal(np.array(data["names"]["stratum"])[stratum], world.stratum)
    assert np.isnan(unpack(data["arrays"]["stratum"])).sum() == (tests.size - len(world.tiles))


def test_many_tests_are_kept_to_the_one(world):
    """Fixed broadband has tiles of hundreds of thousands of tests at coarse zooms."""
    tests = world.grid["tests"].copy()
    inside = tests.values >= 0
    tests.values[inside] = np.arange(inside.sum()) % 7
    tests.values[tuple(np.argwhere(inside)[0])] = 1_234_567
    found = page_data(world.grid.assign(tests=tests), content_of(world))
    np.testing.assert_array_equal(unpack(found["arrays"]["tests"])[inside], tests.values[inside])
    assert found["steps"]["tests"] == 1


def test_counties_are_those_that_hold_the_tiles(world, data):
    numbers = at_tiles(unpack(data["arrays"]["county"]), world.tiles).astype(int)
    west, _, east, _ = world.region.bounds
    expected = np.where(world.tiles.centres[0] > (west + east) / 2, "East & <b>", "West")
    np.testing.assert_array_equal(np.array(data["names"]["county"])[numbers], expected)


def test_tiles_of_no_county_have_none(world):
    west, south, *_ = world.region.bounds
    layer = PolygonLayer("county", ("Far", "West"), (box(0, 0, 1, 1), box(west, south, -66.5, 20)))
    numbers, names = labelled_tiles(layer, world.region, world.tiles)
    assert names == ["West"]
    np.testing.assert_array_equal(np.isnan(numbers), world.tiles.centres[0] > -66.5)


def test_table_and_page_have_the_same_county_looked_up_once(world, monkeypatch):
    west, south, *_ = world.region.bounds
    layer = PolygonLayer("county", ("Far", "West"), (box(0, 0, 1, 1), box(west, south, -66.5, 20)))
    content = content_of(world, counties=layer)
    asked = []
    index = PolygonLayer.index
    monkeypatch.setattr(PolygonLayer, "index", lambda *points: asked.append(1) or index(*points))
    data = page_data(world.grid, content)
    names = content.county_names
    assert len(asked) == 1
    assert set(names) == {"West", None}
    numbers = at_tiles(unpack(data["arrays"]["county"]), world.tiles)
    np.testing.assert_array_equal(np.isnan(numbers), names == None)  # noqa: E711


def test_slices_are_within_half_a_step(world, data):
    for packed, one in zip(data["slices"], make_slices(world.tiles), strict=True):
        found = at_tiles(unpack(packed), world.tiles)
        assert np.abs(found - one.values).max() <= data["steps"]["slice"] * 0.50001
        assert data["steps"]["slice"] < 0.005 * 0.3


def test_the_kernel_is_stated_with_its_error(world):
    def features(tiles):
        longitude, latitude = tiles.centres
        return np.column_stack([np.ones(len(tiles)), longitude + 66.5, latitude - 18.2])

    model = KernelFeatures(features, lambda one, two: features(one) @ features(two).T)
    basis = kernel_basis(world.tiles, model)
    found = page_data(world.grid, content_of(world, kernel=basis))["kernel"]
    assert found["components"]["shape"][0] == 3
    assert found["error"] == basis.error < 0.005
    assert found["unit"] == "(log10)²"


def test_places_have_their_bounds_within_the_region(world, data):
    assert [place["name"] for place in data["places"][:3]] == ["East & <b>", "West", "Ponce"]
    south, west, north, east = data["places"][1]["bounds"]
    edges = world.region.bounds
    assert (west, south) == (pytest.approx(edges[0], abs=1e-4), pytest.approx(edges[1], abs=1e-4))
    assert east == pytest.approx((edges[0] + edges[2]) / 2, abs=1e-4)
    assert north == pytest.approx(edges[3], abs=1e-4)


def test_the_place_of_a_polygon_is_in_its_largest_part_on_land():
    land = box(0, 10, 1, 11).union(box(3, 10, 3.5, 11))
    region = Region.from_geometry("L", "Land", land)
    bay = Polygon([(0.1, 10.1), (0.9, 10.1), (0.9, 10.9), (0.8, 10.9), (0.8, 10.2), (0.1, 10.2)])
    shape = MultiPolygon([bay, box(3.4, 10, 9, 11)])  # the larger part is mostly in the sea
    (place,) = named_places(region, [PolygonLayer("county", ("A",), (shape,))])
    assert bay.contains(Point(*place["at"][::-1]))


def test_a_far_island_without_tests_is_not_in_the_first_view():
    frame = Frame(10, 100, 200, 60, 12)
    tests = np.full((12, 60), np.nan)
    tests[1:11, 30:50] = 0  # the mainland: 200 tiles
    tests[2:10, 32:48] = 3
    tests[4:6, 56:58] = 0  # an island nearby, measured
    tests[4, 56] = 5
    tests[8, 2] = 0  # one far away
    south, west, north, east = main_bounds(tests, frame)
    assert west == pytest.approx(Frame(10, 130, 201, 1, 1).bounds[0])
    assert east == pytest.approx(Frame(10, 157, 201, 1, 1).bounds[2])
    assert frame.bounds[1] < south < north < frame.bounds[3]
    tests[8, 2] = 1000
    assert main_bounds(tests, frame)[1] == west  # one tile of many that are measured
    tests[6:11, 1:4] = 2
    assert main_bounds(tests, frame)[1] == pytest.approx(Frame(10, 101, 201, 1, 1).bounds[0])


def test_the_first_view_of_a_region_without_tests_and_of_corners_that_touch():
    frame = Frame(10, 100, 200, 5, 5)
    tests = np.where(np.eye(5) > 0, 0.0, np.nan)
    south, west, north, east = main_bounds(tests, frame)
    assert (west, south, east, north) == pytest.approx(frame.bounds)
    with pytest.raises(DataError, match="at least one tile in the region"):
        main_bounds(np.full((2, 2), np.nan), frame)


def test_the_first_view_is_in_the_data(world, data):
    tests = world.grid["tests"].to_numpy().astype(float)
    tests[tests < 0] = np.nan
    assert data["view"] == main_bounds(tests, Frame(**data["frame"]))


def test_places_beyond_the_antimeridian_follow_the_region():
    both = box(170, 50, 180, 55).union(box(-180, 50, -160, 55))
    region = Region.from_geometry("AK", "Far islands", both)
    layer = PolygonLayer(
        "county", ("West", "East"), (box(171, 51, 175, 52), box(-170, 51, -169, 52))
    )
    places = {place["name"]: place["bounds"] for place in named_places(region, [layer, None])}
    assert places["West"] == [51, -189, 52, -185]
    assert places["East"] == [51, -170, 52, -169]


def test_towns_are_those_on_the_tiles_of_a_region_beyond_the_antimeridian_too():
    both = box(177, -19, 180, -16).union(box(-180, -19, -178, -16))
    region = Region.from_geometry("FJ", "Fiji", both)
    towns, left_out = towns_on(region.tiles(10), region, None)
    found = {one["name"]: one["bounds"] for one in towns}
    assert found["Suva"] == pytest.approx([-18.14, 178.44 - 360] * 2, abs=0.02)
    assert found["Savusavu"] == pytest.approx([-16.78, 179.34 - 360] * 2, abs=0.01)
    assert (len(towns), left_out) == (len(found), "")
    sea = Region.from_geometry("SEA", "Sea", box(-41, 30, -40, 31))
    assert towns_on(sea.tiles(10), sea, None) == ([], "")


def test_a_page_has_the_largest_towns_and_tells_equal_names_apart(world, monkeypatch):
    county = np.where(world.tiles.centres[0] < -66.5, "West", None)
    towns, left_out = towns_on(world.tiles, world.region, county)
    assert [one["name"] for one in towns[:2]] == ["Ponce", "Caguas"]
    assert (len(towns), left_out) == (100, "")
    twice = [one["kind"] for one in towns if one["name"] == "Palomas"]
    assert twice == ["town in West", "town"]  # no county has the tile of the second
    assert sum(one["kind"] != "town" for one in towns) == 1
    monkeypatch.setattr(page_places, "MAX_TOWNS", 3)
    told = " It names the largest 3 of 100 towns."
    assert towns_on(world.tiles, world.region, county) == (towns[:3], told)


def test_no_real_town_lies_in_an_invented_region(world):
    region = replace(world.region, invented=True)
    assert towns_on(world.tiles, region, None) == ([], "")
    data = page_data(world.grid, content_of(world, region=region))
    assert {place["kind"] for place in data["places"]} == {"county"}
    page = map_page(data, region)
    assert not [name for name in ("GeoNames", "OpenStreetMap", "cartocdn") if name in page]
    assert "GeoNames" in map_page(page_data(world.grid, content_of(world)), world.region)


def test_an_area_has_the_name_of_its_largest_town_or_of_one_nearby():
    def name_of(west, south, east, north, **changes):
        region = Region.from_geometry("own", "Own", box(west, south, east, north))
        return town_near(replace(region, **changes))

    assert name_of(-66.3, 18.1, -65.9, 18.5) == "San Juan"
    assert name_of(-66.3, 18.1, -65.9, 18.5, invented=True) is None
    assert name_of(-66.06, 18.19, -66.05, 18.195) == "Caguas"  # some km south of the town
    assert name_of(-40, 20, -39, 21) is None  # in the Atlantic


def test_gaps_do_not_add_their_errors_up():
    tiles = Tiles(np.arange(400) % 20, np.arange(400) // 20, 12)
    random = np.random.default_rng(0)
    levels = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
    quantiles = np.sort(random.normal(size=(len(levels), 400)), axis=0)
    packed = pack_quantiles(tiles, quantiles, levels, 0.01)
    found = at_tiles(unpack_quantiles(packed, levels), tiles)
    assert np.abs(found - quantiles).max() <= 0.00501
    assert [plane.get("gap", False) for plane in packed] == [True] * 4 + [False] + [True] * 3
    assert {plane["bits"] for plane in packed} == {8, 16}  # some gaps are wider than 2.55


def test_steps_grow_until_the_bytes_are_kept():
    tiles = Tiles(np.arange(10_000) % 100, np.arange(10_000) // 100, 12)
    random = np.random.default_rng(0)
    quantiles = np.sort(random.normal(size=(3, 10_000)), axis=0)
    levels = (0.025, 0.5, 0.975)

    def pack(step):
        return pack_quantiles(tiles, quantiles, levels, step)

    fine = pack_within(pack, 10**7)
    coarse = pack_within(pack, int(text_bytes(fine) * 0.8))
    assert fine[0]["step"] == 0.002 < coarse[0]["step"]
    assert text_bytes(coarse) <= text_bytes(fine) * 0.8


def test_quantiles_in_chunks_are_those_at_once():
    n = 150_000
    prediction = Prediction(np.linspace(0, 1, n), np.full(n, 0.1), np.linspace(0.1, 0.2, n))
    found = quantiles_of(prediction, [0.05, 0.5])
    np.testing.assert_array_equal(found[0], prediction.quantile(0.05))


def test_numbers_of_tests_have_arrays_for_each_quarter():
    region = irregular_region()
    tiles = region.tiles(14)
    world = make_world(region, 14)
    n = len(tiles)
    counts = predict_counts(np.linspace(-3, 3, n), np.full(n, 0.2), np.full(n, 0.5))
    grid = build_grid(
        region,
        tiles,
        counts,
        target="tests",
        distance_km=world.distance_km,
        far_km=5.0,
        measured=world.measured,
    )
    coarse = coarser(tiles, 13)
    past = predict_counts(np.zeros(len(coarse)), np.ones(len(coarse)), np.zeros(len(coarse)))
    content = content_of(
        world,
        quarters=[QuarterMap("2023Q3", coarse, past), QuarterMap("2023Q4", tiles, counts)],
        thresholds=(),
    )
    found = json.loads(json.dumps(page_data(grid, content), allow_nan=False))
    assert found["levels"] is found["threshold"] is None
    for packed, of, at, steps in (
        (found["arrays"], counts, tiles, found["steps"]),
        (found["past"]["arrays"], past, coarse, None),
    ):
        lower, upper = of.interval(0.95)
        expected = {"expected": of.mean, "lower": lower, "upper": upper, "none": of.cdf(0.0)}
        for name, values in expected.items():
            decoded = at_tiles(unpack(packed[name])[0], at)
            step = packed[name]["step"]
            assert np.abs(decoded - values).max() <= step * 0.50001
            assert steps is None or steps[name] == step
    ids = [layer["id"] for layer in found["layers"]][:5]
    assert ids == ["expected", "lower", "upper", "none", "tests"]
    assert found["kernel"] is None


def test_the_scales_are_those_of_the_figures(world, data):
    layers = {layer["id"]: layer.get("scale") for layer in data["layers"]}
    for name, view in (("level", "median"), ("width", "width")):
        scale = find_view(world.grid, view).scale(world.grid)
        assert (layers[name]["low"], layers[name]["high"]) == (scale.low, scale.high)
        assert layers[name]["ticks"] == list(scale.ticks)


def test_the_measured_averages_are_in_the_order_of_the_cells(world):
    tests = world.measured > 0
    values = np.vstack([np.full(tests.sum(), np.nan), 1.0 + np.arange(tests.sum())])
    found = unpack(page_data(world.grid, content_of(world, measured=values))["measured"])
    assert np.isnan(found[0]).all()
    raster = Frame.of_tiles(world.tiles).place(world.tiles[tests], values[1], np.nan)
    np.testing.assert_allclose(found[1], np.log10(raster[np.isfinite(raster)]), atol=0.00251)


def test_a_prediction_of_other_tiles_is_refused(world):
    content = content_of(world)
    short = replace(content, slices=[replace(one, values=one.values[1:]) for one in content.slices])
    with pytest.raises(DataError, match="kernel values, one per tile"):
        page_data(world.grid, short)


def test_outlines_of_neighbours_share_their_border():
    angle = np.linspace(0, 1, 200)
    border = np.column_stack([0.02 * np.sin(40 * angle), angle])
    left = box(-1, 0, 0, 1).union(Polygon([(-0.5, 0), *border, (-0.5, 1)]))
    right = box(-1, 0, 1, 1).difference(left)
    for tolerance in (1e-3, 0.01):
        lines = outlines([left, right], tolerance)
        # Left, right and the border between: no stretch of the border twice.
        assert len(lines) == 3
        ends = {tuple(line[k]) for line in lines for k in (0, -1)}
        assert len(ends) == 2
    assert sum(map(len, outlines([left, right], 0.05))) < sum(map(len, lines))


def test_no_border_runs_between_the_halves_of_one_polygon():
    halves = MultiPolygon([box(-1, 0, 0, 1), box(0, 0, 1, 1)])
    (ring,) = outlines([halves], 1e-3)
    corners = {tuple(point) for point in ring}
    assert corners == {(0.0, -1.0), (1.0, -1.0), (1.0, 1.0), (0.0, 1.0)}


def test_outlines_keep_within_bytes_and_say_how_coarse_they_are():
    rings = [Point(k, 0).buffer(0.4, quad_segs=400) for k in range(10)]
    lines, tolerance = outlines_within(rings, 8000)
    assert len(json.dumps(lines)) <= 8000
    assert tolerance > 1e-4
    for line in lines:
        latitude, longitude = np.array(line).T
        radius = np.hypot(latitude, longitude - np.round(longitude.mean()))
        assert np.abs(radius - 0.4).max() < tolerance + 1e-4
    assert outlines([], 0.1) == []
