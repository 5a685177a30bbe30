"""The committed table of `uci.py`, with our means and the papers' values.

    python -m benchmarks kernels.uci_table benchmarks/out/uci --table benchmarks/results/uci

Reads the files that `uci.py` wrote, one for each (table, model, seed), and writes a Markdown and a
JSON file.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.kernels.uci import FAR, SETTINGS_FILE, WORST
from benchmarks.markdown import mean_and_error, percent, spread, table
from benchmarks.script import Figures, parser, write_results
from geogp.errors import RequestError

Found = dict[tuple[str, str], Figures]
"""By table and model: `settings`, the figures of all `seeds`, and the `trials` of the weights.

If a model was fitted with searched and with given weights, the latter are part of the second name.
"""

TABLES = ("pol", "elevators", "protein", "keggdirected", "keggundirected")

# Zhu, Yuchi and Xie, "Scalable Deep Basis Kernel Gaussian Processes", table 1, each on TABLES.
PAPER = {
    "dnn": {"mae": (0.0222, 0.2629, 0.3853, 0.0392, 0.0461)},
    "vbll": {
        "mae": (0.0205, 0.2605, 0.3825, 0.0388, 0.0447),
        "nll": (-1.6801, 0.3623, 0.8231, -1.0509, -0.6915),
        "crps": (0.0215, 0.1896, 0.2884, 0.0364, 0.0508),
    },
    "sv-dkl": {
        "mae": (0.0212, 0.2636, 0.3703, 0.0391, 0.0447),
        "nll": (-1.7034, 0.3607, 0.8262, -1.0407, -0.6870),
        "crps": (0.0215, 0.1911, 0.2840, 0.0371, 0.0507),
    },
    "pp-dkl": {
        "mae": (0.0205, 0.2614, 0.4071, 0.0392, 0.0463),
        "nll": (-2.9551, 0.2989, 0.7445, -1.6548, -1.7395),
        "crps": (0.0152, 0.1873, 0.2875, 0.0317, 0.0380),
    },
    "dbk-silu": {
        "mae": (0.0190, 0.2606, 0.4031, 0.0386, 0.0464),
        "nll": (-2.9670, 0.2936, 0.7406, -1.6479, -1.7551),
        "crps": (0.0144, 0.1865, 0.2852, 0.0308, 0.0376),
    },
    "dbk-rbf": {
        "mae": (0.0190, 0.2614, 0.3937, 0.0382, 0.0451),
        "nll": (-2.9807, 0.2967, 0.7416, -1.6679, -1.7755),
        "crps": (0.0144, 0.1870, 0.2817, 0.0311, 0.0368),
    },
}

ORDER = (*reversed(PAPER), "sv-rbf", "gpytorch-ppgp", "gpytorch-svgp")

ALIKE = (
    "h",
    "r",
    "batch",
    "epochs",
    "learning_rate",
    "head_rate",
    "noise_rate",
    "average",
    "split",
)
"""Settings that must be the same for all our models."""

PAPER_SEEDS = 5

COLUMNS = (
    *("model", "alpha, beta", "epochs", "splits", "fits", "NLL", "paper", "NLL, t"),
    *("CRPS", "paper", "MAE", "paper", "holds 95 %", "best epoch", "seconds"),
)

ROW_COLUMNS = (
    *("table", "model", "split", "seed", "NLL, validation", "NLL", f"of the {WORST} worst"),
    *("without them", "worst error", "in sd", f"over {FAR:g} sd: train", "validation", "test"),
    *("NLL, t", "CRPS", "CRPS, t", "df"),
)

PREDICTIVE = ("dbk-rbf", "dbk-silu", "pp-dkl")
BETA_ALONE = ("pp-dkl", "gpytorch-ppgp")
"""Models with the weight beta, and without alpha."""

AGAINST = {
    "vbll": (*PREDICTIVE, "sv-dkl", "dnn"),
    "sv-dkl": PREDICTIVE,
    "pp-dkl": ("dbk-rbf", "dbk-silu"),
}
"""The models that are compared with a model."""

FAMILIAR = 0.1
"""Share of test rows with features of training rows, from which the other rows are scored too."""


def read(folder: Path) -> Found:
    """Return all figures.

    Raises
    ------
    RequestError
        If there are no figures, a table and model has figures with several settings other than
        searched and given weights, or our models differ in the settings of `ALIKE`.
    """
    found: Found = {}
    for place in sorted(folder.glob("*/*")):
        seeds = [json.loads(path.read_text()) for path in sorted(place.glob("*seed-*.json"))]
        key = (place.parent.name, place.name.rpartition("-")[0])
        if not seeds:
            continue
        settings = json.loads((place / SETTINGS_FILE).read_text())
        if (settings.get("weights") != "auto") and _is_searched(folder / key[0], key[1]):
            key = (key[0], f"{key[1]} {settings['weights']}")
        if key in found:
            raise RequestError(f"{key} has figures of several settings; keep one folder.")
        shared = settings.get("split", "seed")
        for seed in seeds:
            seed.setdefault("split", seed["seed"] if shared == "seed" else shared)
        searched = place / "weights.json"
        trials = json.loads(searched.read_text()) if searched.exists() else []
        found[key] = {"settings": settings, "seeds": seeds, "trials": trials}
    if not found:
        raise RequestError(f"no figures of uci.py under {folder}.")
    for name in ALIKE:
        values = {json.dumps(settings.get(name)) for settings in _own(found)}
        if len(values) > 1:
            raise RequestError(f"the models were run with several values of {name}: {values}.")
    return found


def _is_searched(folder: Path, model: str) -> bool:
    """Return whether there are figures of a model whose weights were searched."""
    return any(
        place.name.rpartition("-")[0] == model and any(place.glob("*seed-*.json"))
        for place in (path.parent for path in folder.glob("*/weights.json"))
    )


def _plain(model: str) -> str:
    """Return the name of the model without weights."""
    return model.partition(" ")[0]


def _own(found: Found) -> list[Figures]:
    """Return the settings of our models."""
    return [of["settings"] for (_, model), of in found.items() if not model.startswith("gpytorch")]


def page(found: Found) -> str:
    """Return the tables."""
    own = _own(found)[0]
    versions = {", ".join(map(" ".join, of["versions"].items())) for of in _own(found)}
    settings = ", ".join(f"{name} {own[name]}" for name in ALIKE[:-1] if name in own)
    settings += f"; {'; '.join(sorted(versions))}"
    if len(versions) > 1:
        settings += " (the later version where there is an NLL with Student-t tails)"
    counts = sorted({len(of["seeds"]) for of in found.values()})
    seeds = " to ".join(str(count) for count in {counts[0]: 0, counts[-1]: 0})
    seeds += " fit" if counts[-1] == 1 else " fits"
    tables = ""
    for name in _tables(found):
        held = [model for of, model in found if of == name]
        held.sort(key=lambda model: (ORDER.index(_plain(model)), model))
        lines = [_line(found[name, model], name, _plain(model)) for model in held]
        tables += f"\n## {name}\n\n{table(COLUMNS, lines)}"
    return f"""# Regression tables

