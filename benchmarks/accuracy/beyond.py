"""The honesty of `FieldGP` beyond its data, at borders and in clusters.

    python -m benchmarks accuracy.beyond --cases east towns --fields 3 --peers

The cases of `beyond_cases.py` are fields with a known covariance, so that there is an oracle; those
of `beyond_data.py` are measured (GEOGP_REAL_DATA, or the folder shared/data beside the checkout).
The test rows are a tenth of the rows inside the data, and rows beyond them. The scores of each
class of test rows are compared with those of the oracle, and with those of the plain law: the
normal distribution with mean and variance of the training rows. With --peers, an exact Gaussian
process and GPBoost are fitted to the same rows. Each fit has its own file under --out; the same
command with more fields makes the missing fits. Writes a Markdown and a JSON file.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

import geogp
from benchmarks.accuracy import spatial
from benchmarks.beyond_cases import CASES, DISTANCES, NOISES, STATIONARY, World
from benchmarks.beyond_data import DATA, folder
from benchmarks.markdown import percent, plus_minus, table
from benchmarks.script import (
    Figures,
    Floats,
    clock,
    costs,
    kept,
    machine,
    options_of,
    say,
    write_results,
)
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.evaluation.metrics import row_scores
from geogp.maps.figures.figure_style import TEXT, WIDTH, paper_style

LEVELS = (50, 80, 95)
"""Levels of the intervals in percent."""

COVERAGE = 0.02
"""Aim: the coverage of the 95 % interval is that close to 95 % or to the oracle's."""

LOSS_INSIDE = 0.03
"""Aim: largest log score less the oracle's inside the data. It is nowhere above the plain law's."""

LOSS_BEYOND = 0.10
"""Aim: the same beyond the data and in clusters."""

BORDER = 0.85
"""Aim: smallest coverage of the 95 % interval at a border."""

NEAR = ("inside", "away", *NOISES)
"""Classes in which the log score is compared with the aim `LOSS_INSIDE`."""

EXACT_ROWS = 2_000
"""Largest number of training rows of the exact process."""

SMOOTHNESS = (0.5, 1.5, 2.5)
"""Matérn processes of which the exact process is the one with the largest likelihood."""

REACH = 3.92
"""Width of a band of 95 % of a normal distribution, in standard deviations."""

RESAMPLED = 1_000
"""Number of resamples of blocks."""

Blocks = NDArray[np.intp]
Fit = Callable[[World, argparse.Namespace], Prediction]


def field(world: World, options: argparse.Namespace) -> Prediction:
    """Fit `FieldGP` and return its distributions of the test rows."""
    model = geogp.FieldGP(**world.columns, preset=options.preset, random_state=options.seed)
    model.fit(world.train.drop(columns="value"), world.train["value"])
    return model.predict_distribution(world.test.drop(columns="value"))


def exact(world: World, options: argparse.Namespace) -> Prediction:
    """Fit exact Matérn processes by maximum likelihood (GPBoost), and take the likeliest."""
    import gpboost  # noqa: PLC0415

    kind = kind_of(world)
    names = [*([kind.time] if kind.time else []), kind.x, kind.y]
    models = []
    for smoothness in SMOOTHNESS:
        model = gpboost.GPModel(
            gp_coords=world.train[names].to_numpy(float),
            cov_function="matern_space_time" if kind.time else "matern",
            cov_fct_shape=smoothness,
            likelihood="gaussian",
            num_parallel_threads=torch.get_num_threads(),
            seed=options.seed,
        )
        model.fit(world.train["value"].to_numpy(), X=np.ones((len(world.train), 1)))
        models.append(model)
    best = min(models, key=lambda model: float(model.get_current_neg_log_likelihood()))
    found = best.predict(
        gp_coords_pred=world.test[names].to_numpy(float),
        X_pred=np.ones((len(world.test), 1)),
        predict_var=True,
        predict_response=True,
    )
    return Prediction.of_moments(found["mu"], found["var"])


def gpboost(world: World, options: argparse.Namespace) -> Prediction:
    """Fit GPBoost with Vecchia's approximation, as in `spatial.py`."""
    how = argparse.Namespace(neighbours=20, sample=0, seed=options.seed)
    test = world.test.drop(columns="value")
    law, _ = spatial.gpboost(kind_of(world), world.train, test, how)
    return law


