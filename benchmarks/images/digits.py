"""Classes of small images: sparse processes, last layers and ensembles on scikit-learn's digits.

    python -m benchmarks images.digits --seeds 5

The images have 8 x 8 pixels. Each seed removes three of the ten classes from the training rows, as
in Lee et al., "Scale mixtures of neural network Gaussian processes" (Scale), and divides the rows
8:2 into training and test rows. A tenth of the training rows chooses the epoch. Each method and
seed has its own file under --out, and the same command continues where it stopped.
"""

import argparse
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from benchmarks.images.digits_table import write_part
from benchmarks.script import Figures, Floats, kept, machine, options_of, say
from geogp import ClassGP
from geogp.distributions.prediction import Prediction
from geogp.evaluation.class_scores import class_scores
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.classes.softmax_layers import EnrichedSoftmax
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

Codes = NDArray[np.intp]

HELD_OUT = 3
"""Number of classes without training rows."""

TEST_SHARE = 0.2

ANGLE = 15
"""Rotation in degrees of images that keep their class."""

SHARE = 0.4
"""Share of the rows in the subsampled variant of the enriched last layer (Rich C.1)."""

MEMBERS = 8

NODES, SHARES = np.polynomial.legendre.leggauss(64)
"""Nodes and weights on [-1, 1] of the integral in `largest_probabilities`."""


@dataclass(frozen=True)
class Images:
    """The rows of one seed: images (n, 64) from -1 to 1, and classes (n,).

    `train` and `test` have only known classes; `unknown` are images of the removed classes.
    """

    train: tuple[Floats, Codes]
    test: tuple[Floats, Codes]
    unknown: tuple[Floats, Codes]


@dataclass(frozen=True)
class Answer:
    """Functions of images: probabilities of ten classes (n, 10), and scores of unusual images (n,).

    `density`, for Gaussian likelihoods: minus the log density of the indicators of all known
    classes, from images and classes, (n,).
    """

    probabilities: Callable[[Floats], Floats]
    unusual: Callable[[Floats], Floats]
    density: Callable[[Floats, Codes], Floats] | None = None


