r"""`FieldGP` and GPBoost on public benchmarks of spatial prediction.

    python -m benchmarks.accuracy.spatial --data spatial --sets heaton-satellite \
        --models field gpboost

The sets are the satellite temperatures of Heaton et al. (2019, JABES 24) and the simulated
processes 2a of KAUST's competition of 2022 (Abdulah et al., arXiv 2211.03119). A Parquet file
contains coordinates, values, and the mark `test` of the rows to predict. The scores are those of
the papers' scripts. Each fit has its own file under --out. Writes a Markdown and a JSON file.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import geogp
from benchmarks.trial import Figures, Floats, command, kept, machine, parser, table, write_results
from geogp.errors import RequestError

ALPHA = 0.05
"""The interval score is that of the interval with the probability 1 - `ALPHA`."""

CLASSES = 4
"""Number of classes of the distance to the nearest training place, with equal numbers of rows."""

ASKED_AT_ONCE = 500
"""Number of rows in one prediction of GPBoost, whose time grows with the square of this number."""

ROWS_AT_ONCE = 256
"""Number of asked points whose distances to all training places are in memory at once."""


@dataclass(frozen=True)
class Kind:
    """Columns of a set: coordinates, time, values; and the coordinate reference system."""

    x: str
    y: str
    value: str
    time: str | None = None
    crs: str | None = None


TEMPERATURES = Kind("longitude", "latitude", "temperature", crs="EPSG:4326")
SIMULATED = Kind("x", "y", "z", time="t")

PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "heaton-satellite": {
        "SPDE": (1.10, 1.53, 0.83, 8.85, 0.97, 7200),
        "NNGP, conjugate": (1.21, 1.64, 0.85, 7.57, 0.95, 126),
        "LatticeKrig": (1.22, 1.68, 0.87, 7.55, 0.96, 1680),
        "NNGP, response": (1.24, 1.68, 0.87, 7.50, 0.94, 2580),
        "periodic embedding": (1.29, 1.79, 0.91, 7.44, 0.93, 588),
    }
}
"""MAE, RMSE, CRPS, interval score, coverage and seconds of table 3 of Heaton et al. (2019), on the
machines of the authors."""

Law = geogp.Prediction
Fit = Callable[[Kind, pd.DataFrame, pd.DataFrame, argparse.Namespace], tuple[Law, Figures]]


def field(
    kind: Kind, train: pd.DataFrame, test: pd.DataFrame, options: argparse.Namespace
) -> tuple[Law, Figures]:
    """Fit `FieldGP` with its defaults."""
    model = geogp.FieldGP(
        x=kind.x,
        y=kind.y,
        time=kind.time,
        crs=kind.crs,
        time_unit="quarter" if kind.time else None,
        random_state=options.seed,
        validation=options.validation,
        preset=options.preset,
    )
    return _timed(
        lambda: model.fit(train, train[kind.value]), lambda: model.predict_distribution(test)
    )


def gpboost(
    kind: Kind, train: pd.DataFrame, test: pd.DataFrame, options: argparse.Namespace
) -> tuple[Law, Figures]:
    """Fit GPBoost with Vecchia: an exponential covariance, or Gneiting's in space and time.

    With --sample, a part of the training rows gives mean and covariance parameters: rows of
    successive times in the middle, or, without times, random rows.
    """
    import gpboost as package  # noqa: PLC0415

    names = [*([kind.time] if kind.time else []), kind.x, kind.y]

    def process(rows: pd.DataFrame) -> Any:
        return package.GPModel(
            gp_coords=rows[names].to_numpy(float),
            cov_function="space_time_gneiting" if kind.time else "exponential",
            gp_approx="vecchia",
            num_neighbors=options.neighbours,
            likelihood="gaussian",
            num_parallel_threads=torch.get_num_threads(),
            seed=options.seed,
        )

    y = train[kind.value].to_numpy()
    fitted: list[Floats | float] = []

    def fit() -> None:
        rows = train.sample(frac=1, random_state=options.seed)
        if kind.time:
            away = (rows[kind.time] - rows[kind.time].median()).abs()
            rows = rows.loc[away.sort_values(kind="stable").index]
        rows = rows.iloc[: options.sample or len(train)]
        model = process(rows)
        model.fit(rows[kind.value].to_numpy(), X=np.ones((len(rows), 1)))
        mean = float(np.asarray(model.get_coef()).reshape(-1)[0])
        fitted.extend([mean, np.asarray(model.get_cov_pars()).reshape(-1)])

    def predict() -> Law:
        mean, parameters = fitted
        whole, parts = process(train), []
        for start in range(0, len(test), ASKED_AT_ONCE):
            found = whole.predict(
                y=y - mean,
                gp_coords_pred=test[names].to_numpy(float)[start : start + ASKED_AT_ONCE],
                cov_pars=parameters,
                predict_var=True,
                predict_response=True,
            )
            parts.append((mean + found["mu"], found["var"]))
        centre, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Law(centre, variance, np.zeros(len(test)))

    return _timed(fit, predict)


def _timed(fit: Callable[[], Any], predict: Callable[[], Law]) -> tuple[Law, Figures]:
    start, cpu = monotonic(), process_time()
    fit()
    fitted = monotonic()
    law = predict()
    return law, {
        "fit": fitted - start,
        "predict": monotonic() - fitted,
        "cpu": process_time() - cpu,
    }


MODELS: dict[str, Fit] = {"field": field, "gpboost": gpboost}


def scores(law: Law, y: Floats, distance: Floats) -> Figures:
    """Return the scores of predictive distributions, and the coverage by distance."""
    low, high = law.interval(1 - ALPHA)
    inside = (y >= low) & (y <= high)
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    edges = np.unique(np.quantile(distance, np.linspace(0, 1, CLASSES + 1)))
    number = np.clip(np.searchsorted(edges, distance, side="right") - 1, 0, len(edges) - 2)
    classes = [
        {
            "from": float(edges[k]),
            "to": float(edges[k + 1]),
            "n": int((number == k).sum()),
            "coverage": float(inside[number == k].mean()),
        }
        for k in range(len(edges) - 1)
        if (number == k).any()
    ]
    return {
        "mae": float(np.abs(y - law.mean).mean()),
        "rmse": float(np.sqrt(np.square(y - law.mean).mean())),
        "crps": float(law.crps(y).mean()),
        "interval": float((high - low + 2 / ALPHA * outside).mean()),
        "coverage": float(inside.mean()),
        "log_score": float(law.log_score(y).mean()),
        "classes": classes,
    }


def measure(path: Path, model: str, options: argparse.Namespace) -> Figures:
    """Fit a model to a set and return its scores."""
    frame = pd.read_parquet(path)
    kind = TEMPERATURES if TEMPERATURES.value in frame else SIMULATED
    test = frame["test"].to_numpy(bool)
    frame = frame.drop(columns="test")
    train, asked = frame[~test], frame[test]
    law, seconds = MODELS[model](kind, train, asked.drop(columns=kind.value), options)
    near = [kind.x, kind.y, *([kind.time] if kind.time else [])]
    scale = train[near].std().to_numpy()
    distance = _nearest(train[near].to_numpy(float) / scale, asked[near].to_numpy(float) / scale)
    found = scores(law, asked[kind.value].to_numpy(float), distance)
    if options.pictures:
        draw(kind, train, asked, law, options.pictures / f"{path.stem}-{model}.webp")
    how = {k: vars(options)[k] for k in ("preset", "validation", "neighbours", "sample", "seed")}
    return {"set": path.stem, "model": model, **how, "seconds": seconds, **found} | {
        "machine": machine()
    }


def draw(kind: Kind, train: pd.DataFrame, asked: pd.DataFrame, law: Law, path: Path) -> None:
    """Draw the values, the prediction and the width of the interval, at the last time asked."""
    low, high = law.interval(1 - ALPHA)
    test = asked.assign(mean=law.mean, width=high - low)
    if kind.time:
        last = test[kind.time].max()
        train, test = (part[part[kind.time] == last] for part in (train, test))
    everything = pd.concat([train, test])
    ends = everything[kind.value].quantile([0.01, 0.99]).to_numpy()
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
    size = min(40.0, 6e4 / len(everything))
    panels = [
        ("values, test rows included", everything, kind.value, ends, "viridis"),
        ("predicted mean", test, "mean", ends, "viridis"),
        ("width of the 95 % interval", test, "width", (0, test["width"].quantile(0.99)), "magma"),
    ]
    for axis, (title, rows, column, (first, end), colours) in zip(axes, panels, strict=True):
        if column == "mean":  # training rows show where the test rows are
            axis.scatter(train[kind.x], train[kind.y], color="0.8", s=size, marker="s", lw=0)
        found = axis.scatter(
            rows[kind.x],
            rows[kind.y],
            c=rows[column],
            s=size,
            vmin=first,
            vmax=end,
            cmap=colours,
            marker="s",
            lw=0,
        )
        axis.set(title=title, xlabel=kind.x)
        figure.colorbar(found, ax=axis, extend="max" if column == "width" else "both")
    axes[0].set_ylabel(kind.y)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _nearest(places: Floats, asked: Floats) -> Floats:
    """Return the distance from each asked point (m, d) to the nearest of places (n, d), (m,)."""
    known = torch.from_numpy(places)
    parts = torch.from_numpy(asked).split(ROWS_AT_ONCE)
    return torch.cat([torch.cdist(part, known).amin(1) for part in parts]).numpy()


HEADER = ("model", "MAE", "RMSE", "CRPS", "interval score", "coverage", "CPU, s")


def page(found: list[Figures]) -> str:
    """Return the tables of all sets."""
    text = f"""# Public benchmarks of spatial prediction

    python -m benchmarks.accuracy.spatial --data spatial --sets heaton-satellite \\
        --models field gpboost

