"""The committed table of `uci.py`, with our means and the papers' values.

    python -m benchmarks.kernels.uci_table benchmarks/out/uci --table benchmarks/results/uci

Reads the files that `uci.py` wrote, one for each (table, model, seed), and writes a Markdown and a
JSON file.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.kernels.uci import FAR, SETTINGS_FILE, WORST
from benchmarks.trial import (
    Figures,
    command,
    mean_and_error,
    parser,
    percent,
    spread,
    table,
    write_results,
)
from geogp.errors import RequestError

Found = dict[tuple[str, str], Figures]
"""By table and model: `settings`, the figures of all `seeds`, and the `trials` of the weights."""

TABLES = ("pol", "elevators", "protein", "keggundirected")

# Zhu, Yuchi and Xie, "Scalable Deep Basis Kernel Gaussian Processes", table 1: NLL and
# CRPS on each of TABLES.
PAPER = {
    "vbll": ((-1.680, 0.0215), (0.362, 0.1896), (0.823, 0.2884), (-0.692, 0.0508)),
    "sv-dkl": ((-1.703, 0.0215), (0.361, 0.1911), (0.826, 0.2840), (-0.687, 0.0507)),
    "pp-dkl": ((-2.955, 0.0152), (0.299, 0.1873), (0.745, 0.2875), (-1.740, 0.0380)),
    "dbk-silu": ((-2.967, 0.0144), (0.294, 0.1865), (0.741, 0.2852), (-1.755, 0.0376)),
    "dbk-rbf": ((-2.981, 0.0144), (0.297, 0.1870), (0.742, 0.2817), (-1.776, 0.0368)),
}

ORDER = (*reversed(PAPER), "sv-rbf", "dnn", "gpytorch-ppgp", "gpytorch-svgp")

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
    *("model", "alpha, beta", "epochs", "seeds", "NLL", "paper", "NLL, t", "CRPS", "paper", "MAE"),
    *("holds 95 %", "seconds"),
)

ROW_COLUMNS = (
    *("table", "model", "seed", "NLL, validation", "NLL", f"of the {WORST} worst", "without them"),
    *("worst error", "in sd", f"over {FAR:g} sd: train", "validation", "test", "NLL, t", "CRPS"),
    *("CRPS, t", "df"),
)

PREDICTIVE, BOUND = ("dbk-rbf", "dbk-silu", "pp-dkl"), ("sv-dkl", "vbll")


def read(folder: Path) -> Found:
    """Return all figures.

    Raises
    ------
    RequestError
        If there are no figures, a table and model has figures with several settings, or our models
        differ in the settings of `ALIKE`.
    """
    found: Found = {}
    for place in sorted(folder.glob("*/*")):
        seeds = [json.loads(path.read_text()) for path in sorted(place.glob("seed-*.json"))]
        key = (place.parent.name, place.name.rpartition("-")[0])
        if not seeds:
            continue
        if key in found:
            raise RequestError(f"{key} has figures of several settings; keep one folder.")
        settings = json.loads((place / SETTINGS_FILE).read_text())
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


def _own(found: Found) -> list[Figures]:
    """Return the settings of our models."""
    return [of["settings"] for (_, model), of in found.items() if not model.startswith("gpytorch")]


def page(found: Found) -> str:
    """Return the tables."""
    own = _own(found)[0]
    versions = {", ".join(map(" ".join, of["versions"].items())) for of in _own(found)}
    settings = ", ".join(f"{name} {own[name]}" for name in ALIKE if name in own)
    settings += f"; {'; '.join(sorted(versions))}"
    if len(versions) > 1:
        settings += " (the later version where there is an NLL with Student-t tails)"
    counts = sorted({len(of["seeds"]) for of in found.values()})
    seeds = " to ".join(str(count) for count in {counts[0]: 0, counts[-1]: 0})
    tables = ""
    for name in _tables(found):
        lines = [
            _line(found[name, model], name, model) for model in ORDER if (name, model) in found
        ]
        tables += f"\n## {name}\n\n{table(COLUMNS, lines)}"
    return f"""# Regression tables

{seeds} seeds for each model; the paper has {PAPER_SEEDS}.

    python -m benchmarks.kernels.uci --data TABLE.parquet --model MODEL \\
        --seeds N{_recipe(own)} --out FOLDER
    python -m benchmarks.kernels.uci_table FOLDER

`uci.py`, protocol of Zhu, Yuchi and Xie, section 4.2; figures on the scale of the
standardised target, mean over the seeds ± standard deviation. {_protocol(found)} "NLL, t" is the
NLL with Student-t tails, whose degrees of freedom (2.05 or more) and scale are learned
from the validation rows. The GPyTorch models have inducing points under an RBF on the inputs, and
no network.

