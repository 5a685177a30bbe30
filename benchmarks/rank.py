"""What the rank of a model with anchors costs on a region, and what it gives.

    python benchmarks/rank.py PR --source ookla-open-data --boundaries census

Random split; kernel by the preset's L-BFGS, posterior from all training rows.
"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from geogp.errors import GeogpError
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.metrics import score
from geogp.evaluation.splits.split_rows import random_split
from geogp.files import write_text
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

RANKS = (100, 200, 500, 1000)


def measure(job: Job, r: int) -> dict[str, Any]:
    """Return seconds and scores of one rank."""
    job.folder.clear()
    job.preset = replace(job.preset, r=r)
    seen = job.observations
    parts = random_split(seen.quadkey, seen.quarter, job.request.seed)
    train, test = parts == "train", parts == "test"
    start = monotonic()
    model = fit_model(job, "rank", train, parts == "validation", job.preset.weights)
    fit = monotonic() - start
    start = monotonic()
    prediction = model.predict_distribution(job.table[test])
    predict = monotonic() - start
    job.folder.clear()
    y = seen.y[test]
    base = quarter_baseline(seen.quarter[train], seen.y[train], seen.quarter[test]).prediction
    found = asdict(score(prediction, y))
    evaluated = {"r": r, "fit_seconds": fit, "predict_seconds": predict, "test": int(test.sum())}
    return {**evaluated, **found, "baseline": float(np.mean(base.log_score(y)))}


def markdown(region: str, model: str, lines: list[dict[str, Any]]) -> str:
    """Return the table."""
    head = (
        f"# {region}: `{model}` by rank\n\n"
        "Made by `benchmarks/rank.py`, random split, seed 0. Scores of the test rows on the scale "
        "of log10 Mbps; seconds of one machine, fits one after the other.\n\n"
        "| r | log score | less baseline | CRPS | 95 % holds | fit (s) | predict (s) |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    return head + "".join(
        f"| {line['r']:,} | {line['nll']:.4f} | {line['nll'] - line['baseline']:+.4f} | "
        f"{line['crps']:.4f} | {100 * line['coverage_95']:.1f} % | {line['fit_seconds']:.0f} | "
        f"{line['predict_seconds']:.1f} |\n"
        for line in lines
    )


def main() -> int:
    """Fit at every rank and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters")
    parser.add_argument("--model", default="nystrom-mixed")
    parser.add_argument("--ranks", nargs="+", type=int, default=RANKS)
    parser.add_argument("--epochs", type=int)
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "out" / "rank")
    parser.add_argument("--table", type=Path, default=here / "results" / "rank")
    options = parser.parse_args()
    request = MapRequest(
        region=options.region,
        source=options.source,
        boundaries=options.boundaries,
        quarters=options.quarters,
        model=options.model,
        preset="quick",
        epochs=options.epochs,
        out=options.out,
    )
    try:
        job = prepare(request, ProgressListener())
        lines = []
        for r in options.ranks:
            lines.append(measure(job, r))
            print(lines[-1], file=sys.stderr, flush=True)
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    options.table.mkdir(parents=True, exist_ok=True)
    name = f"{options.region}-{options.model}"
    write_text(options.table / f"{name}.md", markdown(job.region.name, options.model, lines))
    write_text(options.table / f"{name}.json", json.dumps(lines, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
