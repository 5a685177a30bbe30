"""The benchmark of several targets: worlds and their oracle, scores of rows, and its page."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, told

from geogp import JointPrediction, Prediction

several, worlds = load("accuracy.several"), load("several_worlds")

SEEN = np.array([[1, 0.6, -0.4], [0.6, 1, -0.3], [-0.4, -0.3, 1]])


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(worlds, "TRAINED", 150)
    monkeypatch.setattr(worlds, "ASKED", 60)


def test_fields_and_noise_have_the_stated_covariances(small):
    drawn = [worlds.world("two ranges", seed) for seed in range(60)]
    field = np.concatenate([one.level - worlds.CENTRE for one in drawn])
    expected = sum(worlds.CASES["two ranges"].values())
    assert field.std(0) == pytest.approx(np.sqrt(expected.diagonal()), rel=0.15)
    assert np.corrcoef(field.T) == pytest.approx(worlds.correlation_of(expected), abs=0.12)
    noise = np.concatenate(
        [
            (one.asked[list(several.TOGETHER)] - one.level).mul(np.sqrt(one.asked["tests"]), axis=0)
            for one in drawn
        ]
    )
    assert np.cov(noise.T) == pytest.approx(worlds.NOISE, abs=0.012)


def test_the_oracle_is_calibrated_and_knows_rows_without_latency(small):
    errors, lacking, known = [], [], []
    for seed in range(12):
        drawn = worlds.world("lacking", seed)
        assert drawn.train["latency"].isna().sum() == (~drawn.new).sum() > 50
        law, level = worlds.oracle(drawn)
        z = (drawn.level - level.mean) / level.sd
        errors.append(
            np.concatenate([z, law.normal_scores(drawn.asked[list(several.TOGETHER)].to_numpy())])
        )
        lacking.append(level.sd[~drawn.new, 2].mean())
        known.append(level.sd[drawn.new, 2].mean())
    assert np.concatenate(errors).std(0) == pytest.approx(1, abs=0.08)
    assert np.mean(lacking) < np.mean(known)  # download and upload are measured there


def test_the_correlation_of_fields_has_its_uncertain_part():
    random = np.random.default_rng(0)
    truth = random.multivariate_normal(np.zeros(3), SEEN, 4000)
    sd = np.full(4000, np.sqrt(0.5))
    means = truth * 0.5 + random.multivariate_normal(np.zeros(3), SEEN / 4, 4000)
    law = JointPrediction(
        several.TOGETHER,
        tuple(Prediction.of_moments(mean, sd**2) for mean in means.T),
        np.tile(SEEN, (4000, 1, 1)),
    )
    assert worlds.field_correlation(law) == pytest.approx(SEEN, abs=0.03)


def test_bins_of_tiers_count_rows_and_probabilities(small):
    drawn = worlds.world("one range", 0)
    law, _ = worlds.oracle(drawn)
    for line in worlds.tier_bins(drawn, {"joint": law}):
        n, p, spread, reached = np.sum(line["bins"], 0)
        assert n == 60
        assert 0 <= spread <= p
        assert abs(reached - p) < 4 * np.sqrt(spread) + 2
        assert 0 < line["brier"]["joint"] < 0.25


def law_of(rows):
    same = np.ones(len(rows.test))
    marginals = [
        Prediction.of_moments(rows.train[name].mean() * same, rows.train[name].var() * same)
        for name in several.TOGETHER
    ]
    return JointPrediction(several.TOGETHER, tuple(marginals), np.tile(SEEN, (len(same), 1, 1)))


def test_classes_are_differences_of_nested_tiers():
    same = np.ones(2)
    marginals = tuple(Prediction.of_moments(m * same, s * same) for m, s in ((1, 0.2), (0.3, 0.2)))
    law = JointPrediction(("download", "upload"), marginals, np.tile(SEEN[:2, :2], (2, 1, 1)))
    tiers = several.tiers_of("download,upload", ["5/1", "7/1", "35/3"])
    p = several.class_probabilities(law, tiers)
    assert p.sum(1) == pytest.approx(1)
    draws = law.sample(100_000)[:, 0]
    codes = [tier.holds(draws, law.names).mean() for tier in tiers]
    assert p[0, 1:][::-1].cumsum()[::-1] == pytest.approx(codes, abs=0.005)


def test_a_small_run_writes_a_page(tmp_path, monkeypatch):
    """Fits are the means of the training rows, with the correlations of `SEEN`."""

    def fits(rows, stem):
        assert stem.name in {"DEMO-random", "DEMO-blocks"}
        law, classes = law_of(rows), np.full((len(rows.test), 4), 0.25)
        single = dict(zip(several.TOGETHER, law.marginals, strict=True))
        laws = {"joint": law, **single, "classes": classes}
        return {
            name: several.Fit(own, 30.0 if name == "joint" else 10.0, 1.0, 10**9)
            for name, own in laws.items()
        }

    monkeypatch.setattr(several, "fits", fits)
    monkeypatch.setattr(several, "LARGEST", {"DEMO": 1_500})
    monkeypatch.setattr(several, "CASES", {})
    where = ["--out", tmp_path / "out", "--table", tmp_path, "--regions", "DEMO"]
    told("accuracy.several", "--source", "none", "--boundaries", "none", *where)
    found = json.loads((tmp_path / "results.json").read_text())
    first = found["regions"][0]
    assert sum(first["rows"]) == 1_500
    assert [line["difference"][0] for line in first["targets"]] == [0, 0, 0]
    joint, independent, single = first["together"]
    assert independent["log_less_joint"] == single["log_less_joint"]
    assert joint["log_less_joint"][0] == 0
    stated = [line["stated"] for line in first["correlations"][:3]]
    assert stated == pytest.approx([0.6, -0.4, -0.3])
    whole = [line for line in first["tiers"] if line["group"] == "all"]
    assert [line["tier"] for line in whole] == [tier.name for tier in several.TIERS]
    for line in whole:
        parts = line["reliability"] - line["resolution"] + line["uncertainty"]
        assert line["brier"] == pytest.approx(parts)
    scores = {line["model"]: line["nll"] for line in first["classes"]}
    assert scores["class-dbk"] == pytest.approx(np.log(4))
    assert scores["shares"] < scores["class-dbk"]
    page = (tmp_path / "table.md").read_text()
    assert several.page(found) == page
    assert "missed in\n  0 of 6 cases" in page
    assert "the ratios are\n  3.0 to 3.0" in page


@pytest.mark.trial
def test_each_fit_is_kept_and_has_its_costs(tmp_path, monkeypatch):
    monkeypatch.setattr(several, "LARGEST", {"DEMO": 1_200})
    options = several.argparse.Namespace(source=None, boundaries=None, epochs=1)
    rows = several.rows_of(options, "DEMO", "random")
    found = several.fits(rows, tmp_path / "DEMO-random")
    assert found["joint"].law.names == several.TOGETHER
    assert found["classes"].law.shape == (len(rows.test), 4)
    for one in found.values():
        assert one.fit_seconds > 0
        assert one.peak_bytes > 10**8
    monkeypatch.setattr(several, "fit", None)  # files are there
    again = several.fits(rows, tmp_path / "DEMO-random")
    assert again["joint"].law.mean.tolist() == found["joint"].law.mean.tolist()
