"""Student-t against Gaussian noise where some training rows are wrong, and where none are.

    python benchmarks/robust.py PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4 --models sv-dkl vbll --seeds 2

In the second half of the fits, 5 % of the training and validation speeds are multiplied or divided
by 30; test rows stay as they were measured. Each fit is its own file under --out, and the same
command continues where it stopped; the tables are made from them.
"""

import argparse
import hashlib
import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geogp
from geogp.errors import GeogpError
from geogp.evaluation.metrics import score
from geogp.evaluation.splits.split_rows import random_split
from geogp.files import write_text
from geogp.models.catalogue.build_model import CATALOGUE
from geogp.models.core.options import NOISES
from geogp.models.families.student_noise import StudentGP
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

ABLE = [name for name, row in CATALOGUE.items() if row.student is not None]
SHARE, FACTOR = 0.05, 30.0
FIGURES = ("nll", "crps", "coverage_50", "coverage_80", "coverage_95")


def contaminated(
    y: np.ndarray, open_rows: np.ndarray, *, share: float, factor: float, seed: int
) -> np.ndarray:
    """Return log10 speeds of which a share of the open rows is multiplied or divided by a factor.

    Parameters
    ----------
    y
        log10 speeds (n,); left alone.
    open_rows
        Which may change, (n,), bool. Of these, round(share times their number) do.
    share, factor, seed
        How many, by what, and which.
    """
    random = np.random.default_rng([seed, 30])
    rows = np.flatnonzero(open_rows)
    chosen = random.choice(rows, round(share * len(rows)), replace=False)
    wrong = y.copy()
    wrong[chosen] += random.choice([-1.0, 1.0], len(chosen)) * np.log10(factor)
    return wrong


def measure(job: Job, share: float, factor: float) -> dict[str, Any]:
    """Fit the job's model with a share of wrong rows and return its figures on clean test rows."""
    request, seen = job.request, job.observations
    parts = random_split(seen.quadkey, seen.quarter, request.seed)
    rows = {name: parts == name for name in ("train", "validation", "test")}
    clean = seen.y[rows["test"]]
    y = contaminated(seen.y, ~rows["test"], share=share, factor=factor, seed=request.seed)
    job.ingested = replace(job.ingested, observations=replace(seen, y=y))
    fitted = fit_model(job, "robust", rows["train"], rows["validation"], job.preset.weights)
    model = fitted.network_
    prediction = fitted.predict_distribution(job.table[rows["test"]])
    df = float(model.noise.df.detach()) if isinstance(model, StudentGP) else None
    return {
        "region": job.region.code,
        "target": request.target,
        "model": request.model,
        "noise": request.noise,
        "share": share,
        "factor": factor,
        "seed": request.seed,
        "n": {name: int(chosen.sum()) for name, chosen in rows.items()},
        "settings": {"h": job.preset.h, "r": job.preset.r, "epochs": job.epochs},
        "scores": asdict(score(prediction, clean)),
        "noise_sd": float(np.sqrt(prediction.noise_variance[0])),
        "df": df,
        "seconds": fitted.history_.seconds,
        "versions": {"geogp": geogp.__version__, "torch": torch.__version__},
        "device": str(job.device),
        "threads": torch.get_num_threads(),
    }