`FieldGP(preset="{found[0]["preset"]}", validation="{found[0]["validation"]}")`, and GPBoost with
{found[0]["neighbours"]} neighbours, with {found[0]["machine"]["threads"]} thread and seed
{found[0]["seed"]}. The CPU time is that of fit and prediction; published methods have the elapsed
time on machines of their authors.
"""
    for name in dict.fromkeys(figures["set"] for figures in found):
        lines, classes = [], []
        for each in (figures for figures in found if figures["set"] == name):
            label = f"`{each['model']}`"
            if each["model"] == "gpboost" and each["sample"]:
                label += f", covariance from {each['sample']:,} rows"
            shown = [f"{each[k]:.3f}" for k in ("mae", "rmse", "crps", "interval", "coverage")]
            lines.append([label, *shown, f"{each['seconds']['cpu']:.0f}"])
            held = [f"{100 * part['coverage']:.1f} %" for part in each["classes"]]
            classes.append([f"`{each['model']}`", *held])
        for method, values in PUBLISHED.get(name, {}).items():
            lines.append([f"{method}, published", *(f"{v:g}" for v in values)])
        first = next(figures for figures in found if figures["set"] == name)
        ends = [f"to {part['to']:.2g}" for part in first["classes"]]
        text += f"\n## {name}\n\n{table(HEADER, lines)}\n"
        text += (
            "Coverage of the 95 % interval by distance to the nearest training row, in standard\n"
        )
        text += "deviations of the coordinates:\n\n"
        text += table(["model", *ends], classes)
    return text


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the models to the sets, and write the table."""
    asked = parser(__doc__, out="spatial", table="spatial", seed=0, neighbours=20, preset="quick")
    asked.add_argument("--sample", type=int, default=0, help="rows of GPBoost's fit; 0: all")
    asked.add_argument("--data", type=Path, required=True, help="folder of the Parquet files")
    asked.add_argument("--sets", nargs="+", required=True)
    asked.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    asked.add_argument("--validation", choices=("blocks", "random"), default="blocks")
    asked.add_argument("--pictures", type=Path, help="folder for a picture of each new fit")
    options = asked.parse_args(arguments)
    found = []
    for name, model in product(options.sets, options.models):
        path = options.data / f"{name}.parquet"
        if not path.exists():
            raise RequestError(f"expected a file {path}, found none.")
        how = f"{options.neighbours}-{options.sample}"
        if model == "field":
            how = f"{options.preset}-{options.validation}"
        out = options.out / f"{name}-{model}-{how}-{options.seed}.json"
        found.append(kept(out, lambda path=path, model=model: measure(path, model, options)))
    write_results(options.table, page(found), found)


if __name__ == "__main__":
    sys.exit(main())
