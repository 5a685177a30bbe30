"""The benchmark beyond the data: its cases against their oracles, its pooling, and a small run."""

import json

import numpy as np
import pandas as pd
import pytest
from benchmark_scripts import load, run, told
from scipy import stats

import geogp

beyond = load("accuracy.beyond")
cases = load("beyond_cases")
data = load("beyond_data")

ROWS, FIELDS = 150, 40


@pytest.fixture(scope="module")
def worlds():
    """Fields of all cases."""
    return {
        name: [make(np.random.default_rng(seed), ROWS) for seed in range(FIELDS)]
        for name, make in cases.CASES.items()
    }


@pytest.mark.parametrize("name", cases.CASES)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_an_oracle_is_right_in_every_class(name, level, worlds):
    """The error of whole fields is the error; 4.5 of them, for about a hundred classes."""
    seen = {}
    for world in worlds[name]:
        y = world.test["value"].to_numpy()
        low, high = world.oracle.interval(level)
        for each in np.unique(world.classes):
            some = world.classes == each
            inside = ((low <= y) & (y <= high))[some]
            seen.setdefault(each, []).append((some.sum(), inside.mean()))
    for found in seen.values():
        if len(found) > FIELDS / 2:
            coverage = beyond.pooled(*zip(*found, strict=True))
            least = np.sqrt(level * (1 - level) / sum(n for n, _ in found))
            assert abs(coverage.value - level) < 4.5 * max(coverage.error, least)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_case_has_training_rows_and_rows_inside_and_beyond(name, worlds):
    for world in worlds[name]:
        assert len(world.train) == ROWS
        assert len(world.test) == len(world.classes) == len(world.oracle) == 17 + 0.4 * ROWS
        rows = pd.concat([world.train, world.test])
        assert not rows.duplicated().any()
        assert {world.columns[k] for k in ("x", "y")} <= set(rows)


def places(table):
    return table[["x", "y"]].to_numpy()


def test_no_training_row_is_in_a_region_that_is_held_out(worlds):
    regions = {
        "east": lambda place: place[:, 0] > 70,
        "halves": lambda place: place[:, 0] > 50,
        "corners": cases.corners,
        "ring": lambda place: (cases.from_centre(place) < 30) | (cases.from_centre(place) > 50),
        "hole": lambda place: cases.from_centre(place) < 20,
        "sparse": lambda place: place[:, 0] > 70,
    }
    for name, held in regions.items():
        for world in worlds[name]:
            near = np.isin(world.classes, ["inside", "cluster"])
            assert not held(places(world.train)).any()
            assert (held(places(world.test)) == ~near).all()
            assert near.sum() == 17


def test_clusters_are_where_the_rows_are(worlds):
    def in_town(world):
        return (abs(places(world.train) - 50) <= 5).all(1).mean()

    assert np.mean([in_town(world) for world in worlds["cluster"]]) == pytest.approx(0.9, abs=0.02)
    for world in worlds["cluster"]:
        town = (abs(places(world.test)[world.classes == "cluster"] - 50) <= 5).all(1)
        assert town.all()
    assert all((world.classes[:17] == "cluster").all() for world in worlds["towns"])
    for world in worlds["line"]:
        x, y = places(world.train).T
        assert abs(y - 50 - 20 * np.sin(2 * np.pi * x / 100)).max() < 1.5


def test_rows_at_a_border_are_near_it_and_values_jump_there(worlds):
    steps = []
    for world in worlds["border"]:
        x, y = places(world.test).T
        away = x - 50 - 10 * np.sin(2 * np.pi * y / 100)
        assert ((abs(away) < 4) == (world.classes == "border")).all()
        value = world.test["value"].to_numpy()
        near = abs(away) < 8
        steps.append(value[near & (away > 0)].mean() - value[near & (away < 0)].mean())
    assert np.mean(steps) == pytest.approx(1.5, abs=4 * np.std(steps) / np.sqrt(FIELDS))


def test_classes_of_noise_and_season(worlds):
    for world in worlds["noise-by-place"]:
        sd = np.sqrt(world.oracle.noise_variance)
        assert (np.digitize(sd, (0.3, 0.7)) == [cases.NOISES.index(c) for c in world.classes]).all()
    for world in worlds["seasons"]:
        assert world.train["time"].max() < 11
        assert ((world.test["time"] > 11) == (world.classes == "last season")).all()


