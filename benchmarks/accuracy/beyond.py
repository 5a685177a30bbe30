"""The honesty of `FieldGP` beyond its data, at borders and in clusters.

    python -m benchmarks accuracy.beyond --cases east towns --fields 3 --peers

The cases of `beyond_cases.py` are fields with a known covariance, so that there is an oracle.
The test rows are a tenth of the rows inside the data, and rows beyond them. The scores of each
class of test rows are compared with those of the oracle, and with those of the plain law: the
normal distribution with mean and variance of the training rows. With --peers, an exact Gaussian
process and GPBoost are fitted to the same rows. Each fit has its own file under --out; the same
command with more fields makes the missing fits. Writes a Markdown and a JSON file.
"""

import argparse
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

import geogp
from benchmarks.accuracy import spatial
from benchmarks.beyond_cases import CASES, World
from benchmarks.markdown import percent, plus_minus, table
from benchmarks.script import (
    Figures,
    Floats,
    clock,
    costs,
    kept,
    machine,
    parser,
    say,
    write_results,
)
from geogp.distributions.prediction import Prediction
from geogp.evaluation.metrics import row_scores

LEVELS = (50, 80, 95)
"""Levels of the intervals in percent."""

COVERAGE, INSIDE, BEYOND, BORDER = 0.02, 0.03, 0.10, 0.85
"""Aims: the coverage of the 95 % interval is that close to 95 % or to the oracle's, at a border it
is at least `BORDER`; the log score exceeds the oracle's by at most `INSIDE` or `BEYOND`, and is not
above the plain law's."""

NEAR = ("inside", "away")
"""Classes in which the log score is compared with the aim `INSIDE`."""

EXACT_ROWS = 2_000
"""Largest number of training rows of the exact process."""

SMOOTHNESS = (0.5, 1.5, 2.5)
"""Matérn processes of which the exact process is the one with the largest likelihood."""

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
    """Draw a world, fit a model, and return the scores of each class of test rows."""
    world = CASES[case](np.random.default_rng(options.seed), options.rows)
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
        classes[str(name)] = {"n": int(chosen.sum())} | {
            of: means(each[chosen]) for of, each in rows.items()
        }
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


class Mean(NamedTuple):
    """A mean over the rows of all fields, and its standard error."""

    value: float
    error: float


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
        """Return a score of a law, or its difference to this score of the law `without`."""
        less = [each[without][name] if without else 0 for each in self.found]
        own = [each[law][name] for each in self.found]
        return pooled(self.n, np.subtract(own, less))

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
            allowed = INSIDE if self.name in NEAR else BEYOND
            found["oracle"] = Mean(loss.value - allowed, loss.error)
        return found

    def missed(self) -> str:
        """Return the missed aims; in brackets if by less than two standard errors."""
        return ", ".join(
            f"({name})" if short.value < 2 * short.error else name
            for name, short in self.shortfalls().items()
            if short.value > 0
        )


HEADER = (
    *("case", "class", "model", "fields", "rows", "50 %", "80 %", "95 %", "oracle's 95 %"),
    *("log score less oracle's", "less plain", "RMSE", "oracle's", "stated sd", "width / oracle's"),
    "missed",
)


def line(case: str, model: str, rows: Pooled) -> tuple[object, ...]:
    """Return the line of a class in the table."""
    low, middle, high = (rows.score(f"coverage_{level}") for level in LEVELS)
    oracle = ("", "", "", "")
    if rows.has_oracle:
        width = rows.score("width").value / rows.score("width", "oracle").value
        oracle = (
            percent(rows.score("coverage_95", "oracle").value),
            plus_minus(*rows.score("log_score", without="oracle")),
            f"{rows.rmse('oracle'):.3f}",
            f"{width:.2f}",
        )
    return (
        *(case, rows.name, f"`{model}`", len(rows.found), f"{sum(rows.n):,}"),
        *(percent(low.value), percent(middle.value)),
        f"{plus_minus(100 * high.value, 100 * high.error, 1)} %",
        *oracle[:2],
        plus_minus(*rows.score("log_score", without="plain")),
        f"{rows.rmse():.3f}",
        oracle[2],
        f"{rows.score('sd').value:.3f}",
        oracle[3],
        rows.missed(),
    )


def classes_of(found: Iterable[Figures]) -> dict[tuple[str, str, str], Pooled]:
    """Return the classes of all fits, by case, class and model, with `inside` first."""
    parts: dict[tuple[str, str, str], list[Figures]] = {}
    for each in found:
        for name in sorted(each["classes"], key=lambda name: (name not in NEAR, name)):
            key = each["case"], name, each["model"]
            parts.setdefault(key, []).append(each["classes"][name])
    return {key: Pooled(key[1], each) for key, each in parts.items()}


def page(found: list[Figures]) -> str:
    """Return the Markdown of all fits."""
    groups = classes_of(found)
    lines = [line(case, model, rows) for (case, _, model), rows in groups.items()]
    summary = []
    for model in dict.fromkeys(each["model"] for each in found):
        verdicts = [rows.missed() for (*_, of), rows in groups.items() if of == model]
        seconds = np.mean([each["cpu_seconds"] for each in found if each["model"] == model])
        met = sum(not verdict for verdict in verdicts)
        summary.append((f"`{model}`", f"{met} of {len(verdicts)}", f"{seconds:.0f}"))
    return f"""# Beyond the data

    python -m benchmarks accuracy.beyond --fields {len({each["seed"] for each in found})}

`FieldGP` with the preset `{found[0]["preset"]}`, on simulated fields (`benchmarks/beyond_cases.py`)
with about {found[0]["rows"]:,} training rows. Test rows are pooled over the fields; the standard
errors are those between whole fields. Numbers as classes are distances to the nearest training row,
in widths of the training data. RMSE and stated sd are in standard deviations of the training rows,
and the log score is that of values in this unit. The oracle knows mean, covariance and noise; the
plain law is the normal distribution with mean and variance of the training rows.

The aims: the coverage of the 95 % interval is within {100 * COVERAGE:g} points of 95 % or of the
oracle's, and at a border at least {100 * BORDER:g} %; the log score is not above the plain law's,
and at most {INSIDE:g} above the oracle's inside the data, {BEYOND:.2f} beyond and in clusters. The
last column names the aims that are missed, in brackets if by less than two standard errors.

{table(("model", "classes that meet all aims", "CPU seconds of a fit"), summary)}
{table(HEADER, lines, left=(0, 1, 2, 15))}"""


def main() -> None:
    """Make the missing fits, and write the table."""
    options = read_options()
    models = MODELS if options.peers else ["field"]
    found = []
    for case, seed, model in product(options.cases, range(options.fields), models):
        options.seed = seed
        how = options.preset if model == "field" else "peer"
        path = options.out / f"{case}-{model}-{how}-{options.rows}-{seed}.json"
        found.append(kept(path, lambda case=case, model=model: measure(case, model, options)))
        say(path.name)
    text = page(found)
    write_results(options.table, text, found)
    print(text)


def read_options() -> Any:
    """Return the options of the command line."""
    return parser(
        __doc__,
        out="beyond",
        table="beyond",
        cases=CASES,
        fields=3,
        rows=1500,
        preset="quick",
        peers=False,
    ).parse_args()
