"""Shares below thresholds and joint regions: closed forms on toy laws, and from a finished run."""

import itertools
import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from PIL import Image
from run_worlds import run_json
from scipy import sparse
from scipy.stats import norm
from shapely.geometry import box

from geogp.answers.exceedance import area_weights, compared, excursions, with_map_shares
from geogp.answers.make import make_answers
from geogp.answers.requests import ExceedanceRequest
from geogp.answers.run import open_run
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.geodata.tiles.quadkeys import tile_areas_km2
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.runs.pipeline.run_map import run_map

SEVEN = Threshold(7, "download")
NAMED = "download_level_2023Q4"
"""Target, question and quarter in the names of files."""
AREAS = pd.DataFrame({"layer": ["x", "x"], "area": ["all", "half"], "tiles": [10, 5]})


class Toy:
    """A level of ten tiles, drawn in batches from a covariance."""

    def __init__(self, mean, covariance):
        self.mean, self.covariance = mean, covariance
        self.root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean)))

    def single_variances(self):
        return np.diag(self.covariance)

    def paths(self, draws, *, seed=0):
        random = np.random.default_rng(seed)
        for start in range(0, draws, 32):
            white = random.standard_normal((min(32, draws - start), len(self.mean)))
            yield self.mean + white @ self.root.T


def halves():
    """Weights of all ten tiles, the first ones larger, and of the first five."""
    size = np.linspace(2, 1, 10)
    half = np.where(np.arange(10) < 5, size, 0)
    return sparse.csc_array(np.column_stack([size / size.sum(), half / half.sum()]))


def of(level, *thresholds, draws=20_000, weights=None, far=None):
    wanted = compared(level, thresholds or (SEVEN,))
    weights = halves() if weights is None else weights
    return excursions(level.paths(draws), wanted, AREAS, weights, far=far)


def test_tiles_far_from_data_are_in_no_joint_region():
    level = Toy(np.log10(7) + np.linspace(-9, 9, 10), 0.01 * np.eye(10))
    far = np.isin(np.arange(10), [0, 8])
    (every,) = of(level)
    (near,) = of(level, far=far)
    for side in ("met", "short"):
        whole, rest = (getattr(found, side) for found in (every, near))
        assert (whole.inside & far).any()
        np.testing.assert_array_equal(rest.inside, whole.inside & ~far)
        assert not rest.excursion[far].any()
    np.testing.assert_array_equal(near.shares["mean"], every.shares["mean"])


def test_independent_tiles_share_by_their_probabilities():
    mean = np.log10(7) + np.linspace(-1, 1.5, 10)
    (found,) = of(Toy(mean, np.eye(10)))
    weights, p = halves().toarray(), norm.cdf(-np.linspace(-1, 1.5, 10))
    np.testing.assert_allclose(found.shares["closed_form"], weights.T @ p, rtol=1e-12)
    np.testing.assert_allclose(found.shares["mean"], weights.T @ p, atol=0.006)
    sd = np.sqrt((weights**2).T @ (p * (1 - p)))
    np.testing.assert_allclose(found.shares["error"], sd / np.sqrt(20_000), rtol=0.03)
    # A sum of ten of such unequal parts is nearly normal.
    reach = (found.shares["upper"] - found.shares["lower"]) / 2
    np.testing.assert_allclose(reach[0], 1.96 * sd[0], rtol=0.1)


def test_tiles_that_move_together_are_all_short_or_none():
    (found,) = of(Toy(np.full(10, np.log10(7) + 0.5), np.ones((10, 10))))
    row = found.shares.iloc[0]
    assert row["mean"] == pytest.approx(norm.cdf(-0.5), abs=0.01)
    assert (row["lower"], row["upper"]) == pytest.approx((0.0, 1.0))
    np.testing.assert_allclose(found.met.excursion, norm.cdf(0.5), atol=0.01)
    np.testing.assert_allclose(found.short.excursion, norm.cdf(-0.5), atol=0.01)
    assert not found.met.inside.any()


def test_higher_thresholds_are_missed_more_and_regions_shrink():
    mean = np.linspace(0.5, 2.0, 10)
    found = of(
        Toy(mean, 0.02 * (0.5 + 0.5 * np.eye(10))),
        *thresholds_of("download", (5, 7, 35)),
        draws=2000,
    )
    for low, high in itertools.pairwise(found):
        for name in ("mean", "lower", "upper", "closed_form"):
            assert (low.shares[name] <= high.shares[name]).all()
        assert not (high.met.inside & ~low.met.inside).any()
        assert not (low.short.inside & ~high.short.inside).any()
    assert all(not (one.met.inside & one.short.inside).any() for one in found)
    assert found[0].met.inside.sum() > found[2].met.inside.sum() > 0
    assert found[2].short.inside.any()


