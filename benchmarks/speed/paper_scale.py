"""Time to the same log score with the papers' training schedule and ours, at Georgia's size.

    python -m benchmarks speed.paper_scale --boundaries census --npz georgia.npz  # simulates rows
    python -m benchmarks speed.paper_scale --npz georgia.npz --share 0.1 --h 128 --r 256
    python -m benchmarks speed.paper_scale --npz georgia.npz --h 128 --r 256 --epochs 24 \
        --rate 5e-3 --plain-epochs 50 --table benchmarks/results/paper-scale-whole
    python -m benchmarks speed.paper_scale --npz georgia.npz --device cuda  # h 256, r 1024, all

The rows are 517,139 simulated rows inside Georgia, with place as the only input. A tenth of the
rows is for testing and a tenth chooses the epoch. `plain` is the schedule of Zhu, Yuchi and Xie,
appendix B.3 (preset `paper`: constant rate 1e-3, anchors anywhere). `ours` starts like the preset
`standard` (anchors far apart), with a falling rate, clipped gradients and separate rates for noise
and weights; at the end, the mean of the weights gets its closed form. These `FitSettings` were
chosen on the rows of a tenth of Georgia; with ten times as many rows, the validation rows chose a
lower `--rate`. Both schedules have the same model, batch and seeds; seconds and scores are averaged
over seeds. Only the first command needs geopandas.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.markdown import table
from benchmarks.peak_memory import peak_bytes
from benchmarks.script import Figures, machine, options_of, write_results
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import FitState, fit
from geogp.models.presets import PRESETS
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.runs.machine import tune_process

GB = 1e9

ROWS = 517_139
"""Georgia's rows in Zhu, Yuchi and Xie, table 2."""

QUARTERS = "2022Q1..2023Q4"

RECIPES = {
    "ours": replace(PRESETS["standard"], head_rate=0.5, noise_rate=3.0, clip=1.0),
    "plain": PRESETS["paper"],
}
"""Source of each schedule."""

SCHEDULE = ("learning_rate", "decay", "clip", "head_rate", "noise_rate", "weights")


def simulate_rows(given: argparse.Namespace) -> None:
    """Simulate rows in a state; store scaled places, values and tests in random order."""
    # These imports are not needed if the rows exist.
    import geogp  # noqa: PLC0415
    from geogp.estimators.point_columns import Points  # noqa: PLC0415
    from geogp.estimators.point_scale import PointScale  # noqa: PLC0415
    from geogp.geodata.simulation.simulated_tiles import simulate  # noqa: PLC0415
    from geogp.geodata.tiles.quarters import parse_quarters  # noqa: PLC0415

    region = geogp.read_region(given.state, boundaries=str(given.boundaries))
    quarters = parse_quarters(QUARTERS).all
    truth = simulate(region, rows=given.rows, quarters=quarters, seed=0).truth
    places = Points(truth["longitude"].to_numpy(), truth["latitude"].to_numpy())
    x = PointScale(region.bounds).inputs(places)
    order = np.random.default_rng(0).permutation(given.rows)
    columns = {"x": x, "y": truth["y"].to_numpy(), "tests": truth["tests"].to_numpy(np.float64)}
    np.savez(given.npz, **{name: np.asarray(values)[order] for name, values in columns.items()})


def parts_of(path: Path, share: float) -> dict[str, Data]:
    """Return the parts of the first rows of a file, eight tenths of them for training."""
    with np.load(path) as file:
        n = round(share * len(file["y"]))
        x, y, tests = (file[name][:n] for name in ("x", "y", "tests"))
    cuts = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
    places = {name: slice(round(a * n), round(b * n)) for name, (a, b) in cuts.items()}
    return {name: Data(x[at], y[at], tests[at]) for name, at in places.items()}


def run(
    name: str, epochs: int, parts: dict[str, Data], seed: int, given: argparse.Namespace
) -> Figures:
    """Fit by one of `RECIPES`; return seconds and scores of each epoch and of the test rows.

    Seconds include all epochs, validation and the solution for the mean, but not building the
    model.
    """
    train, preset = parts["train"], RECIPES[name]
    model = build(
        "dbk-rbf",
        Architecture(d=train.x.shape[1], h=given.h, r=given.r),
        train.x,
        placement=preset.placement,
        noise_start=preset.noise_start,
        seed=seed,
    ).to(given.device)
    trace: list[tuple[float, float]] = []

    def keep(state: FitState, total: int) -> None:
        trace.append((state.seconds, state.validation_nll[-1]))
        print(f"  {state.epoch}/{total} {trace[-1][0]:.1f} s {trace[-1][1]:.4f}", flush=True)

    schedule = {field: getattr(preset, field) for field in SCHEDULE}
    if name == "ours":
        schedule["learning_rate"] = given.rate
    settings = FitSettings(
        epochs=epochs,
        batch=given.batch,
        **schedule,
        solve_mean=name == "ours",
        seed=seed,
    )
    print(name, seed, flush=True)
    _, state = fit(model, train, parts["validation"], settings, progress=keep)
    test = parts["test"]
    return {
        "seed": seed,
        "seconds": state.seconds,
        "validation_nll": state.best_nll,
        "best_epoch": state.best_epoch,
        "test_nll": float(model.predict(test.x, test.tests).log_score(test.y).mean()),
        "trace": trace,
    }