def test_classes_of_distance_are_in_widths_of_the_training_data():
    train = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0]])
    asked = np.array([[10.0, 5.4], [11.0, 0.0], [12.0, 5.0], [14.0, 0.0], [20.0, 5.0]])
    names = ["0 to 0.05", "0.05 to 0.15", "0.15 to 0.4", "0.4 or more", "0.4 or more"]
    assert cases.distance_classes(train, asked).tolist() == names


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_a_term_is_a_matern_covariance(smoothness):
    from scipy.special import gamma, kv

    lag = np.array([[0.3, 0.0], [0.0, 2.0], [1.0, 1.0]])
    h = np.sqrt(2 * smoothness) * np.hypot(lag[:, 0] / 2, lag[:, 1] / 0.7)
    matern = 2 ** (1 - smoothness) / gamma(smoothness) * h**smoothness * kv(smoothness, h)
    term = cases.Term(3.0, (2.0, 0.7), smoothness)
    np.testing.assert_allclose(term(np.zeros((1, 2)), lag)[0], 3 * matern, rtol=1e-10)


def test_a_periodic_term_returns():
    term = cases.Term(2.0, (np.inf, 1.0), 1.5, period=4)
    time = np.array([[5.0, 0.0], [5.0, 4.0], [5.0, 8.0], [5.0, 2.0]])
    found = term(np.zeros((1, 2)), time)[0]
    np.testing.assert_allclose(found[:3], 2, rtol=1e-6)
    assert found[3] < 0.5


def test_kriging_is_the_conditional_distribution():
    rng = np.random.default_rng(0)
    points, noise = cases.uniform(rng, 30), rng.uniform(0.1, 0.2, 30)
    test = np.arange(30) >= 25
    value = rng.standard_normal(30)
    law = cases.kriged(cases.Rows(points, test, test), cases.MIXED, value, noise)
    total = cases.covariance(cases.MIXED, points, points) + np.diag(noise)
    precision = np.linalg.inv(total)[25:, 25:]
    conditional = np.linalg.inv(precision)
    np.testing.assert_allclose(law.variance, np.diag(conditional), rtol=1e-9)
    expected = -conditional @ np.linalg.inv(total)[25:, :25] @ value[:25]
    np.testing.assert_allclose(law.mean, expected, rtol=1e-9)


def test_drawn_values_have_the_covariance():
    rng, points = np.random.default_rng(0), np.array([[0.0, 0.0], [2.0, 0.0], [30.0, 40.0]])
    noise = np.array([0.1, 0.2, 0.3])
    found = np.array([cases.drawn(rng, cases.MIXED, points, noise) for _ in range(20_000)])
    expected = cases.covariance(cases.MIXED, points, points) + np.diag(noise)
    np.testing.assert_allclose(np.cov(found.T), expected, atol=0.04)


def test_heavy_noise_is_student_t(worlds):
    for world in worlds["heavy"]:
        assert world.oracle.shape.df == 4
    y = np.concatenate([world.test["value"] - world.oracle.mean for world in worlds["heavy"]])
    sd = np.concatenate([world.oracle.sd for world in worlds["heavy"]])
    assert stats.kurtosis(y / sd) > 0.5


def test_pooled_is_a_ratio_of_sums_over_fields():
    found = beyond.pooled([10, 30], [0.5, 0.9])
    assert found.value == pytest.approx(0.8)
    assert found.error == pytest.approx(np.sqrt(2 * (3**2 + 3**2)) / 40)
    assert np.isnan(beyond.pooled([10], [0.5]).error)
    rng = np.random.default_rng(0)
    means = [rng.normal(size=25).mean() for _ in range(400)]
    assert beyond.pooled([7] * 400, means).error == pytest.approx(0.2 / 20, rel=0.1)


def test_scores_are_in_standard_deviations_of_the_data():
    y = np.array([1.0, 2.0, 5.0])
    laws = [geogp.Prediction(np.zeros(3), np.full(3, s), np.zeros(3)) for s in (1.0, 100.0)]
    one, ten = (
        beyond.means(beyond.law_scores(law, s * y, s)) for law, s in zip(laws, (1, 10), strict=True)
    )
    assert one == pytest.approx(ten)
    assert one["log_score"] == pytest.approx(-stats.norm.logpdf(y).mean())
    assert (one["rmse"], one["sd"]) == pytest.approx((np.sqrt(10), 1))
    assert (one["coverage_50"], one["coverage_95"]) == pytest.approx((0, 1 / 3))


