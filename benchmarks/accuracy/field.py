r"""The field model compared with its peers on the same rows, for several seeds and both splits.

    python -m benchmarks accuracy.field PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4 --models field lightgbm --seeds 5

Each fit has its own file under --out, and the same command continues where it stopped;
`field_table.py` makes the committed tables from these files.
"""

import argparse
import hashlib
import json
from dataclasses import asdict, replace
from itertools import product
from time import monotonic

import numpy as np
import torch

import geogp
from benchmarks.field_case import Answer, Case, QuantileLaw
from benchmarks.peers.field_peers import PEERS, SCHEDULES
from benchmarks.region_trial import fitted, groups_of, parts_of, prepare, split
from benchmarks.script import Figures, parser
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.metrics import rows_by_group, score_by_stratum
from geogp.evaluation.splits.split_rows import cell_indices
from geogp.files import write_text
from geogp.models.catalogue.rows import CATALOGUE
from geogp.runs.pipeline.fitting import RunFitter

SPLITS = ("random", "blocks")


def measure(trial: RunFitter, model: str, how: str) -> tuple[Figures, dict[str, np.ndarray]]:
    """Fit a model on the training rows of a split; return figures and test rows."""
    seen, rows = trial.inputs.observations, split(trial, how)
    groups = groups_of(trial, how)
    data = {
        name: replace(trial.data(chosen), groups=None if groups is None else groups[chosen])
        for name, chosen in rows.items()
    }
    test, tested = data["test"], rows["test"]
    stratum, quarter = seen.stratum[tested], seen.quarter[tested]
    start = monotonic()
    peers = {**PEERS, **SCHEDULES}
    if model in peers:
        units, seed = np.array(trial.model.scale.units), trial.model.settings.seed
        answer = peers[model](Case(data["train"], data["validation"], test, units, seed))
    else:
        estimator, seconds = fitted(trial, rows, how)
        answer = Answer(seconds, estimator.predict_distribution(trial.inputs.table[tested]))
    whole = monotonic() - start
    reference = quarter_baseline(seen.quarter[rows["train"]], data["train"].y, quarter)
    baseline = score_by_stratum(reference.prediction, test.y, stratum)
    cells = cell_indices(seen.longitude[tested], seen.latitude[tested])
    kept = {
        "stratum": stratum,
        "quarter": quarter,
        "tests": seen.tests[tested],
        "devices": seen.devices[tested],
        "block_x": cells[:, 0],
        "block_y": cells[:, 1],
        "pit": law_of(answer).cdf(test.y),
    }
    found = {
        "region": trial.inputs.region.code,
        "target": seen.target,
        "model": model,
        "split": how,
        "seed": trial.model.settings.seed,
        "n": {name: int(chosen.sum()) for name, chosen in rows.items()},
        "rows": _digest(seen.quadkey, seen.quarter, parts_of(trial, how)),
        "seconds": {"fit": answer.seconds, "predict": whole - answer.seconds},
        "scores": scores(answer, test.y, stratum),
        "baseline": {name: asdict(value) for name, value in baseline.items()},
        "versions": {"geogp": geogp.__version__, "torch": torch.__version__},
        "threads": torch.get_num_threads(),
    }
    return found, kept


def _digest(*columns: np.ndarray) -> str:
    """Return a digest that identifies these rows and their parts."""
    found = hashlib.sha256()
    for values in columns:
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:16]


def law_of(answer: Answer) -> geogp.Prediction | QuantileLaw:
    """Return the distributions of a peer's answer, with `cdf`, `crps` and `quantile`."""
    if answer.prediction is not None:
        return answer.prediction
    assert answer.quantiles is not None, "a peer returns one of the two"
    return answer.quantiles


def scores(answer: Answer, y: np.ndarray, stratum: np.ndarray) -> dict[str, Figures]:
    """Return the scores by stratum; the absolute error is that of the median for all models."""
    law = law_of(answer)
    by_row = {"crps": law.crps(y), "mae_median": np.abs(y - law.quantile(0.5))}
    if answer.prediction is not None:
        by_row["nll"] = answer.prediction.log_score(y)

    def mean(name: str, chosen: np.ndarray) -> float | None:
        known = name in by_row and chosen.any()
        return float(by_row[name][chosen].mean()) if known else None

    return {
        group: {
            "n": int(chosen.sum()),
            **{name: mean(name, chosen) for name in ("nll", "crps", "mae_median")},
        }
        for group, chosen in rows_by_group(stratum, len(y)).items()
    }


def keep(options: argparse.Namespace, model: str, seed: int, how: str) -> None:
    """Fit a model, unless its file exists."""
    place = options.out / f"{options.region}-{options.target}" / model / options.preset
    path = place / f"{how}-{seed}.json"
    if path.exists():
        return
    trial = prepare(
        options,
        place / f"{how}-{seed}",
        target=options.target,
        model=model if model in CATALOGUE else "field",
        preset=options.preset,
        seed=seed,
        device=options.device,
    )
    found, rows = measure(trial, model, how)
    place.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path.with_suffix(".npz"), **rows)
    write_text(path, json.dumps(found, indent=1) + "\n")
    print(model, how, seed, found["scores"]["all"], flush=True)


def main() -> None:
    """Make the fits whose files do not exist yet."""
    asked = parser(
        __doc__,
        out="field",
        region=True,
        target="download",
        splits=SPLITS,
        seeds=5,
        first_seed=0,
        preset="quick",
        device="auto",
    )
    asked.add_argument("--models", nargs="+", default=["field"], choices=[*CATALOGUE, *PEERS])
    options = asked.parse_args()
    seeds = range(options.first_seed, options.seeds)
    for model, seed, how in product(options.models, seeds, options.splits):
        keep(options, model, seed, how)