@pytest.mark.parametrize("people", [False, True])
def test_a_map_counts_tiles_by_their_medians_and_values_by_their_probabilities(people):
    law = Prediction(np.linspace(0.5, 1.4, 10), np.full(10, 0.01), np.full(10, 0.08))
    weights = sparse.hstack([halves(), halves()[::-1]]) if people else halves()
    level = Toy(law.mean, 0.01 * np.eye(10))
    (found,) = of(level, draws=200, weights=sparse.csc_array(weights))
    shares = with_map_shares(found, SEVEN.holds, law, sparse.csc_array(weights)).shares
    below = norm.cdf((np.log10(7) - law.mean) / 0.3)
    for start, size in ("", halves()), ("weighted_", halves()[::-1]):
        if start and not people:
            assert not any(name.startswith(start) for name in shares)
            continue
        expected = size.toarray().T @ (law.mean < np.log10(7))
        np.testing.assert_allclose(shares[f"{start}median_short"], expected)
        np.testing.assert_allclose(shares[f"{start}probability_short"], size.toarray().T @ below)
    assert shares["median_short"][0] != pytest.approx(shares["probability_short"][0], abs=0.01)


def test_low_latencies_meet_a_threshold():
    mean = np.log10(np.linspace(20, 120, 10))
    (found,) = of(Toy(mean, 1e-4 * np.eye(10)), Threshold(50, "latency"))
    np.testing.assert_array_equal(found.met.inside, 10**mean < 49)
    np.testing.assert_array_equal(found.short.inside, 10**mean > 51)
    assert found.shares["mean"][0] > 0.5


@pytest.fixture(scope="module")
def result(copy):
    request = ExceedanceRequest(copy.path, threshold=(25, 80), by="urban", draws=2000)
    return make_answers(request)


def files_of(answers):
    return {path for one in answers for path in one.files}


def test_a_run_is_held_against_thresholds(result, copy):
    low, high = (one.table for one in result)
    for shares in (low, high):
        assert (shares["lower"] <= shares["mean"]).all()
        assert (shares["lower"] <= shares["upper"]).all()
        # A share that is 0 in nearly all draws has a mean above its interval.
        assert (shares["mean"] <= shares["upper"])[shares["mean"] > 0.05].all()
        np.testing.assert_allclose(shares["mean"], shares["closed_form"], atol=0.05)
        total, urban, rural = (shares.iloc[k] for k in range(3))
        assert (urban["area"], rural["area"]) == ("urban", "rural")
        assert total["tiles"] == urban["tiles"] + rural["tiles"] == run_json(copy)["map"]["tiles"]
        parts = urban["mean"] * urban["area_km2"] + rural["mean"] * rural["area_km2"]
        assert parts == pytest.approx(total["mean"] * total["area_km2"])
        assert set(shares["layer"]) == {"whole region", "urban"}
    assert (low["mean"] <= high["mean"]).all()
    assert high["upper"][0] > high["lower"][0]


def test_areas_follow_latitude(copy):
    run = open_run(copy.path).reopen()
    areas, weights = area_weights(run, None)
    km2 = tile_areas_km2(run.tiles.centres[1], run.tiles.zoom)
    assert areas["area_km2"][0] == pytest.approx(km2.sum())
    np.testing.assert_allclose(weights.sum(0), 1)
    np.testing.assert_allclose(weights.toarray()[:, 0], km2 / km2.sum())
    assert len(np.unique(km2)) > 3


def test_columns_of_a_file_are_layers_of_their_own(copy, tmp_path):
    run = open_run(copy.path).reopen()
    west, south, east, north = run.inputs.region.bounds
    places = {"side": ["x"], "kind": ["y"], "geometry": [box(west, south, east, north)]}
    gpd.GeoDataFrame(places, crs=4326).to_parquet(tmp_path / "parts.parquet")
    found = [
        area_weights(run, f"{tmp_path / 'parts.parquet'}:{name}")[0] for name in ("side", "kind")
    ]
    assert [set(areas["layer"]) for areas in found] == [
        {"whole region", "parts_side"},
        {"whole region", "parts_kind"},
    ]


