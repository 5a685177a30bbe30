"""Several providers in one field model: names, files, and differences with a known truth."""

import numpy as np
import pandas as pd
import pytest

from geogp import FieldGP, RequestError, load_model
from geogp.errors import DataError
from geogp.estimators.point_scale import providers_of

SIDE, AREAS = 36, 4
"""Tiles and areas in each direction of a square."""

COLUMNS = {"x": "x", "y": "y", "crs": "EPSG:32619", "tests": "tests", "provider": "provider"}


def places():
    """Return the tiles of a square with sides of 600 m."""
    x, y = (part.ravel() for part in np.meshgrid(np.arange(SIDE), np.arange(SIDE)))
    return pd.DataFrame({"x": 5e5 + 600.0 * x, "y": 2e6 + 600.0 * y})


def smooth(random, km, sd):
    """Return values of a Gaussian process at the tiles, from random features."""
    at = places().to_numpy() / 1000
    waves, phase = random.normal(0, 1 / km, (2, 200)), random.uniform(0, 2 * np.pi, 200)
    return sd * np.sqrt(2 / 200) * np.cos(at @ waves + phase) @ random.standard_normal(200)


def world(kind, seed, n=1000):
    """Return tests of two providers, and their true levels; the difference is of a `kind`."""
    random = np.random.default_rng([seed, 7])
    first = smooth(random, 5, 0.3) + smooth(random, 2, 0.1)
    at = places()
    gap = {
        "none": np.zeros(len(at)),
        "constant": np.full(len(at), 0.2),
        "by region": np.where(np.arange(len(at)) % SIDE < SIDE // 2, 0.25, -0.1),
    }[kind]
    truth = {"North": first, "South": first + gap}
    rows = []
    for provider, level in truth.items():
        chosen = random.integers(len(at), size=n if provider == "North" else n - 100)
        tests = random.geometric(0.4, len(chosen))
        noise = 0.2 * random.standard_normal(len(chosen)) / np.sqrt(tests)
        rows.append(
            at.iloc[chosen].assign(provider=provider, tests=tests, value=level[chosen] + noise)
        )
    table = pd.concat(rows, ignore_index=True)
    return table.drop_duplicates(["x", "y", "provider"], ignore_index=True), truth


def fitted(table, seed=0, **settings):
    model = FieldGP(**COLUMNS, validation="random", preset="quick", random_state=seed, **settings)
    return model.fit(table, table.value)


def both(names=("North", "South")):
    """Return all tiles of the first provider, then those of the second."""
    return pd.concat([places().assign(provider=name) for name in names], ignore_index=True)


def differences(model, truth):
    """Return mean, sd and truth of South minus North, in areas and in the whole square, last."""
    number = np.arange(SIDE**2)
    area = number % SIDE * AREAS // SIDE + AREAS * (number // SIDE * AREAS // SIDE)
    weights = np.column_stack([np.eye(AREAS**2)[area], np.ones(SIDE**2)])
    weights /= weights.sum(0)
    law = model.joint(both(), calibrated=False).weighted_sums(np.concatenate([-weights, weights]))
    return law.mean, law.sd, weights.T @ (truth["South"] - truth["North"])


@pytest.fixture(scope="module")
def found():
    """Return table, truth and model of a world of each kind."""
    made = {}
    for seed, kind in enumerate(("none", "constant", "by region")):
        table, truth = world(kind, seed)
        made[kind] = table, truth, fitted(table)
    return made


def test_intervals_of_differences_hold_the_truth(found):
    inside = []
    for _, truth, model in found.values():
        mean, sd, expected = differences(model, truth)
        inside.append(np.abs(mean - expected) < 1.96 * sd)
    assert np.mean(inside) > 0.9


@pytest.mark.parametrize("kind", ["none", "constant", "by region"])
def test_a_difference_is_found_where_there_is_one(found, kind):
    _, truth, model = found[kind]
    mean, sd, expected = differences(model, truth)
    sure = np.abs(mean) > 1.96 * sd
    if kind == "none":
        assert sure.mean() < 0.2
    else:
        assert sure.mean() > 0.7
        assert (np.sign(mean[sure]) == np.sign(expected[sure])).all()


def test_the_map_of_each_provider_covers_its_own_tests(found):
    random = np.random.default_rng(1)
    for _, truth, model in found.values():
        for provider, level in truth.items():
            law = model.predict_distribution(places().assign(provider=provider, tests=4))
            low, high = law.interval(0.95)
            new = level + 0.1 * random.standard_normal(len(level))
            assert 0.9 < np.mean((low < new) & (new < high)) < 0.99


def test_names_do_not_matter(found):
    table, _, model = found["constant"]
    names = {"North": "Zeta", "South": "Alpha"}
    other = fitted(table.assign(provider=table.provider.map(names)))
    assert other.scale_.providers == ("Zeta", "Alpha")
    ours, theirs = (
        one.joint(both(called), calibrated=False)
        for one, called in ((model, names), (other, names.values()))
    )
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(ours.single_variances(), theirs.single_variances())


def test_a_file_keeps_the_providers(found, tmp_path):
    model = found["constant"][2]
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.provider == "provider"
    assert (again.predict(both()) == model.predict(both())).all()
    bounds = (5e5, 2e6, 5.1e5, 2.01e6)
    north, south = (again.grid(bounds, provider=name)["median"] for name in ("North", "South"))
    assert 0.1 < float((south - north).mean()) < 0.3


def test_what_is_refused(found):
    table, _, model = found["constant"]
    with pytest.raises(RequestError, match="one of North, South, found East"):
        model.predict(table.assign(provider="East"))
    with pytest.raises(RequestError, match="expected a column 'provider'"):
        model.predict(table.drop(columns="provider"))
    with pytest.raises(DataError, match="expected a provider in each row"):
        model.predict(table.assign(provider=""))
    with pytest.raises(RequestError, match="a table with the columns provider"):
        model.predict(table[["x", "y"]].to_numpy())
    with pytest.raises(RequestError, match="provider of each row, one of North, South, found none"):
        model.grid((5e5, 2e6, 5.1e5, 2.01e6))
    with pytest.raises(RequestError, match="two providers or more, found only North"):
        providers_of(np.array(["North"] * 3, object))