Our models: {settings}.
{tables}{_search(found)}{_rows(found)}{_compared(found)}"""


def _tables(found: Found) -> list[str]:
    """Return the names of the tables, those of the paper first."""
    held = {name for name, _ in found}
    return [*(name for name in TABLES if name in held), *sorted(held - {*TABLES})]


def _recipe(own: Figures) -> str:
    return " --recipe paper --weights auto" if own.get("recipe") == "paper" else " --epochs N"


def _protocol(found: Found) -> str:
    """Return how the rows are split and the weights are chosen."""
    if _own(found)[0].get("recipe") != "paper":
        return """In the paper
all seeds share one split; here the seed also determines the split."""
    given = sorted(
        f"`{model}` on {name}"
        for (name, model), of in found.items()
        if model in PREDICTIVE and of["settings"]["weights"] != "auto"
    )
    said = f" They are given, not searched, for {', '.join(given)}." if given else ""
    return f"""As in the
paper, all seeds share one split, the learning rate is constant, and alpha and beta are the
best of all pairs by the validation NLL of seed 0 after all epochs.{said}"""


def _search(found: Found) -> str:
    """Return the section on the search of the weights, if there was one."""
    lines = [
        (name, f"`{model}`", *(f"{trial['weights'][key]:g}" for key in ("alpha", "beta")), nll)
        for (name, model), of in found.items()
        for trial in of["trials"]
        for nll in (f"{trial['nll']:.3f}",)
    ]
    if not lines:
        return ""
    header = ("table", "model", "alpha", "beta", "NLL, validation")
    return f"""
## Search of the weights

{table(header, lines, left=(0, 1))}"""


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
                    *(name, f"`{model}`", seed["seed"], *(f"{seed[key]:.3f}" for key in numbers)),
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


def _line(figures: Figures, name: str, model: str) -> tuple[object, ...]:
    seeds, settings = figures["seeds"], figures["settings"]
    used = settings["used_weights"]
    weights = f"{used['alpha']:g}, {used['beta']:g}" if model in PREDICTIVE else ""
    if model == "gpytorch-ppgp":
        weights = f"{used['beta']:g}"
    paper = dict(zip(TABLES, PAPER.get(model, ()), strict=False)).get(name)
    theirs = (f"{paper[0]:.3f}", f"{paper[1]:.4f}") if paper else ("", "")

    def mean(key: str) -> float:
        return float(np.mean([seed[key] for seed in seeds]))

    return (
        *(f"`{model}`", weights, settings["epochs"], len(seeds)),
        *(spread([seed["nll"] for seed in seeds]), theirs[0]),
        _heavier(seeds),
        *(f"{mean('crps'):.4f}", theirs[1], f"{mean('mae'):.4f}"),
        *(percent(mean("coverage_95")), f"{mean('seconds'):.0f}"),
    )


def _heavier(seeds: Sequence[Figures]) -> str:
    """Return the NLL with Student-t tails, or an empty text if a seed has none."""
    if any("student_t" not in seed for seed in seeds):
        return ""
    return spread([seed["student_t"]["nll"] for seed in seeds])


def _compared(found: Found) -> str:
    """Return the section on differences between models, if two of them can be compared."""
    lines = _differences(found)
    if not lines:
        return ""
    header = ("table", "model", "against", "difference")
    return f"""
## Predictive objectives against the evidence lower bound

Difference in NLL on the same splits, mean ± standard error over the seeds. A negative
difference means that the predictive objective is better.

{table(header, lines, left=(0, 1, 2))}"""


def _differences(found: Found) -> list[tuple[str, ...]]:
    """Return the differences in NLL over the seeds that both models have."""
    lines = []
    for name in _tables(found):
        for first in PREDICTIVE:
            for second in (*BOUND, *(("pp-dkl",) if first != "pp-dkl" else ())):
                if (name, first) in found and (name, second) in found:
                    both = (found[name, model]["seeds"] for model in (first, second))
                    a, b = ({seed["seed"]: seed["nll"] for seed in seeds} for seeds in both)
                    mean, error = mean_and_error([a[k] - b[k] for k in sorted(set(a) & set(b))])
                    shown = f"{mean:+.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")
                    lines.append((name, f"`{first}`", f"`{second}`", shown))
    return lines


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    asked = parser(__doc__, table="uci")
    asked.add_argument("folder", type=Path, help="folder that uci.py wrote")
    options = asked.parse_args(arguments)
    found = read(options.folder)
    flat = [{"table": name, "model": model, **of} for (name, model), of in found.items()]
    write_results(options.table, page(found), flat)


if __name__ == "__main__":
    sys.exit(main())
