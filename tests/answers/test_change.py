"""The change of the level between two quarters: closed forms, files, and refusals."""

import json
import shutil
from dataclasses import replace

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import rasterio
from run_worlds import run_json
from scipy import sparse, stats

from geogp.answers import change as level_changes
from geogp.answers.change import (
    WRONG_SHARE,
    describe_changes,
    tile_changes,
    unchanged_scores,
    wrong_shares,
)
from geogp.answers.make import make_answer
from geogp.answers.requests import ChangeRequest
from geogp.answers.run import open_run
from geogp.answers.tile_areas import TileAreas, tile_areas
from geogp.distributions.quantity import Quantity
from geogp.errors import RequestError
from geogp.maps.target_quantities import quantity_of
from geogp.value_scales import LOG10

SPEED: Quantity = quantity_of("download")


class Toy:
    """A level of four tiles in two quarters, with a given covariance (8, 8)."""

    def __init__(self, mean, covariance):
        self.mean, self.covariance = np.asarray(mean), np.asarray(covariance)
        self.process_mean = self.mean

    def __len__(self):
        return len(self.mean)

    def sum_variances(self, weights):
        dense = sparse.csc_array(weights).toarray()
        return np.diag(dense.T @ self.covariance @ dense)

    def paths(self, draws, *, seed=0):
        yield np.random.default_rng(seed).multivariate_normal(self.mean, self.covariance, draws)


def two_quarters(correlation):
    """A level with variances 0.01 and 0.04, correlated between the quarters of each tile."""
    between = correlation * 0.1 * 0.2 * np.eye(4)
    covariance = np.block([[0.01 * np.eye(4), between], [between, 0.04 * np.eye(4)]])
    return Toy([1.0, 1.0, 1.0, 2.0, 1.2, 1.2, 1.0, 1.9], covariance)


THIRDS = TileAreas.with_tiles(
    "x", ["a", "b"], ["1", "2"], [None] * 2, [np.array([0, 1]), np.array([2, 3, 4, 5])]
)
HALVES = TileAreas.with_tiles(
    "x", ["a", "b", "none"], ["1", "2", "3"], [None] * 3, [np.array([0, 1]), np.array([2, 3]), []]
)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.9])
def test_the_change_of_an_area_has_the_closed_form(correlation):
    found = describe_changes(two_quarters(correlation), HALVES, SPEED, 30)
    np.testing.assert_allclose(found["change_log10"], [0.2, -0.05])
    variance = (0.01 + 0.04 - 2 * correlation * 0.02) / 2
    np.testing.assert_allclose(found["change_sd_log10"], np.sqrt(variance))
    law = stats.norm(found["change_log10"], np.sqrt(variance))
    np.testing.assert_allclose(found["probability_rose"], law.sf(0))
    np.testing.assert_allclose(found["probability_rose_at_least"], law.sf(np.log10(1.3)))
    np.testing.assert_allclose(found["change_lower_log10"], law.ppf(0.025))
    np.testing.assert_allclose(found["change_upper_percent"], 100 * (10 ** law.ppf(0.975) - 1))
    np.testing.assert_allclose(found["level_to_mbps"] / found["level_from_mbps"], 10 ** law.mean())


def test_the_change_of_a_tile_comes_from_joint_draws():
    found = tile_changes(two_quarters(0.9), 20_000, 1)
    np.testing.assert_allclose(found.mean, [0.2, 0.2, 0.0, -0.1])
    np.testing.assert_allclose(found.sd, np.sqrt(0.014), rtol=0.02)
    np.testing.assert_allclose(found.rose[2], 0.5)