{seeds} for each model; the paper has {PAPER_SEEDS}, on one split.

    python -m benchmarks kernels.uci --data TABLE.parquet --model MODEL \\
        --seeds N{_recipe(own)} --out FOLDER
    python -m benchmarks kernels.uci_table FOLDER

`uci.py`, protocol of Zhu, Yuchi and Xie, section 4.2; figures on the scale of the
standardised target, mean ± standard deviation over the splits (over the seeds, if there is one
split). {_protocol(found)}
"NLL, t" is the NLL with Student-t tails, whose degrees of freedom (2.05 or more) and scale are
learned from the validation rows. "Best epoch" is the mean over the fits; a fit that ends with its
best epoch may not have converged. The GPyTorch models have inducing points under an RBF on the
inputs, and no network.

Our models: {settings}.
{tables}{_compared(found)}{_familiar(found)}{_search(found)}{_rows(found)}"""


def _tables(found: Found) -> list[str]:
    """Return the names of the tables, those of the paper first."""
    held = {name for name, _ in found}
    return [*(name for name in TABLES if name in held), *sorted(held - {*TABLES})]


def _recipe(own: Figures) -> str:
    if own.get("recipe") != "paper":
        return " --epochs N"
    return " --recipe paper --splits SPLITS --weights WEIGHTS"


def _protocol(found: Found) -> str:
    """Return how the rows are split and the weights are chosen."""
    if _own(found)[0].get("recipe") != "paper":
        return """In the paper all seeds share one split; here the seed also determines the