def scored(coverage, log_score):
    names = ("coverage_50", "coverage_80", "sd", "crps", "width", "rmse")
    return dict.fromkeys(names, 1.0) | {"coverage_95": coverage, "log_score": log_score}


@pytest.mark.parametrize(
    ("name", "coverage", "score", "missed"),
    [
        ("inside", 0.935, 1.02, ""),
        ("inside", 0.905, 1.02, ""),  # within two points of the oracle
        ("inside", 0.89, 1.02, "coverage"),
        ("inside", 0.98, 1.05, "coverage, oracle"),
        ("0 to 0.05", 0.95, 1.05, ""),
        ("0 to 0.05", 0.95, 1.35, "plain, oracle"),
        ("cluster", 0.95, 1.15, "oracle"),
        ("border", 0.86, 1.2, ""),
        ("border", 0.84, 1.2, "coverage"),
    ],
)
def test_the_aims(name, coverage, score, missed):
    laws = {"fit": (coverage, score), "oracle": (0.92, 1.0), "plain": (0.95, 1.3)}
    field = {"n": 100} | {law: scored(*values) for law, values in laws.items()}
    found = beyond.Pooled(name, [field, field]).missed()
    assert ", ".join(found) == missed
    assert all(found.values())  # the fields are alike, so there is no error


def test_an_aim_that_is_missed_within_the_error_is_not_clearly_missed():
    laws = {"oracle": scored(0.95, 1.0), "plain": scored(0.95, 1.3)}
    fields = [{"n": 100, "fit": scored(c, 1.0)} | laws for c in (0.86, 0.98)]
    assert beyond.Pooled("inside", fields).missed() == {"coverage": False}


def test_bands_are_wide_if_the_rows_of_a_block_err_together():
    rng = np.random.default_rng(0)
    blocks = np.repeat(np.arange(40), 25)
    fair = pd.DataFrame({"coverage_95": rng.random(1000) < 0.5, "log_score": 1.0})
    alike = fair.assign(coverage_95=np.repeat(rng.random(40) < 0.5, 25))
    widths = []
    for rows in (fair, alike):
        found = beyond.bands({"fit": rows, "plain": rows}, blocks)
        assert found["log_score"] == [0, 0]
        widths.append(np.ptp(found["coverage_95"]))
    assert widths[0] == pytest.approx(3.92 * 0.5 / np.sqrt(1000), rel=0.3)
    assert widths[1] == pytest.approx(3.92 * 0.5 / np.sqrt(40), rel=0.3)


def test_the_summary_counts_clear_misses():
    laws = {"oracle": scored(0.95, 1.0), "plain": scored(0.95, 1.3)}
    coverages = {"hole": (0.86, 0.98), "ring": (0.86, 0.87), "line": (0.95, 0.95)}
    found = [
        {"case": case, "model": "field", "seed": seed, "preset": "quick", "cpu_seconds": 2.0}
        | {"classes": {"inside": {"n": 100, "fit": scored(each, 1.0)} | laws}}
        for case, both in coverages.items()
        for seed, each in enumerate(both)
    ]
    assert "| `field` | 3 | 1 | 1 | 2 |" in beyond.page(found)


def test_stationary_cases_are_pooled_and_peers_compared_on_the_same_fields():
    laws = {"oracle": scored(0.95, 1.0), "plain": scored(0.95, 1.3)}

    def fit(case, seed, model, coverage):
        inside = {"inside": {"n": 100, "fit": scored(coverage, 1.1)} | laws}
        return {"case": case, "seed": seed, "model": model, "classes": inside}

    fits = [fit("hole", 0, "field", 0.9), fit("ring", 0, "field", 0.96)]
    fits += [fit("hole", 0, "gpboost", 0.8), fit("seasons", 0, "field", 0.1)]
    alone = beyond.pooled_lines(fits, ["field"])
    assert [row[:4] for row in alone] == [("inside", "`field`", 2, "200")]
    assert alone[0][4:] == ("93.0 ± 3.0 %", "95.0 %", "0.100 ± 0.000", "0.200 ± 0.000")
    both = beyond.pooled_lines(fits, ["field", "gpboost"])
    assert [(row[1], row[2], row[4][:4]) for row in both] == [
        ("`field`", 1, "90.0"),
        ("`gpboost`", 1, "80.0"),
    ]