def kind_of(world: World) -> spatial.Kind:
    """Return the names of the columns."""
    names = world.columns
    return spatial.Kind(names["x"], names["y"], "value", names.get("time"), names["crs"])


MODELS: dict[str, Fit] = {"field": field, "exact": exact, "gpboost": gpboost}


def measure(case: str, model: str, options: argparse.Namespace) -> Figures:
    """Make a world, fit a model, and return the scores of each class of test rows."""
    rng = np.random.default_rng(options.seed)
    if case in DATA:
        name, read = DATA[case]
        world = read(folder() / name, rng, options.data_rows)
    else:
        world = CASES[case](rng, options.rows)
    started = clock("cpu")
    law = MODELS[model](world, options)
    seconds = costs("cpu", started)
    y, known = world.test["value"].to_numpy(), world.train["value"].to_numpy()
    same = np.ones(len(y))
    laws = {"fit": law, "plain": Prediction.of_moments(known.mean() * same, known.var() * same)}
    if world.oracle is not None:
        laws["oracle"] = world.oracle
    rows = {name: law_scores(each, y, float(known.std())) for name, each in laws.items()}
    classes = {}
    for name in np.unique(world.classes):
        chosen = world.classes == name
        some = {of: each[chosen] for of, each in rows.items()}
        classes[str(name)] = {"n": int(chosen.sum())} | {
            of: means(each) for of, each in some.items()
        }
        if world.blocks is not None:
            classes[str(name)]["bands"] = bands(some, world.blocks[chosen])
    settings = {"rows": len(known), "seed": options.seed, "preset": options.preset}
    return {"case": case, "model": model, **settings, **seconds, "classes": classes} | {
        "machine": machine()
    }


def law_scores(law: Prediction, y: Floats, sd: float) -> pd.DataFrame:
    """Return scores of each test row, with values in standard deviations of the data."""
    rows = row_scores(law, y, LEVELS)
    return pd.DataFrame(
        {
            "squared_error": np.square(rows["error"] / sd),
            "sd": law.sd / sd,
            "log_score": rows["nll"] - np.log(sd),
            "crps": rows["crps"] / sd,
            "width": rows["width"] / sd,
            **{f"coverage_{level}": rows[f"coverage_{level}"] for level in LEVELS},
        }
    )


def means(rows: pd.DataFrame) -> Figures:
    """Return the mean scores of rows, and the root of the mean squared error."""
    found = {str(name): float(mean) for name, mean in rows.mean().items()}
    return found | {"rmse": found.pop("squared_error") ** 0.5}


def bands(rows: dict[str, pd.DataFrame], blocks: Blocks) -> dict[str, list[float]]:
    """Return bands that hold 95 % of the means of resampled blocks, (n,) for each row.

    The bands are those of the coverage, and of the log score less the plain law's.
    """
    number = np.unique(blocks, return_inverse=True)[1]
    count = np.bincount(number)
    share = np.full(len(count), 1 / len(count))
    times = np.random.default_rng(0).multinomial(len(count), share, RESAMPLED)
    each = {
        "coverage_95": rows["fit"]["coverage_95"],
        "log_score": rows["fit"]["log_score"] - rows["plain"]["log_score"],
    }
    found = {}
    for name, values in each.items():
        sums = times @ np.bincount(number, values) / (times @ count)
        found[name] = np.quantile(sums, (0.025, 0.975)).tolist()
    return found


class Mean(NamedTuple):
    """A mean over the rows of all fields, and its standard error."""

    value: float
    error: float

    def text(self, scale: float = 1, digits: int = 3) -> str:
        """Return the mean and the error, times a scale."""
        return plus_minus(scale * self.value, scale * self.error, digits)


def pooled(n: ArrayLike, values: ArrayLike) -> Mean:
    """Return the mean over all rows, from the numbers of rows and the means of independent fields.

    The rows of one field err together, so the standard error is that of a ratio of sums over
    fields; NaN for one field.
    """
    count, each = (np.asarray(part, np.float64) for part in (n, values))
    mean = float((count * each).sum() / count.sum())
    if len(each) < 2:
        return Mean(mean, np.nan)
    spread = np.square(count * (each - mean)).sum() * len(each) / (len(each) - 1)
    return Mean(mean, float(np.sqrt(spread) / count.sum()))


