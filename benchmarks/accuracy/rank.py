"""Time and scores by the rank of a model with anchors, on a region.

    python -m benchmarks accuracy.rank PR --source ookla-open-data --boundaries census

The split is random. The preset's L-BFGS learns the kernel, and all training rows give the
posterior.
"""

from dataclasses import asdict, replace
from time import monotonic

import numpy as np

from benchmarks.markdown import percent, table
from benchmarks.region_trial import fitted, prepare, split
from benchmarks.script import Figures, options_of, say, write_results
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.metrics import score
from geogp.runs.pipeline.fitting import RunFitter

RANKS = (100, 200, 500, 1000)


def measure(trial: RunFitter, r: int) -> Figures:
    """Return seconds and scores for one rank."""
    trial = replace(trial, model=trial.model.with_rank(r))
    seen, rows = trial.inputs.observations, split(trial)
    train, test = rows["train"], rows["test"]
    model, seconds = fitted(trial, rows)
    start = monotonic()
    prediction = model.predict_distribution(trial.inputs.table[test])
    predict, y = monotonic() - start, seen.y[test]
    base = quarter_baseline(seen.quarter[train], seen.y[train], seen.quarter[test]).prediction
    return {
        "r": r,
        "fit_seconds": seconds,
        "predict_seconds": predict,
        "test": int(test.sum()),
        **asdict(score(prediction, y)),
        "baseline": float(np.mean(base.log_score(y))),
    }


def page(region: str, model: str, found: list[Figures]) -> str:
    """Return the Markdown of the figures."""
    header = ("r", "log score", "less baseline", "CRPS", "95 % holds", "fit (s)", "predict (s)")
    lines = [
        (
            f"{one['r']:,}",
            f"{one['nll']:.4f}",
            f"{one['nll'] - one['baseline']:+.4f}",
            f"{one['crps']:.4f}",
            percent(one["coverage_95"]),
            f"{one['fit_seconds']:.0f}",
            f"{one['predict_seconds']:.1f}",
        )
        for one in found
    ]
    return (
        f"# {region}: `{model}` by rank\n\n"
        "Made by `benchmarks/accuracy/rank.py`, random split, seed 0. Scores of the test rows on "
        "the scale of log10 Mbps; seconds of one machine, fits one after the other.\n\n"
    ) + table(header, lines, left=())


def main() -> None:
    """Fit with every rank and write the table."""
    options = options_of(
        __doc__,
        out="rank",
        table="rank",
        region=True,
        model="nystrom-mixed",
        epochs=int,
        ranks=RANKS,
    )
    model = options.model
    trial = prepare(options, options.out, model=model, preset="quick", epochs=options.epochs)
    found = []
    for r in options.ranks:
        found.append(measure(trial, r))
        say(found[-1])
    text = page(trial.inputs.region.name, model, found)
    write_results(options.table, text, found, f"{options.region}-{model}")
