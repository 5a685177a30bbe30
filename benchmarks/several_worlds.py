"""Simulated worlds of download, upload and latency with a known truth, and what fits make of them.

In a square, the targets (log10) are y = c + f + e. The field f is a linear model of
coregionalisation (Goovaerts 1997, section 4.2): its covariance at the distance h is a sum of
S_r C(h / r) over ranges r, with a Matérn correlation C of smoothness 3/2. The noise e of the
average of n tests has the covariance E / n. The cases:

- ``one range``: one range, as the model assumes.
- ``two ranges``: two ranges with unlike correlations, which the model does not assume.
- ``lacking``: one range; some training rows lack the latency.

An oracle knows all parameters: its cokriging is the best possible prediction.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
from scipy.spatial.distance import cdist

import geogp
from benchmarks.script import Figures, Floats, clock, machine
from geogp.arrays import Mask
from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.geodata.tiles.targets import TOGETHER
from geogp.geodata.tiles.tiers import tiers_of
from geogp.runs.pipeline.arithmetic import arithmetic

SIDE, TRAINED, ASKED = 40.0, 2_000, 1_000
"""Side of the square, and numbers of training rows and of new places."""

CENTRE = np.log10([30.0, 5.0, 60.0])
"""c: means of download, upload and latency."""

TESTS = 0.35
"""The number of tests of a row is geometric with this probability."""

LACKS = 0.6
"""Share of the training rows of the case ``lacking`` without latency."""

EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Ends of the bins of stated probabilities of tiers."""

PAIRS = list(combinations(range(len(TOGETHER)), 2))

Covariances = dict[float, Floats]


def covariance(sds: tuple[float, ...], correlations: tuple[float, ...]) -> Floats:
    """Return a covariance matrix of the targets from the correlations of `PAIRS`."""
    found = np.eye(len(sds))
    for (i, j), r in zip(PAIRS, correlations, strict=True):
        found[i, j] = found[j, i] = r
    return found * np.outer(sds, sds)


ONE_RANGE: Covariances = {6.0: covariance((0.3, 0.3, 0.12), (0.7, -0.5, -0.4))}

CASES: dict[str, Covariances] = {
    "one range": ONE_RANGE,
    "two ranges": {
        2.5: covariance((0.2, 0.2, 0.08), (0.2, 0.3, -0.5)),
        12.0: covariance((0.22, 0.22, 0.09), (0.9, -0.8, -0.6)),
    },
    "lacking": ONE_RANGE,
}
"""The matrices S_r of the field by range r."""

NOISE = covariance((0.35, 0.4, 0.15), (0.5, -0.2, 0.3))
"""E: covariance of the noise of one test."""


class World(NamedTuple):
    """Training rows and asked rows, with x, y, tests and the targets, and the field of asked rows.

    ``new`` marks asked rows at new places; the others are places of training rows that lack the
    latency, with new measurements.
    """

    field: Covariances
    train: pd.DataFrame
    asked: pd.DataFrame
    level: Floats
    new: Mask


def matern(distance: Floats) -> Floats:
    """Return the Matérn correlation of smoothness 3/2 at distances in ranges."""
    lag = np.sqrt(3) * distance
    return np.asarray((1 + lag) * np.exp(-lag))