split."""
    weighted = {key: of for key, of in found.items() if _plain(key[1]) in PREDICTIVE}
    searched = sorted(
        f"`{model}` on {name} ({len(of['trials'])} fits of {_search_epochs(of)} epochs)"
        for (name, model), of in weighted.items()
        if of["trials"]
    )
    said = "alpha and beta are given, not searched"
    if searched:
        said = "alpha and beta are the best of all pairs by the validation NLL of split 0, seed 0, "
        said += f"for\n{', '.join(searched)}"
        if len(searched) < len(weighted):
            said += ";\nfor all others they are given, not searched"
    return f"""As in the paper, all seeds share a split, and the learning rate is constant. "Splits"
is the number of splits that a model was fitted on. {said[0].upper()}{said[1:]}."""


def _search_epochs(of: Figures) -> int:
    """Return the number of epochs of each fit of the search in the paper's recipe."""
    settings = of["settings"]
    return int(settings.get("search_epochs", settings["epochs"]))


def _search(found: Found) -> str:
    """Return the section on the search of the weights, if there was one."""
    lines = [
        (name, f"`{model}`", _search_epochs(of), *pair, f"{trial['nll']:.3f}")
        for (name, model), of in found.items()
        for trial in of["trials"]
        for pair in (_shown(model, trial["weights"]),)
    ]
    if not lines:
        return ""
    header = ("table", "model", "epochs", "alpha", "beta", "NLL, validation")
    return f"""
## Search of the weights

{table(header, lines, left=(0, 1))}"""


def _shown(model: str, weights: Figures) -> tuple[str, str]:
    """Return the texts of alpha and beta; empty for one that the model does not have."""
    alpha = f"{weights['alpha']:g}" if model in PREDICTIVE and model not in BETA_ALONE else ""
    return alpha, f"{weights['beta']:g}" if model in (*PREDICTIVE, *BETA_ALONE) else ""


def _rows(found: Found) -> str:
    """Return the section on the worst rows of each seed, for the figures that have them."""
    lines = []
    for (name, model), of in found.items():
        for seed in of["seeds"]:
            if "far" not in seed:
                continue
            tails, numbers = seed["student_t"], ("validation_nll", "nll", "nll_of_worst")
            lines.append(
                (
                    *(name, f"`{model}`", seed["split"], seed["seed"]),
                    *(f"{seed[key]:.3f}" for key in numbers),
                    *(f"{seed['nll_without_worst']:.3f}", f"{seed['worst_error']:+.2f}"),
                    f"{seed['worst_error_in_sd']:+.1f}",
                    *(seed["far"][part] for part in ("train", "validation", "test")),
                    *(f"{tails['nll']:.3f}", f"{seed['crps']:.4f}", f"{tails['crps']:.4f}"),
                    f"{tails['df']:.2f}",
                )
            )
    if not lines:
        return ""
    return f"""
## The worst rows of each seed

"Of the {WORST} worst" is what the {WORST} test rows with the worst log scores add to the mean
NLL. The worst row's error is on the scale of the standardised target, and in predictive
standard deviations. Then follow the numbers of rows whose error is more than {FAR:g} standard
deviations.

{table(ROW_COLUMNS, lines, left=(0, 1))}"""


def _familiar(found: Found) -> str:
    """Return the section on test rows with new features, for tables where many are not new."""
    lines = []
    for (name, model), of in found.items():
        seeds = [seed for seed in of["seeds"] if seed.get("new", {"share": 1})["share"] < 1]
        share = np.mean([seed["new"]["share"] for seed in seeds]) if seeds else 1.0
        if 1 - share < FAMILIAR:
            continue
        new = [{**seed["new"], "split": seed["split"]} for seed in seeds]
        scores = (
            spread(values(rows, key), digits)
            for key, digits in (("nll", 3), ("mae", 4))
            for rows in (new, seeds)
        )
        lines.append((name, f"`{model}`", percent(float(share)), *scores))
    if not lines:
        return ""
    header = ("table", "model", "new rows", "NLL, new", "NLL, all", "MAE, new", "MAE, all")
    return f"""
## Test rows with new features

Many test rows have exactly the features of a training row. New rows are the others.

{table(header, lines, left=(0, 1))}"""