def lines_of(fits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line for each model, noise and share: means over the seeds."""
    groups: dict[tuple[float, str, str], list[dict[str, Any]]] = {}
    for one in fits:
        groups.setdefault((one["share"], one["model"], one["noise"]), []).append(one)
    lines = []
    for (share, model, noise), found in groups.items():
        figures = {k: float(np.mean([one["scores"][k] for one in found])) for k in FIGURES}
        known = [one["df"] for one in found if one["df"] is not None]
        lines.append(
            {
                "share": share,
                "model": model,
                "noise": noise,
                "seeds": len(found),
                **figures,
                "df": float(np.mean(known)) if known else None,
                "seconds": float(np.mean([one["seconds"] for one in found])),
            }
        )
    return lines


def markdown(fits: list[dict[str, Any]], command: str) -> str:
    """Return the tables with what made them."""
    first, lines = fits[0], lines_of(fits)
    n, sizes = first["n"], first["settings"]
    head = (
        f"# {first['region']}, {first['target']}: Student-t noise against Gaussian noise\n\n"
        f"`{command}`\n\n"
        f"geogp {first['versions']['geogp']}, torch {first['versions']['torch']}, device "
        f"{first['device']}, {first['threads']} threads; random split, {n['train']} training, "
        f"{n['validation']} validation, {n['test']} test rows; h {sizes['h']}, r {sizes['r']}, "
        f"{sizes['epochs']} epochs. Means over the seeds, on test rows as measured, in log10 "
        "units; a lower score is better. `df`: the degrees of freedom that were learned.\n"
    )
    titles = {
        share: (
            f"{100 * share:g} % of the training and validation rows times or over "
            f"{first['factor']:g}"
            if share
            else "All rows as measured"
        )
        for share in dict.fromkeys(line["share"] for line in lines)
    }
    return head + "".join(
        f"\n## {title}\n\n" + _table([line for line in lines if line["share"] == share])
        for share, title in titles.items()
    )


def _table(lines: list[dict[str, Any]]) -> str:
    names = ("model", "noise", "seeds", "log score", "CRPS", "50 % holds", "80 % holds")
    head = "| " + " | ".join((*names, "95 % holds", "df", "fit (s)")) + " |\n"
    rule = "| --- | --- |" + " ---: |" * 8 + "\n"
    return head + rule + "".join(_row(line) for line in lines)


def _row(line: dict[str, Any]) -> str:
    held = " | ".join(f"{100 * line[f'coverage_{level}']:.1f} %" for level in (50, 80, 95))
    df = "" if line["df"] is None else f"{line['df']:.2f}"
    return (
        f"| `{line['model']}` | {line['noise']} | {line['seeds']} | {line['nll']:.4f} | "
        f"{line['crps']:.4f} | {held} | {df} | {line['seconds']:.0f} |\n"
    )


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters")
    parser.add_argument("--target", default="download")
    parser.add_argument("--models", nargs="+", default=["sv-dkl", "vbll"], choices=ABLE)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--share", type=float, default=SHARE, help="of wrong rows")
    parser.add_argument("--factor", type=float, default=FACTOR)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rank", type=int, help="r in place of the preset's")
    parser.add_argument("--device", default="auto")
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "out" / "robust", help="one file a fit")
    parser.add_argument("--table", type=Path, default=here / "results" / "robust")
    return parser.parse_args()


def _one(
    options: argparse.Namespace, share: float, model: str, noise: str, seed: int
) -> dict[str, Any]:
    request = MapRequest(
        region=options.region,
        source=options.source,
        boundaries=options.boundaries,
        quarters=options.quarters,
        target=options.target,
        model=model,
        noise=noise,
        preset=options.preset,
        epochs=options.epochs,
        seed=seed,
        device=options.device,
        out=options.out / "unfinished",
    )
    read = hashlib.sha256(f"{options.source} {options.boundaries}".encode()).hexdigest()[:8]
    sizes = f"{options.preset}-{options.epochs}-{options.rank}-{options.factor:g}"
    sizes += f"-{options.device}-{read}"
    place = options.out / f"{options.region}-{options.target}-{options.quarters}-{sizes}"
    path = place / f"{model}-{noise}-{share:g}-{seed}.json"
    if not path.exists():
        job = prepare(request, ProgressListener())
        job.preset = replace(job.preset, r=options.rank or job.preset.r)
        job.folder.clear()
        found = measure(job, share, options.factor)
        job.folder.clear()
        write_text(path, json.dumps(found, indent=1) + "\n")
        shown = {name: round(found["scores"][name], 4) for name in FIGURES}
        print(model, noise, share, seed, shown, f"{found['seconds']:.0f} s", flush=True)
    return dict(json.loads(path.read_text("utf-8")))


def main() -> int:
    """Fit what is not yet there, and write the tables."""
    options = parse()
    runs = product((0.0, options.share), options.models, NOISES, range(options.seeds))
    try:
        fits = [_one(options, *run) for run in runs]
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    command = shlex.join(["python", "benchmarks/robust.py", *sys.argv[1:]])
    options.table.mkdir(parents=True, exist_ok=True)
    write_text(options.table / f"{options.region}.md", markdown(fits, command))
    write_text(options.table / f"{options.region}.json", json.dumps(fits, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
