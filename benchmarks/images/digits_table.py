"""The page of `digits.py` and `mnist.py`; and of `digits.py`, the comparisons and scores."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.images import mnist_table
from benchmarks.markdown import table, with_error
from benchmarks.script import Figures, write_results

COLUMNS = {
    "accuracy": ("accuracy", 3),
    "NLL": ("nll", 4),
    "ECE": ("ece", 4),
    "Brier": ("brier", 4),
    "NLL, all classes": ("nll_all", 3),
    "accuracy, 15°": ("accuracy_turned", 3),
    "NLL, 15°": ("nll_turned", 3),
    "AUROC, removed": ("auroc_removed", 3),
    "AUROC, 90°": ("auroc_quarter", 3),
    "... by entropy": ("entropy_removed", 3),
    "... 90°, by entropy": ("entropy_quarter", 3),
    "s": ("seconds", 0),
}
"""Columns of the table: the name of each figure, and its digits."""

NAMES = {
    "nngp": "`nngp` on indicators (Scale 4.3)",
    "t-process": "`t-process` on indicators",
    "burr-process": "`burr-process` on indicators",
    "class-nngp": "`class-nngp`: SVGP (Scale C)",
    "class-t-process": "`class-t-process`: SVTP (Scale D)",
    "class-rbf": "`class-rbf`",
    "class-dbk": "`class-dbk`",
    "class-dnn": "`class-dnn`: MAP network",
    "class-laplace": "`class-laplace`",
    "class-bll": "`class-bll`",
    "class-rich-bll": "`class-rich-bll`",
    "class-rich-bll, 40 %": "`class-rich-bll`, 40 % of the rows",
    "class-dnn-normal, 8": "8 x `class-dnn-normal` (Scale 4.5)",
    "class-dnn-student, 8": "8 x `class-dnn-student` (Scale 4.5)",
}


class Claim(NamedTuple):
    """A comparison of a paper: figure of `first` minus figure of `second`, and the paper's text."""

    first: str
    second: str
    figure: str
    what: str
    paper: str


_SVTP = ("class-t-process", "class-nngp")
_STUDENT = ("class-dnn-student, 8", "class-dnn-normal, 8")
_RICH = ("class-rich-bll, 40 %", "class-bll")

CLAIMS = (
    Claim(
        *("t-process", "nngp", "density", "NLL of the indicators"),
        "Scale table 4: lower on all 10 sets (MNIST 4.89 and 9.29)",
    ),
    Claim(
        *("burr-process", "nngp", "density", "NLL of the indicators"),
        "Scale table 4: lower on all 10 sets (MNIST 4.96 and 9.29)",
    ),
    Claim(
        *(*_SVTP, "nll", "NLL"),
        "Scale table 2: alike (MNIST .0890 and .0896; CIFAR10 1.321 and 1.320)",
    ),
    Claim(
        *(*_SVTP, "nll_all", "NLL, all classes"),
        "Scale table 2: lower on all 6 sets (MNIST 2.07 and 2.17)",
    ),
    Claim(
        *(*_SVTP, "nll_turned", "NLL, rotated"),
        "Scale table 2, corruptions: lower on 6 of 9 (MNIST, glass blur, .972 and 1.007)",
    ),
    Claim(
        *(*_STUDENT, "nll", "NLL"),
        "Scale table 3: alike (MNIST .0032 and .0033; CIFAR10 .0874 and .0868)",
    ),
    Claim(
        *(*_STUDENT, "nll_all", "NLL, all classes"),
        "Scale table 3: lower on all 6 sets (MNIST .743 and .827)",
    ),
    Claim(
        *(*_STUDENT, "nll_turned", "NLL, rotated"),
        "Scale table 3, corruptions: lower on 7 of 9 (MNIST, glass blur, .0283 and .0325)",
    ),
    Claim(*(*_RICH, "nll", "NLL"), "Rich table 5: lower (0.56 and 0.58)"),
    Claim(*(*_RICH, "ece", "ECE"), "Rich table 5: lower (0.029 and 0.046)"),
    Claim(
        *(*_RICH, "auroc_removed", "AUROC, removed"),
        "Rich table 5: higher (CIFAR-100 0.65 and 0.62)",
    ),
    Claim(
        *(*_RICH, "auroc_quarter", "AUROC, 90°"),
        "Rich table 5: higher (SVHN 0.91 and 0.88)",
    ),
    Claim(
        *("class-rich-bll, 40 %", "class-laplace", "auroc_removed", "AUROC, removed"),
        "Rich table 5: higher (CIFAR-100 0.65 and 0.55)",
    ),
    Claim(
        *("class-rich-bll, 40 %", "class-laplace", "nll", "NLL"),
        "Rich table 5: lower (0.56 and 0.57)",
    ),
)


