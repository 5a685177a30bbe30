"""The pages of finished runs, checked against the other files of the same run.

A small run, one across the antimeridian and the demo's are made here; GEOGP_RUNS names folders of
others.
"""

import numpy as np
import pytest
import rasterio
import xarray as xr
from browser_acts import click, close, facts, number, serious
from browser_pages import DESKTOP, PHONE
from browser_runs import DEMO, GIVEN, MAKERS, Run, cells_of, places_of
from browser_values import assert_coloured, layer_of, place_of, quantile, values_of

from geogp.geodata.places.region import Tiles
from geogp.maps.page.kernel_error import random_places
from geogp.maps.page.packing import unpack
from geogp.maps.page.page_assets import page_scripts, page_styles

pytestmark = pytest.mark.trial

LEAFLET = sum(len(parts[0].encode()) for parts in (page_scripts(), page_styles()))

BUDGET = 6_000_000 + LEAFLET
"""Bytes of a page: those of its data and its own scripts, and Leaflet, which stands in each."""

READ = "async p => (await geogp.page.reader.read(L.latLng(p), geogp.page.state)).law"
KERNEL = """async ([p, cells]) => {
  const values = await geogp.page.pictures.painter.kernel.at(p);
  const told = cells ? cells.map(cell => values[cell]) : Array.from(values);
  return told.map(value => isNaN(value) ? null : value);
}"""
SCALE = "geogp.page.pictures.main.painted.scale"
WIDE = "() => [document.documentElement.scrollWidth, innerWidth]"
VIEW = """() => { const b = geogp.page.map.getBounds();
  return [b.getSouth(), b.getWest(), b.getNorth(), b.getEast()]; }"""

FLOAT32 = 1e-6
"""What rounding the grid to float32 may add to a log10."""


@pytest.fixture(scope="module", params=[*MAKERS, DEMO, *map(str, GIVEN)])
def run(request, runs):
    if request.param in {*MAKERS, DEMO}:
        return runs(request.param)
    return Run(next(path for path in GIVEN if str(path) == request.param))


def names(run, *prefixes):
    return [str(name) for name in run.grid.data_vars if str(name).startswith(prefixes)]


def test_the_page_is_within_its_size(run):
    assert (run.path / "map.html").stat().st_size < BUDGET


def test_every_tile_of_the_page_has_the_grids_values(run):
    data, inside = run.data, run.inside
    most = data["steps"]["quantile_log10"] / 2 + FLOAT32
    for level, name in ((0.5, "median"), (0.025, "lower"), (0.975, "upper")):
        found = quantile(data, data["shown"], level)
        np.testing.assert_array_equal(np.isfinite(found), inside)
        np.testing.assert_allclose(
            found[inside], np.log10(run.values(name)[inside]), rtol=0, atol=most
        )
    tests = run.grid["tests"].to_numpy()[inside]
    np.testing.assert_array_equal(unpack(data["arrays"]["tests"])[inside], tests)


def test_a_click_says_what_grid_and_model_hold(visit, run):
    seen, data, step = visit(run.page), run.data, run.data["steps"]["quantile_log10"]
    tests = run.grid["tests"].to_numpy()
    places = places_of(run)
    assert len(places) >= 7
    for kind, at in places.items():
        click(seen, place_of(data["frame"], *at))
        told = facts(seen)
        median, lower, upper = (run.values(name)[at] for name in ("median", "lower", "upper"))
        assert close(told[f"Median {data['subject']}"], median, step / 2), kind
        model = run.law(at)
        for share in (50, 80, 95):
            ends = told[f"{share} % interval"].split(" to ")
            for text, exact in zip(ends, model.interval(share / 100), strict=True):
                assert close(text, 10 ** exact[0], step / 2 + FLOAT32), (kind, share)
        assert number(told["Tests in this tile, all quarters"]) == tests[at], kind
        law = seen.evaluate(READ, seen.state["point"])
        found = [law["median"], law["intervals"][2]["low"], law["intervals"][2]["high"]]
        most = step / 2 + FLOAT32
        np.testing.assert_allclose(
            np.log10(found), np.log10([median, lower, upper]), rtol=0, atol=most
        )
        for one, share in zip(law["intervals"], (0.5, 0.8, 0.95), strict=True):
            exact = np.ravel(model.interval(share))
            ends = np.log10([one["low"], one["high"]])
            np.testing.assert_allclose(ends, exact, rtol=0, atol=most, err_msg=f"{kind} {share}")
        where = seen.inner_text(".geogp-where")
        if "urban" in run.grid:
            assert ("rural", "urban")[run.grid["urban"].to_numpy()[at]] in where
        assert data["quarters"][data["shown"]] in where