def world(case: str, seed: int) -> World:
    """Draw a world."""
    rng = np.random.default_rng([seed, list(CASES).index(case)])
    n, t = TRAINED + ASKED, len(TOGETHER)
    places = rng.uniform(0, SIDE, (n, 2))
    level = np.tile(CENTRE, (n, 1))
    for length, between in CASES[case].items():
        factor = np.linalg.cholesky(matern(cdist(places, places) / length) + 1e-9 * np.eye(n))
        level += factor @ rng.standard_normal((n, t)) @ np.linalg.cholesky(between).T
    train, asked = np.arange(TRAINED), np.arange(TRAINED, n)
    lacks = train[rng.uniform(size=TRAINED) < LACKS] if case == "lacking" else train[:0]
    asked = np.concatenate([asked, lacks])

    def rows(number: Any) -> pd.DataFrame:
        tests = rng.geometric(TESTS, len(number))
        noise = rng.standard_normal((len(number), t)) @ np.linalg.cholesky(NOISE).T
        y = level[number] + noise / np.sqrt(tests)[:, None]
        found = pd.DataFrame(places[number], columns=["x", "y"]).assign(tests=tests)
        return found.assign(**dict(zip(TOGETHER, y.T, strict=True)))

    known = rows(train)
    known.loc[lacks, "latency"] = np.nan
    return World(CASES[case], known, rows(asked), level[asked], asked >= TRAINED)


def oracle(drawn: World) -> tuple[JointPrediction, JointPrediction]:
    """Return the predictions of measurements and levels by cokriging with the true parameters."""
    t, (known, asked) = (
        len(TOGETHER),
        (each[["x", "y"]].to_numpy() for each in (drawn.train, drawn.asked)),
    )
    y = (drawn.train[list(TOGETHER)].to_numpy() - CENTRE).T.reshape(-1)
    have = ~np.isnan(y)

    def between(first: Floats, second: Floats) -> Floats:
        lags = cdist(first, second)
        return np.asarray(
            sum(np.kron(S, matern(lags / length)) for length, S in drawn.field.items())
        )

    noise = np.kron(NOISE, np.diag(1 / drawn.train["tests"].to_numpy()))
    factor = np.linalg.cholesky((between(known, known) + noise)[np.ix_(have, have)])
    white = scipy.linalg.solve_triangular(
        factor, np.column_stack([between(known, asked)[have], y[have]]), lower=True
    )
    part = white[:, :-1].reshape(-1, t, len(asked))
    mean = CENTRE + np.einsum("min,m->ni", part, white[:, -1])
    prior = sum(drawn.field.values())
    left = prior - np.einsum("min,mjn->nij", part, part)
    own = NOISE / drawn.asked["tests"].to_numpy()[:, None, None]
    return _joint(mean, left, own), _joint(mean, left, 0 * own)


def _joint(mean: Floats, field: Floats, noise: Floats) -> JointPrediction:
    parts = (np.diagonal(each, axis1=1, axis2=2).T for each in (field, noise))
    marginals = tuple(Prediction(*each) for each in zip(mean.T, *parts, strict=True))
    return JointPrediction(TOGETHER, marginals, correlation_of(field + noise))


def correlation_of(covariances: Floats) -> Floats:
    """Return the correlation matrices of covariances, (..., t, t) each."""
    sd = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    return np.asarray(covariances / (sd[..., :, None] * sd[..., None, :]))


def fitted(drawn: World, target: str | None = None) -> tuple[Any, Any, float, Any]:
    """Fit all targets together, or one; return both predictions, the CPU seconds and the model."""
    train = drawn.train
    if target is not None:
        train = train[train[target].notna()]
    start = clock("cpu")
    with arithmetic():
        model = geogp.FieldGP(x="x", y="y", crs=None, tests="tests", preset="quick")
        inputs = train[["x", "y", "tests"]]
        model.fit(inputs, train[list(TOGETHER) if target is None else target])
        seconds = clock("cpu") - start
        new = drawn.asked[["x", "y", "tests"]]
        laws = [model.predict_distribution(new, level=level) for level in (False, True)]
    return (*laws, seconds, model)


def noise_correlation(model: Any) -> Floats:
    """Return the correlation of the noise of one test in a fit of several targets, (t, t)."""
    several = model.several_
    middle = np.zeros((1, 2))
    e = np.concatenate([one.predict(middle, 1.0).noise_variance for one in several.models])
    C = several.laws.noise
    return correlation_of((C * e) @ C.T)


