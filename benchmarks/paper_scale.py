"""The papers' recipe and ours at Georgia's size: how long until the same log score.

    python benchmarks/paper_scale.py --boundaries census --npz georgia.npz   # simulates the rows
    python benchmarks/paper_scale.py --npz georgia.npz --share 0.1 --h 128 --r 256
    python benchmarks/paper_scale.py --npz georgia.npz --device cuda    # h 256, r 1024, all rows

The rows are 517,139 simulated ones inside Georgia, of place alone; a tenth tests and a tenth
chooses the epoch. `plain` is the schedule of Zhu, Yuchi and Xie, appendix B.3 (preset `paper`:
rate 1e-3, constant; anchors anywhere) over 100 epochs; `ours` starts as the preset `standard` does
(anchors far apart) and has a falling rate, clipped gradients and rates of their own for noise and
weights over `--epochs`, with the mean of the weights solved for at the end: `FitSettings`, chosen
on the rows of a tenth of Georgia. Both have one model, batch and seeds, over which seconds and
scores are averaged. Only the first command needs geopandas.
"""

import argparse
import datetime as dt
import json
import platform
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geogp
from geogp.files import write_text
from geogp.models.catalogue.build_model import build
from geogp.models.catalogue.presets import PRESETS
from geogp.models.core.architecture import Architecture
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_loop import Data, FitState, fit
from geogp.runs.machine import tune_process

ROWS = 517_139
"""Georgia's rows in Zhu, Yuchi and Xie, table 2."""

QUARTERS = "2022Q1..2023Q4"

RECIPES = {
    "ours": replace(
        PRESETS["standard"], learning_rate=1.5e-2, head_rate=0.5, noise_rate=3.0, clip=1.0
    ),
    "plain": PRESETS["paper"],
}
"""Where each takes its schedule from."""


def simulate_rows(boundaries: Path, state: str, rows: int, path: Path) -> None:
    """Simulate rows in a state, and keep their scaled places, values and tests in random order."""
    # Not needed where the rows are at hand.
    from geogp.geodata.places.census import read_region  # noqa: PLC0415
    from geogp.geodata.simulation.simulated_tiles import simulate  # noqa: PLC0415
    from geogp.geodata.store.sources import open_source  # noqa: PLC0415
    from geogp.geodata.tiles.quarters import parse_quarters  # noqa: PLC0415

    region = read_region(open_source(str(boundaries)), state).region
    truth = simulate(region, rows=rows, quarters=parse_quarters(QUARTERS).all, seed=0).truth
    x = region.scale(truth["longitude"].to_numpy(), truth["latitude"].to_numpy())
    order = np.random.default_rng(0).permutation(rows)
    columns = {"x": x, "y": truth["y"].to_numpy(), "tests": truth["tests"].to_numpy(np.float64)}
    np.savez(path, **{name: np.asarray(values)[order] for name, values in columns.items()})


def parts_of(path: Path, share: float) -> dict[str, Data]:
    """Return the parts of the first rows of a file: eight tenths to learn from."""
    with np.load(path) as file:
        n = round(share * len(file["y"]))
        x, y, tests = (file[name][:n] for name in ("x", "y", "tests"))
    cuts = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
    places = {name: slice(round(a * n), round(b * n)) for name, (a, b) in cuts.items()}
    return {name: Data(x[at], y[at], tests[at]) for name, at in places.items()}


def run(name: str, epochs: int, parts: dict[str, Data], seed: int, given: Any) -> dict[str, Any]:
    """Fit by one of `RECIPES`; return seconds and scores of each epoch and of the test rows.

    Seconds are those of the epochs, validation and the solution for the mean among them, without
    building the model.
    """
    train, preset = parts["train"], RECIPES[name]
    sizes = Architecture(d=train.x.shape[1], h=given.h, r=given.r)
    model = build(
        "dbk-rbf",
        sizes,
        train.x,
        placement=preset.placement,
        noise_start=preset.noise_start,
        seed=seed,
    ).to(given.device)
    trace: list[tuple[float, float]] = []

    def keep(state: FitState, total: int) -> None:
        trace.append((state.seconds, state.validation_nll[-1]))
        print(f"  {state.epoch}/{total} {trace[-1][0]:.1f} s {trace[-1][1]:.4f}", flush=True)

    settings = FitSettings(
        epochs=epochs,
        batch=given.batch,
        learning_rate=preset.learning_rate,
        decay=preset.decay,
        clip=preset.clip,
        head_rate=preset.head_rate,
        noise_rate=preset.noise_rate,
        weights=preset.weights,
        solve_mean=name == "ours",
        seed=seed,
    )
    state = fit(model, train, parts["validation"], settings, progress=keep)
    test = parts["test"]
    score = model.predict(test.x, test.tests).log_score(test.y).mean()
    return {
        "seed": seed,
        "seconds": state.seconds,
        "validation_nll": state.best_nll,
        "best_epoch": state.best_epoch,
        "test_nll": float(score),
        "trace": trace,
    }


