"""FieldGP(law="binomial"): shares of tests that succeeded, against a simulated truth."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import geogp
from geogp.distributions.shares import SharePrediction
from geogp.errors import DataError, RequestError
from geogp.geodata.tiles.quadkeys import codes_to_tiles, tile_centres, tiles_at, tiles_to_codes
from geogp.models.fitting import few_rows


def world(seed, n):
    """Return n places with few tests each, and the true probability in per cent."""
    random = np.random.default_rng(seed)
    x, y = random.uniform(0, 10, (2, n))
    phase = random.uniform(0, 6)
    truth = 100 * expit(1.2 + 1.5 * np.sin(x / 2 + phase) + np.cos(y / 2))
    tests = random.geometric(0.4, n)
    share = 100 * random.binomial(tests, truth / 100) / tests
    return pd.DataFrame({"x": x, "y": y, "tests": tests, "share": share, "truth": truth})


def model(**parameters):
    given = {"x": "x", "y": "y", "crs": None, "tests": "tests", "law": "binomial"}
    return geogp.FieldGP(**given | parameters)


@pytest.fixture(scope="module")
def fitted():
    rows = world(0, 600)
    return model().fit(rows[:300], rows["share"][:300]), rows[300:]


def test_the_level_is_the_probability_of_success(fitted):
    estimator, rows = fitted
    assert estimator.law_ == "binomial"
    law = estimator.predict_distribution(rows, level=True)
    assert estimator.path_ == "exact"
    off = np.sqrt(np.mean((law.mean - rows["truth"]) ** 2))
    assert off < 0.5 * rows["truth"].std()
    lower, upper = law.interval(0.95)
    inside = (lower <= rows["truth"]) & (rows["truth"] <= upper)
    assert 0.88 < inside.mean() <= 1
    assert (upper - lower).mean() < 2.2 * 2 * 1.96 * off


def test_shares_of_rows_that_are_held_out_are_calibrated(fitted):
    estimator, rows = fitted
    y = rows["share"].to_numpy()
    law = estimator.predict_distribution(rows)
    ranks = np.histogram(law.pit(y), 5, (0, 1))[0] / len(rows)
    assert np.abs(ranks - 0.2).max() < 0.09
    lower, upper = law.interval(0.8)
    inside = ((lower <= y) & (y <= upper)).mean()
    assert inside == pytest.approx(law.interval_mass(0.8).mean(), abs=0.06)
    alone = np.full(len(rows), float(np.average(y, weights=rows["tests"])))
    constant = SharePrediction.of_moments(alone, alone).of_tests(rows["tests"].to_numpy(float))
    assert law.log_score(y).mean() < constant.log_score(y).mean() - 0.03


def test_it_is_the_same_after_a_file(fitted, tmp_path):
    estimator, rows = fitted
    estimator.save(tmp_path / "model.safetensors")
    read = geogp.load_model(tmp_path / "model.safetensors")
    for level in (False, True):
        first, second = (
            one.predict_distribution(rows, level=level).interval(0.9) for one in (estimator, read)
        )
        np.testing.assert_allclose(first, second)


def test_the_joint_level_is_that_of_the_probability(fitted):
    estimator, rows = fitted
    level, alone = estimator.joint(rows[:50]), estimator.predict_distribution(rows[:50], level=True)
    np.testing.assert_allclose(np.clip(level.mean, 0.1, 99.9), alone.mean, atol=1e-6)


def test_without_an_exact_process_tests_lower_the_noise(monkeypatch):
    monkeypatch.setattr(few_rows, "FOLDS", 3)  # the width is of no account here
    rows = world(1, 200)
    with pytest.warns(UserWarning, match="200 rows at 200 places are few"):
        estimator = model(epochs=2).fit(rows, rows["share"])
    assert estimator.path_ == "basis"
    law = estimator.predict_distribution(rows)
    assert isinstance(law, SharePrediction)
    np.testing.assert_array_equal(law.tests, rows["tests"])


def test_what_it_cannot_be_is_refused():
    rows = world(2, 40)
    for wrong in ({"devices": "tests"}, {"group": "tests"}):
        with pytest.raises(RequestError, match="law='binomial' takes tests="):
            model(**wrong).fit(rows, rows["share"])
    with pytest.raises(RequestError, match="law and error_variance cannot be given together"):
        model(error_variance="tests").fit(rows, rows["share"])
    with pytest.raises(DataError, match=r"tests succeeded; there is nothing to learn"):
        model().fit(rows, np.full(40, 100.0))
    with pytest.raises(DataError, match="percentages from 0 to 100, found 120"):
        model().fit(rows, np.r_[np.zeros(39), 120.0])


def test_known_errors_of_means_of_tests_are_besides_the_noise_of_tests():
    """Instruments of two kinds, and rows of 1 to 16 tests: the level needs both."""
    random, n = np.random.default_rng(3), 400
    x, y = random.uniform(0, 10, (2, n))
    tests, sd = 4.0 ** random.integers(0, 3, n), random.choice([0.05, 1.0], n)
    truth = np.sin(x) + np.cos(y)
    values = truth + random.standard_normal(n) * np.hypot(sd, 0.6 / np.sqrt(tests))
    rows = pd.DataFrame({"x": x, "y": y, "tests": tests, "v": sd**2})
    both = geogp.FieldGP(x="x", y="y", crs=None, tests="tests", error_variance="v")
    both.fit(rows[:300], values[:300])
    assert both.path_ == "exact"
    law = both.predict_distribution(rows[300:])
    standard = (values[300:] - law.mean) / law.sd
    for some in (sd[300:] > 0.5, (sd[300:] < 0.5) & (tests[300:] > 1)):
        assert 0.75 < standard[some].std() < 1.3
    perfect = both.predict_distribution(pd.DataFrame({"x": [5.0], "y": [5.0], "tests": [16.0]}))
    single = both.predict_distribution(pd.DataFrame({"x": [5.0], "y": [5.0], "tests": [1.0]}))
    assert perfect.noise_variance[0] < 0.5 * single.noise_variance[0]


def clustered_log(seed):
    """Return the tiles of 3,000 tests at 25 towns, with the true probability of success."""
    random, n = np.random.default_rng(seed), 3000
    towns = random.uniform((-66.6, 18.0), (-66.2, 18.3), (25, 2))
    own = random.choice(25, n, p=random.dirichlet(np.ones(25)))
    places = towns[own] + random.normal(0, 0.02, (n, 2))
    waves, phases = random.normal(0, 1, (200, 2)), random.uniform(0, 2 * np.pi, 200)

    def truth(longitude, latitude):
        km = np.column_stack([(longitude + 66.4) * 105, (latitude - 18.15) * 110.6])
        return 100 * expit(1.5 + 0.12 * np.cos(km / 8 @ waves.T + phases).sum(1))

    works = random.random(n) < truth(*places.T) / 100
    codes, tile = np.unique(tiles_to_codes(*tiles_at(*places.T)), return_inverse=True)
    longitude, latitude = tile_centres(*codes_to_tiles(codes))
    tests = np.bincount(tile)
    table = {"longitude": longitude, "latitude": latitude, "tests": tests}
    share = 100 * np.bincount(tile, works) / tests
    rows = pd.DataFrame(table | {"share": share, "truth": truth(longitude, latitude)})
    return rows.sample(frac=1, random_state=seed)


@pytest.mark.trial
def test_intervals_hold_in_simulated_logs():
    """The figures of the page on own data: three logs, a fifth of the tiles held out."""
    found = []
    for seed in range(3):
        rows = clustered_log(seed)
        held, known = rows[: len(rows) // 5], rows[len(rows) // 5 :]
        estimator = geogp.FieldGP(law="binomial", tests="tests").fit(known, known["share"])
        level = estimator.predict_distribution(held, level=True)
        law, y = estimator.predict_distribution(held), held["share"]
        within = [
            (low <= value) & (value <= high)
            for value, (low, high) in (
                (held["truth"], level.interval(0.95)),
                (y, law.interval(0.95)),
                (y, law.interval(0.8)),
            )
        ]
        constant = np.average(known["share"], weights=known["tests"])
        off = [np.sqrt(np.mean((m - held["truth"]) ** 2)) for m in (level.mean, constant)]
        mass = [law.interval_mass(part).mean() for part in (0.95, 0.8)]
        found.append([*(part.mean() for part in within), *mass, *off])
    found = np.array(found)
    print(found.round(3))  # noqa: T201 - shown with -s, for the page
    level, wide, middle, wide_mass, middle_mass, off, constant = found.T
    assert (level > 0.93).all()
    np.testing.assert_allclose(wide, wide_mass, atol=0.03)
    np.testing.assert_allclose(middle, middle_mass, atol=0.05)
    assert (off < 0.5 * constant).all()