def field_correlation(level: JointPrediction) -> Floats:
    """Return the correlation of levels over places: of their means, and of what is uncertain."""
    sd = level.sd
    uncertain = (level.correlation * sd[:, :, None] * sd[:, None, :]).mean(0)
    return correlation_of(np.cov(level.mean.T, bias=True) + uncertain)


def measured(case: str, seed: int) -> Figures:
    """Draw a world, fit it, and return the scores of asked rows and what is known of the truth."""
    drawn = world(case, seed)
    joint, level, seconds, model = fitted(drawn)
    singles = [fitted(drawn, name) for name in TOGETHER]
    best, best_level = oracle(drawn)
    apart = np.tile(np.eye(len(TOGETHER)), (len(joint), 1, 1))
    laws = {
        "joint": (joint, level),
        "single": tuple(
            JointPrediction(TOGETHER, tuple(one[k] for one in singles), apart) for k in (0, 1)
        ),
        "oracle": (best, best_level),
    }
    new, truth = drawn.new, drawn.level
    errors = (truth - level.mean) / level.sd
    stated = {
        "field": (np.corrcoef(truth[new].T), field_correlation(level[new])),
        "error of the level": (np.corrcoef(errors[new].T), level[new].correlation.mean(0)),
        "noise": (correlation_of(NOISE), noise_correlation(model)),
    }
    groups = {"new places": new} | ({} if new.all() else {"rows without latency": ~new})
    return {
        "case": case,
        "seed": seed,
        "rows": [len(drawn.train), int(new.sum()), int((~new).sum())],
        "correlations": {
            name: [[float(each[i, j]) for i, j in PAIRS] for each in both]
            for name, both in stated.items()
        },
        "scores": [
            {"group": group, "model": name, **scores(drawn, law, mask)}
            for group, mask in groups.items()
            for name, law in laws.items()
        ],
        "tiers": list(tier_bins(drawn, {name: law[0] for name, law in laws.items()})),
        "cpu_seconds": {"joint": seconds, "single": [one[2] for one in singles]},
        "machine": machine(),
    }


def scores(drawn: World, law: tuple[Any, Any], mask: Mask) -> Figures:
    """Return the scores of measurements and levels in a group of asked rows."""
    own, level = law[0][mask], law[1][mask]
    y, truth = drawn.asked[list(TOGETHER)].to_numpy()[mask], drawn.level[mask]
    inside = []
    for held, what in ((own, y), (level, truth)):
        low, high = held.interval(0.95)
        inside.append(((low <= what) & (what <= high)).mean(0).tolist())
    return {
        "together": float(own.joint_log_score(y).mean()),
        "log_scores": [float(one.log_score(y[:, k]).mean()) for k, one in enumerate(own.marginals)],
        "rmse_level": np.sqrt(np.square(level.mean - truth).mean(0)).tolist(),
        "coverage": inside[0],
        "coverage_level": inside[1],
    }


def tier_bins(drawn: World, laws: dict[str, JointPrediction]) -> Iterator[Figures]:
    """Yield probabilities and outcomes of each tier at new places, by bins, and Brier scores.

    A bin has its number of rows, the sum of probabilities, that of p (1 - p), and how many rows
    reached the tier.
    """
    y = drawn.asked[list(TOGETHER)].to_numpy()[drawn.new]
    for tier in tiers_of(",".join(TOGETHER)):
        reached = tier.holds(y, TOGETHER)
        p = {name: tier.probability(law[drawn.new]) for name, law in laws.items()}
        own = p["joint"]
        number = np.digitize(own, EDGES[1:-1])
        yield {
            "tier": tier.name,
            "brier": {name: float(np.square(q - reached).mean()) for name, q in p.items()},
            "bins": [
                [float(np.bincount(number, weight, len(EDGES) - 1)[k])
                 for weight in (np.ones(len(own)), own, own * (1 - own), reached)]
                for k in range(len(EDGES) - 1)
            ],
        }  # fmt: skip