def test_the_probabilities_are_the_grids(visit, run):
    seen, data = visit(run.page), run.data
    side = "p_at_most" if data["threshold"]["at_most"] else "p_at_least"
    given = names(run, side)
    assert given
    for name in given:
        threshold = float(name.split("_")[3])
        assert threshold in data["threshold"]["values"]
        values = run.grid[name].to_numpy()
        seen.update(threshold=threshold)
        for kind, at in places_of(run, rounds=3).items():
            law = seen.evaluate(READ, list(place_of(data["frame"], *at)))
            most = data["steps"]["probability"] + FLOAT32
            assert abs(law["probability"] - values[at]) <= most, (name, kind)


def test_layers_have_the_colours_of_their_values(visit, run):
    seen, data = visit(run.page), run.data
    for layer in data["layers"]:
        seen.update(layer=layer["id"])
        values = values_of(data, layer["id"], data["shown"], data["threshold"]["shown"])
        assert_coloured(seen.picture(), np.where(run.inside, values, np.nan), seen.evaluate(SCALE))


def test_the_quarter_slider_changes_picture_and_card(visit, run):
    seen, data = visit(run.page), run.data
    quarters = data["quarters"]
    if len(quarters) == 1:
        assert seen.is_hidden("#geogp-quarter")
        return
    click(seen, place_of(data["frame"], *places_of(run)["measured 0"]))
    before, card = seen.picture(), facts(seen)
    seen.focus("#geogp-quarter-field")
    seen.keyboard.press("Home")
    seen.settle()
    assert seen.state["quarter"] == 0
    found = seen.picture()
    assert found != before
    assert_coloured(found, values_of(data, "level", 0), layer_of(data, "level")["scale"])
    assert quarters[0] in seen.inner_text(".geogp-where")
    assert facts(seen) != card
    seen.keyboard.press("ArrowRight")
    seen.settle()
    assert seen.picture()["data"] != found["data"]


def test_the_live_kernel_is_the_models(visit, run):
    """The reduced kernel from places anywhere in their tiles, against the model's own."""
    seen, data = visit(run.page), run.data
    kernel, model, region = data["kernel"], run.opened.model, cells_of(run.inside, run.frame)
    some = np.unique(np.linspace(0, len(region) - 1, 5000).astype(int))
    inputs = run.places(Tiles(region.column[some], region.row[some], region.zoom))
    chosen = random_places(region, np.random.default_rng(run.inside.sum()), 12)
    own = model.features(run.places(chosen))
    largest = max((model.features(inputs) ** 2).sum(axis=1).max(), (own**2).sum(axis=1).max())
    seen.update(layer="live")
    number_ = np.flatnonzero(run.inside)[some].tolist()
    for k in range(len(chosen)):
        place = [float(chosen.centres[1][k]), float(chosen.centres[0][k])]
        seen.update(point=place)
        found = np.array(seen.evaluate(KERNEL, [place, number_]), float)
        here = Tiles(chosen.column[[k]], chosen.row[[k]], chosen.zoom)
        exact = model.kernel(inputs, run.places(here))[:, 0]
        assert np.abs(found - exact).max() <= kernel["error"] * largest
    whole = np.array(seen.evaluate(KERNEL, [place, None]), float).reshape(run.inside.shape)
    np.testing.assert_array_equal(np.isfinite(whole), run.inside)
    assert_coloured(seen.picture(), whole, seen.evaluate(SCALE))