class Pooled:
    """The test rows of a class in all fields that have such rows.

    Parameters
    ----------
    name
        Name of the class.
    found
        Numbers of rows and scores of the class in each field.
    """

    def __init__(self, name: str, found: list[Figures]) -> None:
        self.name, self.found = name, found
        self.n = [each["n"] for each in found]

    def score(self, name: str, law: str = "fit", *, without: str = "") -> Mean:
        """Return a score of a law, or its difference to this score of the law `without`.

        Measured rows are those of one field, and the error is that of resampled blocks.
        """
        less = [each[without][name] if without else 0 for each in self.found]
        own = [each[law][name] for each in self.found]
        found = pooled(self.n, np.subtract(own, less))
        if self.has_oracle or name not in self.found[0]["bands"]:
            return found
        return found._replace(error=float(np.ptp(self.band(name))) / REACH)

    def band(self, name: str) -> Floats:
        """Return the mean band of a score of measured rows, (2,)."""
        return np.mean([each["bands"][name] for each in self.found], axis=0)

    def rmse(self, law: str = "fit") -> float:
        """Return the root mean squared error."""
        return pooled(self.n, [each[law]["rmse"] ** 2 for each in self.found]).value ** 0.5

    @property
    def has_oracle(self) -> bool:
        """Whether there is an oracle."""
        return "oracle" in self.found[0]

    def shortfalls(self) -> dict[str, Mean]:
        """Return what each aim is missed by, above 0 if it is missed, and the standard error."""
        coverage = self.score("coverage_95")
        found = {"coverage": Mean(BORDER - coverage.value, coverage.error)}
        if self.name != "border":
            away = [Mean(coverage.value - 0.95, coverage.error)]
            if self.has_oracle:
                away.append(self.score("coverage_95", without="oracle"))
            least = min(away, key=lambda each: abs(each.value))
            found["coverage"] = Mean(abs(least.value) - COVERAGE, least.error)
        found["plain"] = self.score("log_score", without="plain")
        if self.has_oracle and self.name != "border":
            loss = self.score("log_score", without="oracle")
            allowed = LOSS_INSIDE if self.name in NEAR else LOSS_BEYOND
            found["oracle"] = Mean(loss.value - allowed, loss.error)
        return found

    def missed(self) -> dict[str, bool]:
        """Return the missed aims, and whether each is missed by two standard errors or more."""
        return {
            name: not short.value < 2 * short.error
            for name, short in self.shortfalls().items()
            if short.value > 0
        }


PLACES = ("inside", "cluster", *DISTANCES)
"""Classes of the figure."""

DRAWN = {
    "fit": ("FieldGP", "o", "#0b4f8a"),
    "plain": ("plain law", "x", "#4d4d4d"),
    "oracle": ("oracle", "_", "black"),
}
"""Label, marker and colour of each law in the figure."""

SUMMARY = ("model", "classes", "meet all aims", "clearly miss an aim", "CPU seconds of a fit")

POOLED = (
    *("class", "model", "fields", "rows", "95 % intervals contain", "the oracle's"),
    *("log score above the oracle's", "below the plain law's"),
)

HEADER = (
    *("case", "class", "model", "fields", "rows", "50 %", "80 %", "95 %", "oracle's 95 %"),
    *("log score less oracle's", "less plain", "RMSE", "oracle's", "stated sd", "width / oracle's"),
    "missed",
)