def test_the_interval_contains_what_networks_changed():
    """The variance of a change has the square of its difference from that of the process."""
    level = two_quarters(0.0)
    level.process_mean = level.mean - np.repeat([0.0, 0.3], 4) * [1, 1, 0, 0, 1, 1, 0, 0]
    found = describe_changes(level, HALVES, SPEED, None)
    np.testing.assert_allclose(found["change_log10"], [0.2, -0.05])
    np.testing.assert_allclose(np.square(found["change_sd_log10"]), 0.025 + np.square([0.3, 0]))
    tiles = tile_changes(level, 20_000, 1)
    np.testing.assert_allclose(tiles.mean, [0.2, 0.2, 0.0, -0.1])
    expected = np.sqrt(0.05 + np.square([0.3, 0.3, 0, 0]))
    np.testing.assert_allclose(tiles.sd, expected, rtol=0.02)


def test_rates_are_those_of_the_step_up_procedure():
    p = np.array([1, 0.002, 0.04, 0.06, 0.3])
    z = stats.norm.isf(p / 2) * np.array([1, -1, 1, 1, -1])
    expected = np.array([1, 0.002 * 5, 0.06 * 5 / 3, 0.06 * 5 / 3, 0.3 * 5 / 4])
    np.testing.assert_allclose(wrong_shares(z), expected)
    assert (wrong_shares(np.full(3, 40.0)) == 0).all()
    assert len(wrong_shares(np.zeros(0))) == 0


@pytest.mark.parametrize("shared", [0.0, 0.8])
@pytest.mark.parametrize("changed", [0, 6, 40])
def test_few_directions_are_wrong_whether_or_not_areas_changed(changed, shared):
    """Estimates of 40 areas with noise; a direction of an unchanged area is wrong.

    `shared` is the correlation of the noise.
    """
    random = np.random.default_rng(3)
    shares, right = [], []
    for _ in range(1000):
        true = np.where(np.arange(40) < changed, random.normal(0, 4, 40), 0.0)
        noise = np.sqrt(1 - shared) * random.standard_normal(40)
        z = true + noise + np.sqrt(shared) * random.standard_normal()
        called = wrong_shares(z) <= WRONG_SHARE
        wrong = called & (((z > 0) != (true > 0)) | (true == 0))
        shares.append(wrong.sum() / max(called.sum(), 1))
        right.append((called & ~wrong).sum() / max(changed, 1))
    assert np.mean(shares) < 0.05 + 3 * np.std(shares) / np.sqrt(1000)
    if changed:
        assert np.mean(right) > 0.3


class Prior:
    """A level of six tiles at two times, as a dense Gaussian process with measurements."""

    def __init__(self, seed=0, noise=0.3):
        random = np.random.default_rng(seed)
        root = random.standard_normal((12, 12))
        self.K = root @ root.T / 12 + 0.1 * np.eye(12)
        inner = np.linalg.inv(self.K + noise * np.eye(12))
        self.gain, self.noise = self.K @ inner, noise
        self.posterior = self.K - self.gain @ self.K

    def __len__(self):
        return 12

    def prior_covariance(self, tiles):
        return self.K[np.ix_(tiles, tiles)]


def test_scores_are_standard_normal_for_an_area_that_did_not_change():
    world, areas = Prior(), THIRDS
    a = sparse.vstack([-areas.means(6), areas.means(6)]).toarray()
    sd = np.sqrt(np.einsum("nk,nm,mk->k", a, world.posterior, a))
    scale = 1 / unchanged_scores(world, areas, (np.ones(2), sd))
    for k, weights in enumerate(a.T):
        # The level given that the change of the area is 0, then its measurements and the estimate.
        cross = world.K @ weights
        level = world.K - np.outer(cross, cross) / (weights @ cross)
        estimate = weights @ world.gain
        variance = estimate @ (level + world.noise * np.eye(12)) @ estimate
        assert scale[k] == pytest.approx(np.sqrt(variance), rel=1e-9)


def test_scores_fall_with_what_networks_changed():
    world, areas = Prior(), THIRDS
    a = sparse.vstack([-areas.means(6), areas.means(6)]).toarray()
    sd = np.sqrt(np.einsum("nk,nm,mk->k", a, world.posterior, a))
    alone = unchanged_scores(world, areas, (np.ones(2), sd))
    found = unchanged_scores(world, areas, (np.ones(2), sd), apart=np.array([0.0, 3.0]))
    np.testing.assert_allclose(found, 1 / np.hypot(1 / alone, [0, 3.0]))