def images(seed: int) -> Images:
    """Return the rows of a seed."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    removed = rng.choice(10, HELD_OUT, replace=False)
    order = rng.permutation(len(y))
    first = order[: round(len(y) * (1 - TEST_SHARE))]
    known = ~np.isin(y, removed)
    train = np.isin(np.arange(len(y)), first) & known
    test = ~np.isin(np.arange(len(y)), first)
    parts = (train, test & known, test & ~known)
    return Images(*((x[rows] / 8 - 1, y[rows]) for rows in parts))


def rotated(x: Floats, angle: float) -> Floats:
    """Return square images rotated about their centre, (n, pixels)."""
    side = math.isqrt(x.shape[1])
    turned = ndimage.rotate(
        x.reshape(-1, side, side), angle, axes=(1, 2), reshape=False, order=1, cval=-1.0
    )
    return turned.clip(-1, 1).reshape(len(x), -1)


def class_gp(model: str, score: str, rows: Images, seed: int, members: int = 1) -> Answer:
    """Fit a model of the public estimator; `score` is an attribute of `ClassPrediction`."""
    found = fitted(model, members, rows, seed)
    return Answer(found.predict_proba, lambda x: getattr(found.predict_distribution(x), score))


def fitted(model: str, members: int, rows: Images, seed: int) -> ClassGP:
    """Return the fitted estimator, with all ten classes."""
    found = ClassGP(
        model,
        members=members,
        classes=list(range(10)),
        scaling="none",
        random_state=seed,
        device="cpu",
    )
    return found.fit(*rows.train)


def subsampled(rows: Images, seed: int) -> Answer:
    """Return the enriched last layer whose covariance uses a share of the training rows."""
    found = fitted("class-rich-bll", 1, rows, seed)
    network = found.networks_[0]
    assert isinstance(network, EnrichedSoftmax)
    take_share(network, network.scaled(rows.train[0][~found.validation_]), seed)
    return Answer(found.predict_proba, lambda x: found.predict_distribution(x).logit_variance)


def take_share(network: EnrichedSoftmax, scaled: torch.Tensor, seed: int) -> None:
    """Set the covariance of an enriched last layer to that of a share of its scaled rows (n, d)."""
    most = max(round(SHARE * len(scaled)), network.basis.rank)
    with torch.no_grad():
        network.take_factor(network.factor(scaled, seed, most))


def one_hot(model: str, rows: Images, seed: int) -> Answer:
    """Fit a process with a Gaussian likelihood to the indicator of each class (Scale F).

    The probability of a class is the probability that its value is the largest of all. The score
    is the sd of the value of the most probable class. Removed classes have the probability 0.
    """
    networks = indicator_processes(model, rows, seed)
    classes = np.array(list(networks))

    def laws(at: Floats) -> list[Prediction]:
        return [network.predict(at) for network in networks.values()]

    def probabilities(at: Floats) -> Floats:
        found = np.zeros((len(at), 10))
        found[:, classes] = largest_probabilities(laws(at))
        return found

    def unusual(at: Floats) -> Floats:
        found = laws(at)
        best = np.stack([law.mean for law in found]).argmax(0)
        return np.stack([law.sd for law in found])[best, np.arange(len(at))]

    def density(at: Floats, known: Codes) -> Floats:
        return indicator_density(laws(at), classes, known)

    return Answer(probabilities, unusual, density)


def indicator_processes(
    model: str, rows: Images, seed: int, epochs: int = 3
) -> dict[int, LowRankProcess]:
    """Fit a process to the indicator of each class; an epoch has ten iterations of L-BFGS."""
    x, y = rows.train
    held = np.random.default_rng(seed).random(len(y)) < 0.1
    found = {}
    for one in np.unique(y).tolist():
        target = (y == one).astype(np.float64)
        data, chosen = (Data(x[part], target[part]) for part in (~held, held))
        varying = data.x.min(0) < data.x.max(0)
        names = tuple(f"x{k}" for k in range(x.shape[1]))
        dropped = tuple(name for name, used in zip(names, varying, strict=True) if not used)
        sizes = Architecture(x.shape[1], r=128, columns=names, dropped=dropped)
        process = build(model, sizes, data.x, placement="kmeans++", noise_start=0.1, seed=seed)
        fit(process, data, chosen, FitSettings(epochs=epochs, batch=len(data.y), optimiser="lbfgs"))
        found[one] = process
    return found


def indicator_density(laws: Sequence[Prediction], classes: Codes, known: Codes) -> Floats:
    """Return minus the log density of the indicators of all classes, (n,)."""
    scores = (
        law.log_score((known == one).astype(np.float64))
        for law, one in zip(laws, classes, strict=True)
    )
    return functools.reduce(np.add, scores)


def largest_probabilities(laws: Sequence[Prediction]) -> Floats:
    """Return the probability that each of k independent values is the largest, (n, k).

    P(j) = ∫ Π_{i ≠ j} F_i(Q_j(u)) du over u from 0 to 1, by Gauss-Legendre quadrature, divided by
    the sum over j. F_i and Q_i are distribution and quantile functions.
    """
    found = np.zeros((len(laws[0]), len(laws)))
    for node, share in zip((NODES + 1) / 2, SHARES / 2, strict=True):
        for j, law in enumerate(laws):
            value = law.quantile(float(node))
            others = (other.cdf(value) for i, other in enumerate(laws) if i != j)
            found[:, j] += share * functools.reduce(np.multiply, others)
    return found / found.sum(1, keepdims=True)


_SPARSE, _LAST, _MEMBERS = "mutual_information", "logit_variance", {"members": MEMBERS}

METHODS: dict[str, Callable[[Images, int], Answer]] = {
    **{name: functools.partial(one_hot, name) for name in ("nngp", "t-process", "burr-process")},
    **{
        name + (f", {MEMBERS}" if more else ""): functools.partial(class_gp, name, score, **more)
        for name, score, more in (
            *((f"class-{kind}", _SPARSE, {}) for kind in ("nngp", "t-process", "rbf", "dbk")),
            ("class-dnn", "entropy", {}),
            *((f"class-{kind}", _LAST, {}) for kind in ("laplace", "bll", "rich-bll")),
            *((f"class-dnn-{prior}", _SPARSE, _MEMBERS) for prior in ("normal", "student")),
        )
    },
    "class-rich-bll, 40 %": subsampled,
}


def measure(method: str, seed: int) -> Figures:
    """Return the scores of a method with one seed."""
    rows = images(seed)
    start = monotonic()
    with warnings.catch_warnings():
        # The prior of the scale and the small number of rows are as the benchmark wants them.
        warnings.simplefilter("ignore", UserWarning)
        answer = METHODS[method](rows, seed)
    seconds = monotonic() - start
    (x, y), (strange, removed) = rows.test, rows.unknown
    p, p_strange, p_turned = map(answer.probabilities, (x, strange, rotated(x, ANGLE)))
    quarter = rotated(x, 90)
    turned = class_scores(p_turned, y)
    everything = class_scores(np.concatenate([p, p_strange]), np.concatenate([y, removed]))

    def entropy(at: Floats) -> Floats:
        return -np.where(at > 0, at * np.log(np.where(at > 0, at, 1.0)), 0.0).sum(1)

    usual, others = answer.unusual(x), {"removed": strange, "quarter": quarter}
    plain = {"removed": p_strange, "quarter": answer.probabilities(quarter)}
    mark = {k: np.repeat([False, True], [len(x), len(at)]) for k, at in others.items()}
    return {
        "method": method,
        "seed": seed,
        "rows": [len(rows.train[1]), len(y), len(removed)],
        **asdict(class_scores(p, y)),
        "nll_all": everything.nll if math.isfinite(everything.nll) else None,
        "density": None if answer.density is None else float(answer.density(x, y).mean()),
        "accuracy_turned": turned.accuracy,
        "nll_turned": turned.nll,
        "ece_turned": turned.ece,
        **{
            f"auroc_{k}": float(roc_auc_score(mark[k], np.concatenate([usual, answer.unusual(at)])))
            for k, at in others.items()
        },
        **{
            f"entropy_{k}": float(roc_auc_score(mark[k], np.concatenate([entropy(p), entropy(at)])))
            for k, at in plain.items()
        },
        "seconds": seconds,
    }


def study(options: argparse.Namespace) -> list[Figures]:
    """Return the figures of all methods and seeds; compute those whose files do not exist."""
    found = []
    for seed in range(options.seeds):
        for method in options.methods:
            path = options.out / f"{method.replace(', ', '-').replace(' %', '')}-{seed}.json"
            found.append(kept(path, functools.partial(measure, method, seed)))
            say(found[-1])
    return found


def main() -> None:
    """Make the figures whose files do not exist yet, and the table."""
    options = options_of(__doc__, out="digits", table="digits", seeds=5, methods=METHODS)
    write_part(options.table, "digits", {"machine": machine(), "figures": study(options)})