def mean(fits: list[dict[str, Any]], epochs: int) -> dict[str, Any]:
    """Return fits of several seeds and the means of their seconds and scores."""
    means = {
        key: statistics.mean(one[key] for one in fits)
        for key in ("seconds", "validation_nll", "test_nll")
    }
    spread = statistics.stdev(one["test_nll"] for one in fits) if len(fits) > 1 else None
    return {"epochs": epochs, **means, "test_nll_sd": spread, "fits": fits}


def compared(ours: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return the share of the plain recipe's time that ours takes, and how the scores differ."""
    reached = {
        "validation": ours["validation_nll"] <= plain["validation_nll"],
        "test": ours["test_nll"] <= plain["test_nll"],
    }
    return {
        "share_of_time": ours["seconds"] / plain["seconds"],
        "reached": reached,
        "validation_gain": plain["validation_nll"] - ours["validation_nll"],
        "test_gain": plain["test_nll"] - ours["test_nll"],
    }


def table(found: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    asked, machine = found["asked"], found["machine"]
    compared = found["compared"]
    lines = [
        "# To the log score of the papers' recipe\n",
        (
            f"`benchmarks/paper_scale.py`: dbk-rbf, h {asked['h']}, r {asked['r']}, batch "
            f"{asked['batch']}, {asked['rows']:,} simulated rows of Georgia"
        ),
        f"({machine['device']}, {machine['threads']} threads, {machine['date']}).",
        f"Means over {asked['seeds']} seed(s).\n",
        "| recipe | epochs | seconds | log score of the test rows | sd | of the validation rows |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {one['epochs']} | {one['seconds']:.1f} | {one['test_nll']:.4f} "
        f"| {'' if one['test_nll_sd'] is None else format(one['test_nll_sd'], '.4f')} "
        f"| {one['validation_nll']:.4f} |"
        for name, one in found["recipes"].items()
    ]
    lines += [
        "",
        f"Ours takes {100 * compared['share_of_time']:.1f} % of the time. Its scores (lower is",
        f"better) are those of the plain one less {compared['test_gain']:+.5f} on the test rows",
        f"and {compared['validation_gain']:+.5f} on the validation rows;",
        "no higher than those of the plain one: "
        + ", ".join(
            f"{part} {'yes' if is_so else 'no'}" for part, is_so in compared["reached"].items()
        )
        + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Simulate the rows where a boundary is given; else measure both recipes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--npz", type=Path, required=True, help="the rows")
    parser.add_argument("--boundaries", type=Path, help="simulate the rows in these boundaries")
    parser.add_argument("--state", default="GA")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows that are taken")
    parser.add_argument("--h", type=int, default=256)
    parser.add_argument("--r", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--plain-epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a folder for table.md and results.json")
    given = parser.parse_args()
    if given.boundaries is not None:
        simulate_rows(given.boundaries, given.state, given.rows, given.npz)
        return 0
    tune_process()
    torch.set_flush_denormal(True)
    parts = parts_of(given.npz, given.share)
    epochs = {"ours": given.epochs, "plain": given.plain_epochs}
    found: dict[str, Any] = {
        "machine": {
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "geogp": geogp.__version__,
        },
        "asked": {
            "rows": sum(len(part.y) for part in parts.values()),
            **{name: getattr(given, name) for name in ("h", "r", "batch", "seeds")},
        },
        "recipes": {},
    }
    fits: dict[str, list[dict[str, Any]]] = {name: [] for name in RECIPES}
    for seed in range(given.seeds):
        for name, done in fits.items():
            print(name, seed, flush=True)
            done.append(run(name, epochs[name], parts, seed, given))
    found["recipes"] = {name: mean(done, epochs[name]) for name, done in fits.items()}
    found["compared"] = compared(found["recipes"]["ours"], found["recipes"]["plain"])
    print(table(found))
    if given.out is not None:
        write_text(given.out / "results.json", json.dumps(found, indent=1) + "\n")
        write_text(given.out / "table.md", table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