def test_a_sample_of_the_tiles_gives_nearly_the_same_scores(copy, monkeypatch):
    opened = open_run(copy.path).reopen()
    level = opened.level(2023 * 4 + 2, 2023 * 4 + 3)
    areas = tile_areas(opened, "stratum")
    columns = describe_changes(level, areas, SPEED, None)
    monkeypatch.setattr(level_changes, "SAMPLED", 10_000)
    change, sd = estimates = columns["change_log10"], columns["change_sd_log10"]
    exact = unchanged_scores(level, areas, estimates)
    tiles = np.arange(len(level))
    weights = areas.means(len(level) // 2).toarray()
    a = np.concatenate([-weights, weights])
    prior = np.einsum("nk,nm,mk->k", a, level.prior_covariance(tiles), a)
    np.testing.assert_allclose(exact, change / sd / np.sqrt(1 - sd**2 / prior), rtol=1e-6)
    monkeypatch.setattr(level_changes, "SAMPLED", 40)
    np.testing.assert_allclose(unchanged_scores(level, areas, estimates), exact, rtol=0.1)


def test_an_area_about_which_nothing_is_known_has_no_direction():
    world, areas = Prior(), THIRDS
    a = sparse.vstack([-areas.means(6), areas.means(6)]).toarray()
    sd = np.sqrt(np.einsum("nk,nm,mk->k", a, world.K, a))
    assert (unchanged_scores(world, areas, (np.full(2, 1e-9), sd)) == 0).all()


@pytest.fixture(scope="module")
def result(copy):
    return make_answer(ChangeRequest(copy.path, start="2023Q3", by="stratum", at_least=5))


def test_both_quarters_are_those_of_single_quarters(result, copy):
    opened = open_run(copy.path).reopen()
    quarters = (2023 * 4 + 2, 2023 * 4 + 3)
    levels = [opened.level(quarter) for quarter in quarters]
    weights = tile_areas(opened, "stratum").means(len(opened.tiles))
    table = result.table
    for name, level in zip(("from", "to"), levels, strict=True):
        values = np.log10(table[f"level_{name}_mbps"])
        np.testing.assert_allclose(values, level.sum_means(weights), atol=1e-6)
    first, last = (np.sqrt(level.sum_variances(weights)) for level in levels)
    # The quarters are correlated, so the interval is narrower than for independent quarters.
    assert (table["change_sd_log10"] < 0.95 * np.hypot(first, last)).all()
    assert (table["change_sd_log10"] > np.abs(first - last)).all()
    seen = table["tests_from"] + table["tests_to"]
    assert (seen == table["tests"]).all()
    assert (table["probability_rose_at_least"] < table["probability_rose"]).all()


def test_the_files_hold_tables_and_rasters(result, copy):
    names = [path.name for path in result.files]
    areas = [
        f"change_stratum_download_2023Q3_2023Q4.{end}"
        for end in ("csv", "gpkg", "parquet", "json", "tif")
    ]
    tiles = [
        f"{name}_download_2023Q3_2023Q4.tif"
        for name in ("change_percent", "change_sd", "probability_rose")
    ]
    styles = [one.replace(".tif", ".qml") for one in tiles]
    assert names == [*areas, areas[0].replace("csv", "png"), *styles, *tiles]
    page = (copy.path / "map.html").read_text("utf-8")
    for layer in ("change_stratum", "change_tiles"):
        assert f'"id":"{layer}_download_2023Q3_2023Q4"' in page
    assert "is not on this map" not in page
    read = pd.read_csv(result.files[0], keep_default_na=False)
    assert set(read.pop("quarter_from")) == {"2023Q3"}
    assert set(read.pop("quarter_to")) == {"2023Q4"}
    pd.testing.assert_frame_equal(read, result.table, check_dtype=False)
    table = gpd.read_parquet(result.files[2])
    assert list(table["key"]) == ["all", "urban", "rural"]
    values = []
    for path in result.files[-3:]:
        with rasterio.open(path) as raster:
            assert "from 2023Q3 to 2023Q4" in raster.descriptions[0]
            assert raster.tags()["attribution"] == run_json(copy)["attribution"]
            values.append(raster.read(1))
    percent, sd, rose = values
    assert np.isfinite(percent).sum() == run_json(copy)["map"]["tiles"]
    near = np.isfinite(rose)
    assert near.any()
    z = np.log10(1 + percent / 100) / sd
    np.testing.assert_allclose(stats.norm.cdf(z[near]), rose[near], atol=1e-4)
    mean = np.nanmean(np.log10(1 + percent.astype(float) / 100))
    assert LOG10.changes(mean) == pytest.approx(result.table["change_percent"][0], rel=1e-3)


def test_what_is_far_from_data_gets_no_direction(copy, monkeypatch):
    opened = type(open_run(copy.path).reopen())
    monkeypatch.setattr(opened, "far", property(lambda self: np.ones(len(self.tiles), bool)))
    found = make_answer(ChangeRequest(copy.path, start="2023Q3", by="stratum", draws=200))
    assert set(found.table["direction"]) == {""}
    assert (found.table["far_share"] == 1).all()
    with rasterio.open(found.files[-1]) as raster:
        assert np.isnan(raster.read(1)).all()


def test_later_than_the_data_changes_are_less_sure(copy, result):
    later = make_answer(ChangeRequest(copy.path, start="2023Q3", end="2025Q4", by="stratum"))
    assert (later.table["change_sd_log10"] > result.table["change_sd_log10"]).all()
    assert any("no measurement of 2025Q4 (--to)" in text for text in later.described["warnings"])


@pytest.mark.trial
def test_a_model_without_tiles_says_that_it_is_too_sure(plain, tmp_path):
    shutil.copytree(plain.path, tmp_path / "run")
    request = ChangeRequest(tmp_path / "run", start="2023Q3", by="stratum", draws=200)
    found = make_answer(request)
    assert any(
        "uncertainty of changes is too small" in text for text in found.described["warnings"]
    )
    assert (found.table["change_sd_log10"] > 0).all()
    with pytest.raises(RequestError, match="--to 2024Q1 lies beyond the data, which end in 2023Q4"):
        make_answer(replace(request, end="2024Q1"))


class TestCommand:
    def test_the_first_line_says_what_is_told(self, geogp, copy):
        code, out, _ = geogp("change", copy.path, "--from", "2023Q3", "--by", "stratum")
        assert code == 0
        assert out.startswith("These values are changes of the level: the value to expect, without")
        assert "change_stratum_download_2023Q3_2023Q4.csv" in out

    def test_json_is_all_there_is(self, geogp, copy, result):
        asked = ("--from", "2023Q3", "--by", "stratum", "--at-least", 5, "--json")
        code, out, _ = geogp("change", copy.path, *asked)
        assert code == 0
        assert json.loads(out)["areas"] == result.described["areas"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"start": "2023Q4"}, "expected --from before --to, found 2023Q4 and 2023Q4"),
            ({"start": "2020Q1"}, "--from 2020Q1 lies before the data, which start in 2023Q3"),
            ({"start": "yesterday"}, "expected a quarter like 2019Q1, found 'yesterday'"),
        ],
    )
    def test_quarters(self, copy, changes, message):
        with pytest.raises(RequestError, match=message):
            make_answer(ChangeRequest(copy.path, by="stratum", **changes))

    def test_values_out_of_range(self, tmp_path):
        with pytest.raises(
            RequestError, match="expected --at-least above 0 % or dB, at most 100,000"
        ):
            ChangeRequest(tmp_path, start="2023Q3", at_least=-3)

    def test_a_model_of_places_alone(self, made_run):
        run = made_run("places", inputs="place")
        with pytest.raises(RequestError, match="--from 2023Q3 needs the quarter as an input"):
            make_answer(ChangeRequest(run.path, start="2023Q3", by="stratum"))