@pytest.fixture
def seen(monkeypatch):
    """A model that keeps what it is given, and predicts the mean."""
    given = []

    def plain(world, options):
        given.append(options.seed)
        known = world.train["value"]
        same = np.ones(len(world.test))
        return geogp.Prediction.of_moments(known.mean() * same, known.var(ddof=0) * same)

    monkeypatch.setattr(beyond, "MODELS", {"field": plain})
    return given


def test_a_run_makes_only_the_missing_fits(tmp_path, seen):
    options = ["--cases", "east", "border", "--rows", "100", "--out", tmp_path / "out"]
    told("accuracy.beyond", *options, "--table", tmp_path, "--fields", "1")
    text = told("accuracy.beyond", *options, "--table", tmp_path, "--fields", "2")
    assert seen == [0, 0, 1, 1]
    assert len(list((tmp_path / "out").iterdir())) == 4
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(one["case"], one["seed"]) for one in found] == [
        *(("east", 0), ("east", 1), ("border", 0), ("border", 1))
    ]
    for one in found:
        for each in one["classes"].values():
            assert each["fit"] == pytest.approx(each["plain"])
    page = (tmp_path / "table.md").read_text()
    assert page == beyond.page(found)
    assert page in text
    assert "| border | border | `field` | 2 |" in page
    classes = [row.split(" | ")[1] for row in page.splitlines() if row.startswith("| east |")]
    assert classes == ["inside", "0 to 0.05", "0.05 to 0.15", "0.15 to 0.4"]


def test_absent_data_are_skipped_with_a_message(tmp_path, seen, monkeypatch, capsys):
    monkeypatch.setenv("GEOGP_REAL_DATA", str(tmp_path))
    how = ["--fields", 1, "--rows", 100, "--out", tmp_path / "out", "--table", tmp_path]
    told("accuracy.beyond", "--cases", "satellite", "hole", *how)
    assert "satellite: skipped, no file" in capsys.readouterr().err
    assert "| hole | inside |" in (tmp_path / "table.md").read_text()
    assert run("accuracy.beyond", "--cases", "puerto-rico", *how) != 0
    assert "expected a case with data, found none" in capsys.readouterr().err


def test_the_east_of_measured_data_is_held_out(tmp_path, seen, monkeypatch):
    rng = np.random.default_rng(0)
    folder = tmp_path / "spatial"
    folder.mkdir()
    table = pd.DataFrame(rng.uniform(10, 20, (2_000, 2)), columns=["longitude", "latitude"])
    table.assign(temperature=rng.standard_normal(2_000), test=False).to_parquet(
        folder / "heaton-satellite.parquet"
    )
    world = data.satellite(folder / "heaton-satellite.parquet", np.random.default_rng(1), 500)
    assert (len(world.train), len(world.test)) == (500, 256)
    edge = world.train["longitude"].max()
    assert edge < 17.5
    assert ((world.test["longitude"] > edge) == (world.classes != "inside")).mean() > 0.99
    assert 60 < len(np.unique(world.blocks)) <= 100
    monkeypatch.setenv("GEOGP_REAL_DATA", str(tmp_path))
    options = ["--cases", "satellite", "--fields", "2", "--data-rows", "500", "--out", tmp_path]
    told("accuracy.beyond", *options, "--table", tmp_path)
    found = json.loads((tmp_path / "results.json").read_text())
    assert "oracle" not in found[0]["classes"]["inside"]
    assert " to " in (tmp_path / "table.md").read_text().split("| satellite | inside |")[1]


@pytest.mark.real
def test_tiles_of_puerto_rico_have_a_held_out_east(real_data):
    path = real_data / data.DATA["puerto-rico"][0]
    world = data.puerto_rico(path, np.random.default_rng(0), 300)
    assert (len(world.train), len(world.test)) == (300, 153)
    assert world.test["longitude"].max() > world.train["longitude"].max() + 0.2
    assert set(world.train["quarter"]) == {212, 213, 214, 215}
    assert world.train["value"].between(-3, 4).all()


@pytest.mark.parametrize("model", ["exact", "gpboost"])
def test_a_peer_is_nearly_the_oracle_inside_the_data(model):
    pytest.importorskip("gpboost")
    world = cases.CASES["rough"](np.random.default_rng(0), 400)
    law = beyond.MODELS[model](world, beyond.argparse.Namespace(seed=0))
    some, y = world.classes == "inside", world.test["value"].to_numpy()
    own, best = (each.log_score(y)[some].mean() for each in (law, world.oracle))
    assert abs(own - best) < 0.1