def scores_table(figures: Sequence[Figures]) -> str:
    """Return a line for each method: mean ± standard error over the seeds."""
    lines = []
    for method, name in NAMES.items():
        rows = [one for one in figures if one["method"] == method]
        if rows:
            lines.append((name, *(_shown(rows, *column) for column in COLUMNS.values())))
    return table(("method", *COLUMNS), lines)


def claims_table(figures: Sequence[Figures]) -> str:
    """Return a line for each comparison, with the paired difference over the seeds."""
    lines = []
    for claim in CLAIMS:
        pair = [
            {one["seed"]: one[claim.figure] for one in figures if one["method"] == method}
            for method in (claim.first, claim.second)
        ]
        seeds = sorted(pair[0].keys() & pair[1].keys())
        if not seeds:
            continue
        first, second = (np.array([part[seed] for seed in seeds]) for part in pair)
        means = f"{first.mean():.4g} and {second.mean():.4g}"
        difference = with_error(first - second, 4)
        lines.append(
            (f"`{claim.first}` - `{claim.second}`", claim.what, claim.paper, means, difference)
        )
    header = ("comparison", "figure", "paper", "here", "difference here")
    return table(header, lines, left=(0, 1, 2))


def _shown(rows: Sequence[Figures], figure: str, digits: int) -> str:
    values = [one[figure] for one in rows]
    if any(value is None for value in values):
        return "-"
    return f"{np.mean(values):.0f}" if not digits else with_error(values, digits)


def page(parts: dict[str, Figures]) -> str:
    """Return the page, from the figures and the machine of `mnist.py` and of `digits.py`."""
    sections = {"mnist": mnist_table.section, "digits": section}
    shown = "\n".join(make(parts[name]) for name, make in sections.items() if name in parts)
    return f"""# Classes of small images

Models of classes, compared as in tables 2 to 4 of Lee et al., "Scale mixtures of neural network
Gaussian processes" (Scale), and in table 5 of Calvo-Ordoñez et al., "Richer Bayesian Last Layers
with Subsampled NTK Features" (Rich). Lower NLL and ECE (15 bins), and higher accuracy and AUROC,
are better.

{shown}"""


def write_part(folder: Path, name: str, part: Figures) -> None:
    """Write the page and its figures with a new part; the other part stays as it is."""
    known = folder / "results.json"
    parts = json.loads(known.read_text("utf-8")) if known.exists() else {}
    parts |= {name: part}
    write_results(folder, page(parts), parts)


def section(part: Figures) -> str:
    """Return the section on scikit-learn's digits."""
    figures, about = part["figures"], part["machine"]
    seeds = sorted({one["seed"] for one in figures})
    rows = np.mean([one["rows"] for one in figures], 0).round().astype(int)
    return f"""## scikit-learn's digits

    python -m benchmarks images.digits --seeds {len(seeds)}

{len(seeds)} seeds of scikit-learn's digits (1,797 images of 8 x 8 pixels). The papers have other
images, so only the order of the methods can be compared. Networks have two layers of 64 units, and
kernels belong to fully connected networks. Each seed removes three classes from the training rows,
and divides the rows 8:2 ({rows[0]} training rows with the tenth that chooses the epoch, {rows[1]}
test rows of known classes and {rows[2]} of removed classes, on average). All methods of a seed have
the same rows, and the last layers have the same network. One thread of a CPU, geogp
{about["geogp"]}, torch {about["torch"]}.

- **NLL, ECE** (15 bins), **Brier**: test rows of the seven known classes. Lower is better.
- **NLL, all classes**: test rows of all ten classes, as "w. OOD" of Scale. The models know that
  ten classes exist. Processes on indicators give removed classes the probability 0 (-).
- **15°**: test rows rotated by 15 degrees.
- **AUROC**: how well a score distinguishes test rows of known classes from those of removed
  classes, or from the same rows rotated by 90 degrees. The score is the sd of the value of the
  most probable class (`nngp`, `t-process`, `burr-process`), the mutual information of class and
  logits (sparse processes and ensembles), the variance of the logit (last layers), or the entropy
  (`class-dnn`); "by entropy" for all.

The comparisons of the papers, as first method minus second method, paired by seed. The NLL of
indicators is minus the log density of the indicators of the known classes (Scale F).

{claims_table(figures)}
Mean ± standard error over the seeds:

{scores_table(figures)}
Differences from the papers: the covariance of `class-bll` and `class-rich-bll` comes from all
rows of all classes (Rich C.3: subsets of 1,024 rows for each class), and is the same for all
logits. Probabilities average 256 Sobol draws (Rich: 50 draws). Ensembles are trained by AdamW
(Scale: gradient descent) with the prior InvGamma(2, 2) of the squared scale. Inducing points stay
at places chosen among the training rows (Scale C: they are learned).
"""
