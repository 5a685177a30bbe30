r"""The field model beside its peers: same rows, several seeds, both splits.

    python benchmarks/field.py PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4 --models field lightgbm --seeds 5

Each fit is its own file under --out, and the same command continues where it stopped;
`field_table.py` makes the committed tables from them.
"""

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from field_peers import PEERS, SCHEDULES, Answer, Case, QuantileLaw

import geogp
from geogp.distributions.prediction import Prediction
from geogp.errors import GeogpError
from geogp.evaluation.baseline import quarter_baseline
from geogp.evaluation.metrics import rows_by_group, score_by_stratum
from geogp.evaluation.splits.split_rows import block_split, cell_indices, random_split
from geogp.files import write_text
from geogp.models.catalogue.build_model import CATALOGUE
from geogp.models.core.options import Weights
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

SPLITS = ("random", "blocks")


def measure(job: Job, model: str, split: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit a model on the training rows of a split; return its figures and its test rows."""
    seen = job.observations
    if split == "random":
        parts = random_split(seen.quadkey, seen.quarter, seed)
    else:
        parts = block_split(seen.longitude, seen.latitude, seed)
    rows = {name: parts == name for name in ("train", "validation", "test")}
    data = {name: job.data(chosen) for name, chosen in rows.items()}
    test, stratum = data["test"], seen.stratum[rows["test"]]
    start = monotonic()
    peers = {**PEERS, **SCHEDULES}
    if model in peers:
        rows_of = Case(data["train"], data["validation"], test, np.array(job.scale.units), seed)
        answer = peers[model](rows_of)
    else:
        answer = own(job, rows)
    whole = monotonic() - start
    reference = quarter_baseline(
        seen.quarter[rows["train"]], data["train"].y, seen.quarter[rows["test"]]
    )
    cells = cell_indices(seen.longitude[rows["test"]], seen.latitude[rows["test"]])
    kept = {
        "stratum": stratum,
        "quarter": seen.quarter[rows["test"]],
        "tests": seen.tests[rows["test"]],
        "block_x": cells[:, 0],
        "block_y": cells[:, 1],
        "pit": law_of(answer).cdf(test.y),
    }
    found = {
        "region": job.region.code,
        "target": seen.target,
        "model": model,
        "split": split,
        "seed": seed,
        "n": {name: int(chosen.sum()) for name, chosen in rows.items()},
        "rows": _digest(seen.quadkey, seen.quarter, parts),
        "seconds": {"fit": answer.seconds, "predict": whole - answer.seconds},
        "scores": scores(answer, test.y, stratum),
        "baseline": {
            k: asdict(v) for k, v in score_by_stratum(reference.prediction, test.y, stratum).items()
        },
        "versions": {"geogp": geogp.__version__, "torch": torch.__version__},
        "threads": torch.get_num_threads(),
    }
    return found, kept


def _digest(*columns: np.ndarray) -> str:
    """Return what tells these rows, and their parts, from others."""
    found = hashlib.sha256()
    for values in columns:
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:16]


def own(job: Job, rows: dict[str, np.ndarray]) -> Answer:
    """Fit a model of the catalogue as `geogp map` does."""
    start = monotonic()
    weights: Weights = job.preset.weights
    model = fit_model(job, "benchmark", rows["train"], rows["validation"], weights)
    seconds = monotonic() - start
    return Answer(seconds, model.predict_distribution(job.table[rows["test"]]))


def law_of(answer: Answer) -> Prediction | QuantileLaw:
    """Return what a peer says, which has `cdf`, `crps` and `quantile`."""
    if answer.prediction is not None:
        return answer.prediction
    assert answer.quantiles is not None, "a peer returns one of the two"
    return answer.quantiles


def scores(answer: Answer, y: np.ndarray, stratum: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return the scores by stratum; the absolute error is that of the median, for all alike."""
    law = law_of(answer)
    crps, error = law.crps(y), np.abs(y - law.quantile(0.5))
    density = None if answer.prediction is None else answer.prediction.log_score(y)
    return {
        name: {
            "n": int(chosen.sum()),
            "nll": None if density is None or not chosen.any() else float(density[chosen].mean()),
            "crps": float(crps[chosen].mean()) if chosen.any() else None,
            "mae_median": float(error[chosen].mean()) if chosen.any() else None,
        }
        for name, chosen in rows_by_group(stratum, len(y)).items()
    }


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters")
    parser.add_argument("--target", default="download")
    parser.add_argument("--models", nargs="+", default=["field"], choices=[*CATALOGUE, *PEERS])
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "field")
    return parser.parse_args()


def main() -> int:
    """Fit what is not yet there."""
    options = parse()
    try:
        for model in options.models:
            for seed in range(options.first_seed, options.seeds):
                for split in options.splits:
                    _one(options, model, split, seed)
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _one(options: argparse.Namespace, model: str, split: str, seed: int) -> None:
    place = options.out / f"{options.region}-{options.target}" / model / options.preset
    path = place / f"{split}-{seed}.json"
    if path.exists():
        return
    request = MapRequest(
        region=options.region,
        source=options.source,
        boundaries=options.boundaries,
        quarters=options.quarters,
        target=options.target,
        model=model if model in CATALOGUE else "field",
        preset=options.preset,
        seed=seed,
        device=options.device,
        out=place / f"{split}-{seed}",
    )
    job = prepare(request, ProgressListener())
    found, kept = measure(job, model, split, seed)
    job.folder.clear()
    place.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(place / f"{split}-{seed}.npz", **kept)
    write_text(path, json.dumps(found, indent=1) + "\n")
    line = found["scores"]["all"]
    print(model, split, seed, {k: line.get(k) for k in ("nll", "crps", "mae_median")}, flush=True)


if __name__ == "__main__":
    sys.exit(main())
