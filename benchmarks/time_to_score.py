"""How long until a log score on a region: our models, gradient boosting and GPyTorch.

    python benchmarks/time_to_score.py PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4

Same training, validation and test rows (random split) and all threads for each. A peer's time is
that of its whole fit and of its prediction of the test rows, as `field_peers.py` has it: boosted
mean and variance, with trees chosen by the validation rows and five fits for out-of-fold
residuals; GPyTorch's process with 512 inducing points over 15 epochs, the best of which is kept.
Both also at other learning rates (`lightgbm-0.2`), or ranks and numbers of epochs
(`gpytorch-svgp-r128-5`).
Ours are whole fits of so many epochs, since the schedule depends on their number: the shortest
whose test score is no worse than the peer's counts. LightGBM and PyTorch's optimisers are imported
before anything is timed. Then `geogp map` runs with the epochs that sufficed for gradient boosting:
reading tiles and boundaries, fit, calibration, all maps and the page. Each result is a file under
--out, and the same command continues where it stopped.
"""

import argparse
import datetime as dt
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from field import measure

import geogp
from geogp.errors import GeogpError
from geogp.files import write_text
from geogp.models.catalogue.presets import PRESETS
from geogp.runs.machine import tune_process
from geogp.runs.pipeline.job import prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

BOOSTED = ("lightgbm", "lightgbm-0.1", "lightgbm-0.2")
SPARSE = (
    *("gpytorch-svgp", *(f"gpytorch-svgp-{n}" for n in (1, 2, 5, 30))),
    *(f"gpytorch-svgp-r128-{n}" for n in (1, 5, 15)),
)
"""Peers as in the table of accuracy, and at other learning rates, ranks and numbers of epochs."""

EPOCHS = {"field": (1, 2, 3, 4, 6, 8, 12), "dbk-rbf": (1, 2, 5, 10, 20, 40, 80)}
"""Numbers of epochs of whole fits of ours."""

Found = dict[str, Any]


def import_all() -> None:
    """Import what fits import at their first use, so that no fit is charged with it."""
    import lightgbm  # noqa: F401, PLC0415

    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def folder(given: argparse.Namespace) -> Path:
    """Return where the results of one question are kept."""
    asked = f"{given.region}-{given.quarters}-{given.preset}-{torch.get_num_threads()}"
    return Path(given.out) / asked


def one(given: argparse.Namespace, model: str, epochs: int | None, seed: int) -> Found:
    """Fit a model or a peer, unless its file is there; return seconds and log score."""
    name = model if epochs is None else f"{model}-{epochs}"
    path = folder(given) / f"{name}-{seed}.json"
    if not path.exists():
        request = MapRequest(
            region=given.region,
            source=given.source,
            boundaries=given.boundaries,
            quarters=given.quarters,
            model="field" if epochs is None else model,
            preset=given.preset,
            epochs=epochs,
            seed=seed,
            out=given.out / "unfinished" / f"{name}-{seed}",
        )
        job = prepare(request, ProgressListener())
        found, _ = measure(job, model, "random", seed)
        job.folder.clear()
        kept = {key: found[key] for key in ("model", "seed", "n", "rows", "seconds")}
        kept |= {"epochs": epochs, "log_score": found["scores"]["all"]["nll"]}
        write_text(path, json.dumps(kept, indent=1) + "\n")
    found = json.loads(path.read_text())
    print(name, seed, found["seconds"], round(found["log_score"], 4), flush=True)
    return found


def total(found: Found) -> float:
    """Return the seconds of fit and prediction."""
    return float(sum(found["seconds"].values()))


def mean_over_seeds(given: argparse.Namespace, model: str, epochs: int | None) -> Found:
    """Return the means over the seeds of seconds and log score."""
    all_of = [one(given, model, epochs, seed) for seed in range(given.seeds)]
    return {
        "model": model,
        "epochs": epochs,
        "seconds": statistics.mean(map(total, all_of)),
        "log_score": statistics.mean(found["log_score"] for found in all_of),
        "n": all_of[0]["n"],
    }


def whole_map(given: argparse.Namespace, epochs: int) -> Found:
    """Run `geogp map` in a process of its own, and return seconds and log score."""
    out = folder(given) / f"map-{epochs}"
    path = folder(given) / f"map-{epochs}.json"
    command = ["geogp", "map", given.region, "--source", given.source]
    command += ["--boundaries", given.boundaries, "--quarters", given.quarters]
    command += ["--preset", given.preset, "--epochs", str(epochs)]
    if not path.exists():
        program = Path(sys.executable).with_name(command[0])
        start = monotonic()
        subprocess.run([program, *command[1:], "--out", str(out), "--fresh"], check=True)  # noqa: S603
        seconds = monotonic() - start
        run = json.loads((out / "run.json").read_text())
        score = run["metrics"]["random"]["all"]["nll"]
        kept = {"seconds": seconds, "run": run["seconds"], "log_score": score}
        write_text(path, json.dumps(kept, indent=1) + "\n")
    # Folders without the path to them, which is that of one machine.
    told = shlex.join(Path(word).name for word in command)
    return {**json.loads(path.read_text()), "command": told}