def test_the_fixed_slices_are_the_models(run):
    data = run.data
    tiles = cells_of(run.inside, run.frame)
    some = np.unique(np.linspace(0, len(tiles) - 1, 4000).astype(int))
    inputs = run.places(Tiles(tiles.column[some], tiles.row[some], tiles.zoom))
    question, model = run.opened.question, run.opened.model
    assert len(data["slices"]) == 3
    for number_, packed in enumerate(data["slices"]):
        point = layer_of(data, f"slice-{number_}")["point"]
        place = [np.array([point[name]]) for name in ("longitude", "latitude")]
        quarter = np.array([question.quarter])
        reference = run.opened.inputs.places.at(*place, quarter, provider=question.provider)
        exact = model.kernel(inputs, reference)[:, 0]
        found = unpack(packed)[run.inside][some]
        most = data["steps"]["slice"] / 2 + 1e-5 * np.abs(exact).max()
        np.testing.assert_allclose(found, exact, rtol=0, atol=most)


def test_the_search_finds_every_county(visit, run):
    seen, places = visit(run.page), run.data["places"]
    counties = [one for one in places if one["kind"] == "county"]
    assert [one["name"] for one in counties] == sorted(one["name"] for one in counties)
    found = seen.evaluate(
        "texts => texts.map(text => geogp.page.search.find(text).words)",
        [f"{one['name']}, {one['kind']}" for one in places],
    )
    assert found == [f"{one['name']}, {one['kind']}" for one in places]
    for one in counties[:: max(1, len(counties) // 6)]:
        seen.fill("#geogp-search-field", one["name"])
        seen.keyboard.press("Enter")
        south, west, north, east = seen.evaluate(VIEW)
        assert south <= one["bounds"][0] <= one["bounds"][2] <= north
        assert west <= one["bounds"][1] <= one["bounds"][3] <= east
        assert seen.inner_text("#geogp-search-answer") == f"The map shows {one['name']}, county."


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious_and_nothing_lies_aside(visit, run, npm, size):
    data = run.data
    seen = visit(run.page, size=size, touch=size is PHONE)
    wide = [size["width"]] * 2
    assert seen.evaluate(WIDE) == wide
    assert serious(seen, npm) == []
    point = place_of(data["frame"], *places_of(run)["measured 0"])
    seen.update(layer="probability", beside="width", point=point)
    seen.evaluate("document.getElementById('geogp-panel').open = true")
    assert seen.evaluate(WIDE) == wide
    assert serious(seen, npm) == []


def test_rasters_hold_the_grid(run):
    """GDAL and xarray read the same values, no data included, and the same places."""
    grid = run.grid
    rasters = {path.stem: path for path in run.path.glob("*.tif")}
    assert set(rasters) == {str(name) for name in grid.data_vars if grid[name].ndim == 2}
    for name, path in rasters.items():
        with rasterio.open(path) as raster:
            np.testing.assert_array_equal(raster.read(1), grid[name].to_numpy(), err_msg=name)
            assert raster.crs.to_epsg() == 3857
            middles = raster.xy(0, 0), raster.xy(raster.height - 1, raster.width - 1)
        y, x = grid["y"].to_numpy(), grid["x"].to_numpy()
        np.testing.assert_allclose(middles, [(x[0], y[0]), (x[-1], y[-1])], rtol=0, atol=1e-3)
    if (run.path / "grid.zarr").exists():
        with xr.open_zarr(run.path / "grid.zarr", mask_and_scale=False) as found:
            for name in grid.data_vars:
                np.testing.assert_array_equal(found[name].to_numpy(), grid[name].to_numpy())


def test_pictures_of_the_run_are_kept(visit, run, artefacts):
    data, name = run.data, run.path.name
    point = place_of(data["frame"], *places_of(run)["measured 0"])
    for kind, size in (("desktop", DESKTOP), ("phone", PHONE)):
        seen = visit(run.page, size=size, touch=size is PHONE)
        seen.update(point=point)
        seen.screenshot(path=artefacts / f"{name}-{kind}-level.png")
        seen.update(layer="probability", beside="width", point=None)
        seen.screenshot(path=artefacts / f"{name}-{kind}-compared.png")
    assert len(list(artefacts.glob(f"{name}-*.png"))) >= 4