def mean(fits: list[Figures], epochs: int) -> Figures:
    """Return fits with several seeds, and the means of their seconds and scores."""
    keys = ("seconds", "validation_nll", "test_nll")
    means = {key: statistics.mean(one[key] for one in fits) for key in keys}
    sd = statistics.stdev(one["test_nll"] for one in fits) if len(fits) > 1 else None
    return {"epochs": epochs, **means, "test_nll_sd": sd, "fits": fits}


def compared(ours: Figures, plain: Figures) -> Figures:
    """Return the time of our recipe as a share of the plain recipe's, and score differences."""
    gain = {part: plain[f"{part}_nll"] - ours[f"{part}_nll"] for part in ("validation", "test")}
    return {
        "share_of_time": ours["seconds"] / plain["seconds"],
        "reached": {part: value >= 0 for part, value in gain.items()},
        **{f"{part}_gain": value for part, value in gain.items()},
    }


def page(found: Figures) -> str:
    """Return the figures as Markdown."""
    asked, machine = found["asked"], found["machine"]
    compared = found["compared"]
    memory = found["peak_bytes"] / GB
    header = ("recipe", "epochs", "seconds", "log score of the test rows", "sd")
    lines = [
        (
            *(name, one["epochs"], f"{one['seconds']:.1f}", f"{one['test_nll']:.4f}"),
            "" if one["test_nll_sd"] is None else f"{one['test_nll_sd']:.4f}",
            f"{one['validation_nll']:.4f}",
        )
        for name, one in found["recipes"].items()
    ]
    reached = ", ".join(
        f"{part} {'yes' if is_so else 'no'}" for part, is_so in compared["reached"].items()
    )
    return f"""# Time to the log score of the papers' recipe

`benchmarks/speed/paper_scale.py`: dbk-rbf, h {asked["h"]}, r {asked["r"]}, batch \
{asked["batch"]}, our rate {asked["rate"]:g}, {asked["rows"]:,} simulated rows of Georgia
({machine["device"]}, {machine["threads"]} threads, {machine["date"]}).
Means over {asked["seeds"]} seed(s). The process had at most {memory:.2f} GB of memory.

{table((*header, "of the validation rows"), lines)}
Ours takes {100 * compared["share_of_time"]:.1f} % of the time. Its scores (lower is
better) are those of the plain recipe minus {compared["test_gain"]:+.5f} on the test rows
and {compared["validation_gain"]:+.5f} on the validation rows;
no higher than those of the plain recipe: {reached}.
"""


def main() -> None:
    """Simulate the rows if boundaries are given; otherwise measure both recipes."""
    given = options_of(
        __doc__,
        table="paper-scale",
        required="npz",
        state="GA",
        rows=ROWS,
        h=256,
        r=1024,
        batch=1024,
        epochs=10,
        rate=1.5e-2,
        plain_epochs=100,
        seeds=1,
        devices=True,
        boundaries=Path,
        share=1.0,
    )
    if given.boundaries is not None:
        simulate_rows(given)
        return
    tune_process()
    parts = parts_of(given.npz, given.share)
    epochs = {"ours": given.epochs, "plain": given.plain_epochs}
    fits: dict[str, list[Figures]] = {name: [] for name in RECIPES}
    for seed in range(given.seeds):
        for name, done in fits.items():
            done.append(run(name, epochs[name], parts, seed, given))
    recipes = {name: mean(done, epochs[name]) for name, done in fits.items()}
    found = {
        "machine": machine(given.device),
        "asked": {
            "rows": sum(len(part.y) for part in parts.values()),
            **{name: getattr(given, name) for name in ("h", "r", "batch", "rate", "seeds")},
        },
        "recipes": recipes,
        "compared": compared(recipes["ours"], recipes["plain"]),
        "peak_bytes": peak_bytes(),
    }
    print(page(found))
    write_results(given.table, page(found), found)