def line(case: str, model: str, rows: Pooled) -> tuple[object, ...]:
    """Return the line of a class in the table."""
    low, middle, high = (rows.score(f"coverage_{level}") for level in LEVELS)
    gain = rows.score("log_score", without="plain")
    shown, oracle = (f"{high.text(100, 1)} %", gain.text()), ("", "", "", "")
    if rows.has_oracle:
        oracle = (
            percent(rows.score("coverage_95", "oracle").value),
            rows.score("log_score", without="oracle").text(),
            f"{rows.rmse('oracle'):.3f}",
            f"{rows.score('width').value / rows.score('width', 'oracle').value:.2f}",
        )
    else:
        first, last = 100 * rows.band("coverage_95"), rows.band("log_score")
        shown = (
            f"{100 * high.value:.1f} % ({first[0]:.1f} to {first[1]:.1f})",
            f"{gain.value:.3f} ({last[0]:.3f} to {last[1]:.3f})",
        )
    return (
        *(case, rows.name, f"`{model}`", len(rows.found), f"{sum(rows.n):,}"),
        *(percent(low.value), percent(middle.value), shown[0], *oracle[:2], shown[1]),
        *(f"{rows.rmse():.3f}", oracle[2], f"{rows.score('sd').value:.3f}", oracle[3]),
        ", ".join(name if clear else f"({name})" for name, clear in rows.missed().items()),
    )


def classes_of(found: Iterable[Figures]) -> dict[tuple[str, str, str], Pooled]:
    """Return the classes of all fits, by case, class and model; those of distance come last."""
    parts: dict[tuple[str, str, str], list[Figures]] = {}
    for each in found:
        for name, scores in each["classes"].items():
            parts.setdefault((each["case"], name, each["model"]), []).append(scores)
    cases, models = list(CASES) + list(DATA), list(MODELS)
    order = sorted(
        parts,
        key=lambda key: (cases.index(key[0]), key[1][0].isdigit(), key[1], models.index(key[2])),
    )
    return {key: Pooled(key[1], parts[key]) for key in order}


def by_place(fits: Iterable[Figures]) -> dict[str, Pooled]:
    """Return the classes of `PLACES` that fits have, pooled."""
    classes = [each["classes"] for each in fits]
    rows = {name: [each[name] for each in classes if name in each] for name in PLACES}
    return {name: Pooled(name, each) for name, each in rows.items() if each}