def values(seeds: Sequence[Figures], key: str) -> list[float]:
    """Return a score's mean on each split, or its value for each seed if there is one split."""
    of_splits: dict[int, list[float]] = {}
    for seed in seeds:
        of_splits.setdefault(seed["split"], []).append(seed[key])
    if len(of_splits) == 1:
        return next(iter(of_splits.values()))
    return [float(np.mean(of)) for _, of in sorted(of_splits.items())]


def paper_value(model: str, name: str, key: str) -> float | None:
    """Return a score of the paper's table 1, or None."""
    return dict(zip(TABLES, PAPER.get(model, {}).get(key, ()), strict=False)).get(name)


def _line(figures: Figures, name: str, model: str) -> tuple[object, ...]:
    seeds, settings = figures["seeds"], figures["settings"]
    weights = ", ".join(text for text in _shown(model, settings["used_weights"]) if text)
    epochs = [seed.get("best_epoch") for seed in seeds]
    known = "" if None in epochs else f"{np.mean(epochs):.0f}"

    def theirs(key: str, digits: int) -> str:
        value = paper_value(model, name, key)
        return "" if value is None else f"{value:.{digits}f}"

    def mean(key: str) -> float:
        return float(np.mean(values(seeds, key)))

    return (
        *(f"`{model}`", weights, settings["epochs"]),
        *(len({seed["split"] for seed in seeds}), len(seeds)),
        *(spread(values(seeds, "nll")), theirs("nll", 3), _heavier(seeds)),
        *(f"{mean('crps'):.4f}", theirs("crps", 4), f"{mean('mae'):.4f}", theirs("mae", 4)),
        *(percent(mean("coverage_95")), known, f"{mean('seconds'):.0f}"),
    )


def _heavier(seeds: Sequence[Figures]) -> str:
    """Return the NLL with Student-t tails, or an empty text if a seed has none."""
    if any("student_t" not in seed for seed in seeds):
        return ""
    return spread(values([{**seed["student_t"], "split": seed["split"]} for seed in seeds], "nll"))


def _compared(found: Found) -> str:
    """Return the section on differences between models, if two of them can be compared."""
    lines = _differences(found)
    if not lines:
        return ""
    header = ("table", "model", "against", "NLL", "paper", "CRPS", "paper", "MAE", "paper")
    return f"""
## Differences between models

Differences on the same splits with the same seeds, mean ± standard error over the splits (over the
seeds, if there is one split), beside the same difference in the paper's table. A negative
difference means that the model is better than the one it stands against.

{table(header, lines, left=(0, 1, 2))}"""


def _differences(found: Found) -> list[tuple[str, ...]]:
    """Return the differences in each score over the fits that both models have."""
    return [
        (name, f"`{first}`", f"`{second}`", *cells)
        for name in _tables(found)
        for second, compared in AGAINST.items()
        for first in compared
        if (name, first) in found and (name, second) in found
        for cells in (_difference(found, name, first, second),)
    ]


def _difference(found: Found, name: str, first: str, second: str) -> list[str]:
    """Return the differences in NLL, CRPS and MAE, each with that of the paper."""
    a, b = (
        {(seed["split"], seed["seed"]): seed for seed in found[name, model]["seeds"]}
        for model in (first, second)
    )
    cells = []
    for key, digits in (("nll", 3), ("crps", 4), ("mae", 4)):
        both = [
            {"split": at[0], key: a[at][key] - b[at][key]} for at in sorted(a.keys() & b.keys())
        ]
        mean, error = mean_and_error(values(both, key))
        shown = "" if math.isnan(error) else f" ± {error:.{digits}f}"
        cells.append(f"{mean:+.{digits}f}{shown}")
        x, y = (paper_value(model, name, key) for model in (first, second))
        cells.append("" if x is None or y is None else f"{x - y:+.{digits}f}")
    return cells


def main() -> None:
    """Write the table."""
    asked = parser(__doc__, table="uci")
    asked.add_argument("folder", type=Path, help="folder that uci.py wrote")
    options = asked.parse_args()
    found = read(options.folder)
    flat = [{"table": name, "model": model, **of} for (name, model), of in found.items()]
    write_results(options.table, page(found), flat)
