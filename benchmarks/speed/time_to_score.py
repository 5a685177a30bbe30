"""Time to reach a log score on a region: our models, gradient boosting and GPyTorch.

    python -m benchmarks speed.time_to_score PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4

All models have the same training, validation and test rows (random split) and all threads. A peer's
time includes its whole fit and its prediction of the test rows, by `field_peers.py`. These peers
are boosted mean and variance, with the number of trees chosen by the validation rows and five fits
for out-of-fold residuals, and GPyTorch's process with 512 inducing points, the best of 15 epochs.
Both are also run with other learning rates (`lightgbm-0.2`), or ranks and numbers of epochs
(`gpytorch-svgp-r128-5`).

Our times are those of whole fits with given numbers of epochs, because the schedule depends on that
number; the shortest fit whose test score is no worse than the peer's counts. LightGBM and PyTorch's
optimisers are imported before timing. Then `geogp map` runs with the number of epochs that reached
the score of gradient boosting: reading tiles and boundaries, fit, calibration, all maps and the
page. Each result is a file under --out, and the same command continues where it stopped.
"""

import argparse
import functools
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from time import monotonic

import torch

from benchmarks.accuracy.field import measure
from benchmarks.markdown import table
from benchmarks.region_trial import prepare
from benchmarks.script import Figures, kept, machine, options_of, write_results
from geogp.models.presets import PRESETS
from geogp.runs.machine import tune_process

BOOSTED = ("lightgbm", "lightgbm-0.1", "lightgbm-0.2")
SPARSE = (
    *("gpytorch-svgp", *(f"gpytorch-svgp-{n}" for n in (1, 2, 5, 30))),
    *(f"gpytorch-svgp-r128-{n}" for n in (1, 5, 15)),
)
"""Peers as in the accuracy table, and with other learning rates, ranks and numbers of epochs."""

EPOCHS = {"field": (1, 2, 3, 4, 6, 8, 12), "dbk-rbf": (1, 2, 5, 10, 20, 40, 80)}
"""Numbers of epochs of our whole fits."""


def import_all() -> None:
    """Import modules that fits import at first use, so that no fit includes this time."""
    import lightgbm  # noqa: F401, PLC0415

    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def folder(given: argparse.Namespace) -> Path:
    """Return the folder for results with the given settings."""
    asked = f"{given.region}-{given.quarters}-{given.preset}-{torch.get_num_threads()}"
    return Path(given.out) / asked


def timed(given: argparse.Namespace, model: str, epochs: int | None, seed: int) -> Figures:
    """Fit our model, or a peer (without epochs); return seconds and log score."""
    trial = prepare(
        given,
        given.out / "unfinished" / f"{model}-{epochs}-{seed}",
        model="field" if epochs is None else model,
        preset=given.preset,
        epochs=epochs,
        seed=seed,
    )
    found, _ = measure(trial, model, "random")
    same = {key: found[key] for key in ("model", "seed", "n", "rows", "seconds")}
    return same | {"epochs": epochs, "log_score": found["scores"]["all"]["nll"]}


def mean_over_seeds(given: argparse.Namespace, model: str, epochs: int | None) -> Figures:
    """Return the means over the seeds of seconds and log score."""
    name, fits = model if epochs is None else f"{model}-{epochs}", []
    for seed in range(given.seeds):
        make = functools.partial(timed, given, model, epochs, seed)
        fits.append(kept(folder(given) / f"{name}-{seed}.json", make))
        print(name, seed, fits[-1]["seconds"], round(fits[-1]["log_score"], 4), flush=True)
    return {
        "model": model,
        "epochs": epochs,
        "seconds": statistics.mean(sum(found["seconds"].values()) for found in fits),
        "log_score": statistics.mean(found["log_score"] for found in fits),
        "n": fits[0]["n"],
    }


def whole_map(given: argparse.Namespace, epochs: int) -> Figures:
    """Run `geogp map` in a separate process, and return seconds and log score."""
    words = ["geogp", "map", given.region, "--source", given.source]
    words += ["--boundaries", given.boundaries, "--quarters", given.quarters]
    words += ["--preset", given.preset, "--epochs", str(epochs)]

    def make() -> Figures:
        out = folder(given) / f"map-{epochs}"
        program = Path(sys.executable).with_name(words[0])
        start = monotonic()
        subprocess.run([program, *words[1:], "--out", str(out), "--fresh"], check=True)  # noqa: S603
        seconds = monotonic() - start
        run = json.loads((out / "run.json").read_text())
        score = run["metrics"]["random"]["all"]["nll"]
        return {"seconds": seconds, "run": run["seconds"], "log_score": score}

    # Folders are written without their path, which depends on the machine.
    told = shlex.join(Path(word).name for word in words)
    return {**kept(folder(given) / f"map-{epochs}.json", make), "command": told}