def pooled_lines(found: list[Figures], models: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the lines of the stationary cases, pooled by class of the test rows.

    The fields are those that all models were fitted to.
    """
    fits = [each for each in found if each["case"] in STATIONARY and each["model"] in models]
    count = Counter((each["case"], each["seed"]) for each in fits)
    fits = [each for each in fits if count[each["case"], each["seed"]] == len(models)]
    lines: list[tuple[object, ...]] = []
    places = {model: by_place(each for each in fits if each["model"] == model) for model in models}
    for name, model in product(PLACES, models):
        if name not in places[model]:
            continue
        rows = places[model][name]
        gain = rows.score("log_score", without="plain")
        lines.append(
            (
                *(name, f"`{model}`", len(rows.found), f"{sum(rows.n):,}"),
                f"{rows.score('coverage_95').text(100, 1)} %",
                percent(rows.score("coverage_95", "oracle").value),
                rows.score("log_score", without="oracle").text(),
                gain._replace(value=-gain.value).text(),
            )
        )
    return lines


def page(found: list[Figures]) -> str:
    """Return the Markdown of all fits."""
    groups = classes_of(found)
    lines = [line(case, model, rows) for (case, _, model), rows in groups.items()]
    models = sorted({each["model"] for each in found}, key=list(MODELS).index)
    summary, peers = [], ""
    fields = len({each["seed"] for each in found})
    for model in models:
        verdicts = [rows.missed() for (*_, of), rows in groups.items() if of == model]
        own = [each for each in found if each["model"] == model]
        seconds = np.mean([each["cpu_seconds"] for each in own])
        met = sum(not verdict for verdict in verdicts)
        clear = sum(any(verdict.values()) for verdict in verdicts)
        summary.append((f"`{model}`", len(verdicts), met, clear, f"{seconds:.0f}"))
    if len(models) > 1:
        compared = table(POOLED, pooled_lines(found, models), left=(0, 1))
        peers = f"The fields to which all models were fitted:\n\n{compared}\n"
    return f"""# Beyond the data

    python -m benchmarks accuracy.beyond --fields {fields}{" --peers" * (len(models) > 1)}

`FieldGP` with the preset `{found[0]["preset"]}`. The simulated fields are those of
`benchmarks/beyond_cases.py`, and their test rows are pooled; the standard errors are those between
whole fields. `satellite` and `puerto-rico` are measured: their seeds choose rows of the same data,
and the ranges in brackets are bands of 95 % from resampled blocks. Numbers as classes are
distances to the nearest training row, in widths of the training data. RMSE and stated sd are in
standard deviations of the training rows, and the log score is that of values in this unit. The
oracle knows mean, border, covariance and noise; the plain law is the normal distribution with mean
and variance of the training rows.

The aims: the coverage of the 95 % interval is within {100 * COVERAGE:g} points of 95 % or of the
oracle's, and at a border at least {100 * BORDER:g} %; the log score is not above the plain law's,
and above the oracle's by at most {LOSS_INSIDE:g} inside the data, and {LOSS_BEYOND:.2f} beyond and
in clusters. The last column names the aims that are missed, in brackets if by less than two
standard errors. An aim that is missed by more, or in a single field, is clearly missed.

{table(SUMMARY, summary)}
All stationary cases, pooled:

{table(POOLED, pooled_lines(found, ["field"]), left=(0, 1))}
{peers}Each case:

{table(HEADER, lines, left=(0, 1, 2, 15))}"""


def figure(found: list[Figures]) -> Figure:
    """Return the figure: coverage and loss of the field by distance, in the stationary cases.

    The bars are two standard errors.
    """
    rows = by_place(
        each for each in found if each["case"] in STATIONARY and each["model"] == "field"
    )
    with paper_style():
        drawn = Figure(figsize=(WIDTH, 2.9), layout="constrained")
        panels = drawn.subplots(1, 2)
        for number, (law, (label, marker, colour)) in enumerate(DRAWN.items()):
            at = [PLACES.index(name) + 0.08 * number for name in rows]
            style: Any = {"marker": marker, "color": colour, "ls": "-", "lw": 1, "ms": 4}
            scores = {
                "coverage": [each.score("coverage_95", law) for each in rows.values()],
                "loss": [each.score("log_score", law, without="oracle") for each in rows.values()],
            }
            for axes, (scale, score) in zip(panels, ((100, "coverage"), (1, "loss")), strict=True):
                means = [scale * each.value for each in scores[score]]
                bars = [2 * scale * each.error for each in scores[score]]
                axes.errorbar(at, means, bars, label=label, **style)
        panels[0].axhline(95, color="black", lw=0.6, ls=":")
        panels[0].set_ylabel("coverage of 95 % intervals, %")
        panels[0].set_ylim(80, 100)
        panels[1].set_ylabel("log score less the oracle's")
        for axes in panels:
            axes.set_xticks(range(len(PLACES)), PLACES, rotation=25, ha="right")
            axes.grid(axis="y")
        panels[1].legend(fontsize=TEXT)
        drawn.supxlabel("class of the test rows; distances in widths of the data", fontsize=TEXT)
    return drawn


def main() -> None:
    """Make the missing fits, and write the table."""
    options = options_of(
        __doc__,
        out="beyond",
        table="beyond",
        cases=[*CASES, *DATA],
        fields=3,
        rows=1_500,
        data_rows=6_000,
        preset="quick",
        peers=False,
    )
    models = MODELS if options.peers else ["field"]
    found = []
    for case, seed, model in product(options.cases, range(options.fields), models):
        if case in DATA and not (folder() / DATA[case][0]).exists():
            say(f"{case}: skipped, no file {folder() / DATA[case][0]}; set GEOGP_REAL_DATA.")
            continue
        options.seed = seed
        rows = options.data_rows if case in DATA else options.rows
        if model == "exact" and rows > EXACT_ROWS:
            say(f"{case}: no exact process, because {rows:,} rows are more than {EXACT_ROWS:,}.")
            continue
        how = f"{options.preset}-{rows}" if model == "field" else f"{rows}"
        path = options.out / f"{case}-{model}-{how}-{seed}.json"
        found.append(kept(path, lambda case=case, model=model: measure(case, model, options)))
        say(path.name)
    if not found:
        raise RequestError("expected a case with data, found none: choose others with --cases.")
    write_results(options.table, page(found), found)
    if any(each["case"] in STATIONARY for each in found):
        figure(found).savefig(options.table / "beyond.webp", dpi=130)
    print(page(found))