def first_as_good(ours: list[Found], goal: float) -> Found | None:
    """Return the shortest of our fits that scores no worse."""
    good = [found for found in ours if found["log_score"] <= goal]
    return min(good, key=lambda found: found["seconds"], default=None)


def compared(ours: dict[str, list[Found]], peers: list[Found]) -> list[Found]:
    """Return for each peer which of our fits scores no worse, and the ratio of the times."""
    lines = []
    for peer in peers:
        for model, fits in ours.items():
            first = first_as_good(fits, peer["log_score"])
            lines.append(
                {
                    "peer": peer["model"],
                    "model": model,
                    "epochs": None if first is None else first["epochs"],
                    "seconds": None if first is None else first["seconds"],
                    "seconds_over_ours": None
                    if first is None
                    else peer["seconds"] / first["seconds"],
                }
            )
    return lines


def page(found: Found) -> str:
    """Return the figures as Markdown."""
    asked, machine = found["asked"], found["machine"]
    rank = PRESETS[asked["preset"]].r
    fits = [*found["peers"], *(one for of in found["ours"].values() for one in of)]
    lines = [
        "# Time to a log score\n",
        f"`benchmarks/time_to_score.py {asked['region']}`, {asked['quarters']}, random split,",
        f"{fits[0]['n']['train']:,} training rows, {asked['seeds']} seed(s); {machine['threads']}",
        f"threads, torch {machine['torch']}, {machine['date']}. Seconds of fit and prediction of",
        "the test rows; the log score is that of the test rows (lower is better). Our models have",
        f"the rank of the preset `{asked['preset']}`, {rank}. `lightgbm` is a boosted mean, five",
        "fits for out-of-fold residuals and a boosted variance, at a rate of 0.05 where the name",
        "has none; `gpytorch-svgp` has rank 512 and 15 epochs where the name has none. A score of",
        "another seed, or of another order of rounding, may differ by some thousandths.\n",
        "| model | epochs | seconds | log score |",
        "| --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| `{fit['model']}` | {fit['epochs'] or ''} | {fit['seconds']:.1f} "
        f"| {fit['log_score']:.4f} |"
        for fit in fits
    ]
    lines += [
        "",
        "The shortest fit that scores no worse than the peer's:\n",
        "| peer | model | epochs | seconds | peer's seconds over ours |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| `{line['peer']}` | `{line['model']}` | never | | |"
        if line["epochs"] is None
        else f"| `{line['peer']}` | `{line['model']}` | {line['epochs']} | {line['seconds']:.1f} "
        f"| {line['seconds_over_ours']:.2f} |"
        for line in found["compared"]
    ]
    whole = found["map"]
    if whole is not None:
        parts = ", ".join(f"{name} {value:.1f} s" for name, value in whole["run"].items())
        lines += [
            "",
            f"`{whole['command']}` took {whole['seconds']:.1f} s from start to end: {parts}, and",
            "what is not counted among these: start of Python, building the model, calibration and",
            f"checks. Its test log score is {whole['log_score']:.4f}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Fit what is not yet there, run the map and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters", required=True)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "time-to-score")
    given = parser.parse_args()
    tune_process()
    torch.set_flush_denormal(True)
    import_all()
    try:
        peers = [mean_over_seeds(given, name, None) for name in (*BOOSTED, *SPARSE)]
        ours = {
            model: [mean_over_seeds(given, model, epochs) for epochs in numbers]
            for model, numbers in EPOCHS.items()
        }
        best = min(peer["log_score"] for peer in peers[: len(BOOSTED)])
        enough = first_as_good(ours["field"], best)
        found = {
            "machine": {
                "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
                "geogp": geogp.__version__,
            },
            "asked": {k: getattr(given, k) for k in ("region", "quarters", "preset", "seeds")},
            "peers": peers,
            "ours": ours,
            "compared": compared(ours, peers),
            "map": None if enough is None else whole_map(given, enough["epochs"]),
        }
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    write_text(given.out / "results.json", json.dumps(found, indent=1) + "\n")
    write_text(given.out / "table.md", page(found))
    print(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