def first_as_good(ours: list[Figures], goal: float) -> Figures | None:
    """Return our shortest fit whose score is no worse than the goal."""
    good = [found for found in ours if found["log_score"] <= goal]
    return min(good, key=lambda found: found["seconds"], default=None)


def compared(ours: dict[str, list[Figures]], peers: list[Figures]) -> list[Figures]:
    """Return, for each peer, our shortest fit with no worse score, and the ratio of the times."""
    lines = []
    for peer in peers:
        for model, fits in ours.items():
            line = {"peer": peer["model"], "model": model}
            first = first_as_good(fits, peer["log_score"])
            if first is None:
                line |= dict.fromkeys(("epochs", "seconds", "seconds_over_ours"))
            else:
                line |= {key: first[key] for key in ("epochs", "seconds")}
                line["seconds_over_ours"] = peer["seconds"] / first["seconds"]
            lines.append(line)
    return lines


def page(found: Figures) -> str:
    """Return the figures as Markdown."""
    asked, machine = found["asked"], found["machine"]
    rank = PRESETS[asked["preset"]].r
    fits = [*found["peers"], *(one for of in found["ours"].values() for one in of)]
    scores = [
        (
            *(f"`{fit['model']}`", fit["epochs"] or ""),
            *(f"{fit['seconds']:.1f}", f"{fit['log_score']:.4f}"),
        )
        for fit in fits
    ]
    ratios = [
        (f"`{line['peer']}`", f"`{line['model']}`")
        + (
            ("never", "", "")
            if line["epochs"] is None
            else (line["epochs"], f"{line['seconds']:.1f}", f"{line['seconds_over_ours']:.2f}")
        )
        for line in found["compared"]
    ]
    text = f"""# Time to a log score

`benchmarks/speed/time_to_score.py {asked["region"]}`, {asked["quarters"]}, random split,
{fits[0]["n"]["train"]:,} training rows, {asked["seeds"]} seed(s); {machine["threads"]}
threads, torch {machine["torch"]}, {machine["date"]}. Seconds of fit and prediction of
the test rows; the log score is that of the test rows (lower is better). Our models have
the rank of the preset `{asked["preset"]}`, {rank}. `lightgbm` is a boosted mean, five
fits for out-of-fold residuals and a boosted variance, with rate 0.05 unless the name has
another; `gpytorch-svgp` has rank 512 and 15 epochs unless the name has others. A score with
another seed, or another order of rounding, may differ by some thousandths.

{table(("model", "epochs", "seconds", "log score"), scores)}
The shortest fit that scores no worse than the peer's:

{table(("peer", "model", "epochs", "seconds", "peer's seconds over ours"), ratios, left=(0, 1))}"""
    whole = found["map"]
    if whole is None:
        return text
    parts = ", ".join(f"{name} {value:.1f} s" for name, value in whole["run"].items())
    return f"""{text}
`{whole["command"]}` took {whole["seconds"]:.1f} s from start to end: {parts}, and
other work: start of Python, building the model, calibration and
checks. The test log score is {whole["log_score"]:.4f}.
"""


def main() -> None:
    """Make the fits whose files do not exist yet, run the map and write the table."""
    given = options_of(
        __doc__, out="time-to-score", table="time-to-score", region=True, preset="quick", seeds=1
    )
    tune_process()
    import_all()
    peers = [mean_over_seeds(given, name, None) for name in (*BOOSTED, *SPARSE)]
    ours = {
        model: [mean_over_seeds(given, model, epochs) for epochs in numbers]
        for model, numbers in EPOCHS.items()
    }
    best = min(peer["log_score"] for peer in peers[: len(BOOSTED)])
    enough = first_as_good(ours["field"], best)
    found = {
        "machine": machine(),
        "asked": {k: getattr(given, k) for k in ("region", "quarters", "preset", "seeds")},
        "peers": peers,
        "ours": ours,
        "compared": compared(ours, peers),
        "map": None if enough is None else whole_map(given, enough["epochs"]),
    }
    write_results(given.table, page(found), found)
    print(page(found))