def test_files(result, copy):
    names = {path.name for path in files_of(result)}
    for tag in ("25_mbps", "80_mbps"):
        assert {
            f"exceedance_{NAMED}_{tag}.json",
            f"exceedance_{NAMED}_{tag}.csv",
            f"exceedance_{NAMED}_{tag}_urban.csv",
            f"excursion_{NAMED}_{tag}.tif",
            f"excursion_short_{NAMED}_{tag}.tif",
            f"excursion_{NAMED}_{tag}.png",
        } <= names
    assert len(names) == 12 + 4  # and a style for each raster
    told = json.loads((copy.path / f"exceedance_{NAMED}_25_mbps.json").read_text())
    assert told["joint_regions"]["met"]["is"] == "at least 25 Mbps"
    assert told["draws"] == 2000
    table = pd.read_csv(copy.path / f"exceedance_{NAMED}_25_mbps.csv")
    np.testing.assert_allclose(table["mean"], result[0].table["mean"][:3])
    with rasterio.open(copy.path / f"excursion_{NAMED}_25_mbps.tif") as found:
        values = found.read(1)
        assert found.crs.to_epsg() == 3857
        assert found.tags()["attribution"] == run_json(copy)["attribution"]
    inside = np.isfinite(values)
    assert inside.sum() == run_json(copy)["map"]["tiles"]
    assert (values[inside] >= 0.95).sum() == told["joint_regions"]["met"]["tiles"]
    with rasterio.open(copy.path / "median_mbps.tif") as found:
        np.testing.assert_array_equal(np.isfinite(found.read(1)), inside)
    with Image.open(copy.path / f"excursion_{NAMED}_25_mbps.png") as image:
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 5


def test_another_quarter_has_files_of_its_own(result, copy):
    earlier = make_answers(ExceedanceRequest(copy.path, threshold=(25,), draws=200, at="2023Q3"))
    assert not files_of(earlier) & files_of(result)
    assert all(path.is_file() for path in files_of(earlier) | files_of(result))


def test_the_run_stays_what_it_was(result, copy, small):
    assert run_map(small.request(copy.path, split="both")).already_there


def test_without_a_threshold_those_of_the_map(copy):
    found = make_answers(ExceedanceRequest(copy.path, draws=200))
    assert [one.content["threshold"] for one in found] == [7, 35, 100]


def test_refusals(copy, tmp_path):
    with pytest.raises(RequestError, match="expected draws from 200 to 100,000, found 100"):
        ExceedanceRequest(copy.path, draws=100)
    with pytest.raises(RequestError, match=r"a seed from 0 to .*, found -1"):
        ExceedanceRequest(copy.path, seed=-1)
    with pytest.raises(RequestError, match=r"from 0\.001 to"):
        make_answers(ExceedanceRequest(copy.path, threshold=(0,)))
    with pytest.raises(RequestError, match="contain no county areas"):
        make_answers(ExceedanceRequest(copy.path, by="county"))
    with pytest.raises(RequestError, match="is not a finished run"):
        make_answers(ExceedanceRequest(tmp_path))


class TestCommand:
    def test_it_prints_shares_and_regions(self, geogp, copy):
        code, out, _ = geogp("exceedance", copy.path, "--threshold", 25, "--draws", 200)
        assert code == 0
        assert "What is below 25 Mbps, 2023Q4" in out
        assert "The map predicts tile averages over 3 tests" in " ".join(out.split())
        assert "rural" in out
        assert "at least 25 Mbps" in out
        assert f"excursion_{NAMED}_25_mbps.tif" in out

    def test_json_is_all_there_is(self, geogp, copy, result):
        code, out, _ = geogp(
            "exceedance",
            copy.path,
            *("--threshold", 25, "--threshold", 80),
            "--by",
            "urban",
            *("--draws", 2000, "--json"),
        )
        told = json.loads(out)
        assert code == 0
        assert [one["threshold"] for one in told["thresholds"]] == [25, 80]
        wanted = result[0].content["share_falling_short"]
        assert told["thresholds"][0]["share_falling_short"] == wanted

    def test_a_refusal_is_one_message(self, geogp, copy):
        code, _, err = geogp("exceedance", copy.path, "--draws", 10)
        assert code == 2
        assert "expected draws from 200 to 100,000, found 10" in err
