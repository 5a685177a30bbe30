"""What the field model finds of a known truth: its parts, their variances, the oracle's score.

    python benchmarks/field_recovery.py --source data/demo --seeds 5

The source is the output of `geogp simulate`: tiles with the true field, tile effect and measurement
variance of each row. Writes a Markdown and a JSON file.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.split_rows import random_split
from geogp.files import write_text
from geogp.geodata.simulation.oracles import Oracle, predictive_oracle
from geogp.geodata.simulation.truth import TruthLaw
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.field.field_model import FieldNetwork
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

TESTS = (1, 5, 30)
"""Tests for which estimated and true measurement variances are compared."""


@dataclass(frozen=True)
class Recovery:
    """Figures of one seed, over its test rows.

    Attributes
    ----------
    log_score, oracle
        Of the model, and of the predictive oracle (it knows the law, not the effects).
    field_correlation, tile_correlation, level_correlation
        Of estimated and true field, tile effect, and their sum.
    oracle_tile_correlation
        The same for the oracle's tile effects: on average no model does better.
    tile_variance_ratio
        Mean prior variance of the tile process over the variance of the true tile effects.
    noise_ratios
        Mean estimated over mean true measurement variance, at rows with about so many tests.
    """

    seed: int
    log_score: float
    oracle: float
    field_correlation: float
    tile_correlation: float
    oracle_tile_correlation: float
    level_correlation: float
    tile_variance_ratio: float
    noise_ratios: dict[int, float]


def recover(source: Path, seed: int, preset: str) -> Recovery:
    """Fit on the training rows of a random split and compare the parts on its test rows."""
    request = MapRequest(
        region="DEMO",
        source=str(source),
        boundaries=str(source / "boundaries"),
        preset=preset,
        seed=seed,
        out=Path(__file__).parent / "out" / "recovery" / str(seed),
        fresh=True,
    )
    job = prepare(request, ProgressListener())
    seen = job.observations
    parts = random_split(seen.quadkey, seen.quarter, seed)
    fitted = fit_model(job, "recovery", parts == "train", parts == "validation", job.preset.weights)
    job.folder.clear()
    law = json.loads((source / "simulation.json").read_text())["laws"][request.target]
    truth = _truth(source, job)
    oracle = predictive_oracle(truth, parts == "train", TruthLaw(**law))
    return _compare(job, fitted, truth, oracle, parts)


def _truth(source: Path, job: Job) -> pd.DataFrame:
    """Return the truth of the job's rows, in their order."""
    seen = job.observations
    rows = pd.DataFrame(
        {
            "quadkey": format_quadkeys(seen.quadkey),
            "quarter": [quarter_label(q) for q in seen.quarter.tolist()],
        }
    )
    truth = pd.read_parquet(source / "truth.parquet")
    found = rows.merge(truth, on=["quadkey", "quarter"], how="left", validate="one_to_one")
    assert found["y"].notna().all(), "every row has its truth"
    return found


def _compare(
    job: Job, fitted: SpatialGP, truth: pd.DataFrame, oracle: Oracle, parts: np.ndarray
) -> Recovery:
    test = parts == "test"
    model = fitted.network_
    assert isinstance(model, FieldNetwork)
    seen, table, y = job.observations, job.table[test], job.observations.y[test]
    x, tests = fitted.inputs(table), seen.tests[test].astype(float)
    own = fitted.predict_distribution(table)
    level = fitted.predict_distribution(table, level=True)
    field, some = model.field_mean(x), x[:500]
    prior = np.diag(model.tile_kernel(some, some))
    known = truth[test]
    true_tile = known["tile_true"].to_numpy(float)
    true_field = known["field_true"].to_numpy(float)
    noise = np.square(known["sd_measurement_true"].to_numpy(float))
    oracle_tile = oracle.mean[test] - true_field

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a, b)[0, 1])

    near = {k: (tests >= 0.8 * k) & (tests <= 1.25 * k) for k in TESTS}
    return Recovery(
        job.request.seed,
        float(own.log_score(y).mean()),
        float(oracle.log_score(truth["y"])[test].mean()),
        correlation(field, true_field),
        correlation(level.mean - field, true_tile),
        correlation(oracle_tile, true_tile),
        correlation(level.mean, true_field + true_tile),
        float(prior.mean() / true_tile.var()),
        {
            k: float(own.noise_variance[rows].mean() / noise[rows].mean())
            for k, rows in near.items()
        },
    )


ROWS = {
    "log_score": "log score",
    "oracle": "log score of the predictive oracle",
    "field_correlation": "correlation with the true field",
    "tile_correlation": "correlation with the true tile effects",
    "oracle_tile_correlation": "the same, of the predictive oracle",
    "level_correlation": "correlation with the true level (field and tile)",
    "tile_variance_ratio": "tile variance, estimated over true",
}


def markdown(found: list[Recovery], command: str) -> str:
    """Return the table: a row for each figure, mean over the seeds and its standard error."""
    lines = [
        "# A known truth\n",
        f"    {command}\n",
        "Test rows of random splits of a simulated region; mean over the seeds ± standard error.",
        "The predictive oracle knows field and law, and predicts the tile effects from the",
        "training rows: on average no model has a lower log score.\n",
        f"| {len(found)} seeds | |",
        "| --- | ---: |",
    ]
    for name, text in ROWS.items():
        lines.append(f"| {text} | {_figure([getattr(one, name) for one in found])} |")
    for k in TESTS:
        ratio = _figure([one.noise_ratios[k] for one in found])
        lines.append(f"| measurement variance, estimated over true, at about {k} tests | {ratio} |")
    return "\n".join(lines) + "\n"


def _figure(values: list[float]) -> str:
    text = f"{np.mean(values):.3f}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"
    return text


def main() -> int:
    """Fit all seeds and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path("data/demo"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results" / "field")
    options = parser.parse_args()
    found = []
    for seed in range(options.seeds):
        found.append(recover(options.source, seed, options.preset))
        print(found[-1], flush=True)
    options.table.mkdir(parents=True, exist_ok=True)
    command = (
        f"python benchmarks/field_recovery.py --source {options.source} "
        f"--seeds {options.seeds} --preset {options.preset}"
    )
    write_text(options.table / "recovery.md", markdown(found, command))
    write_text(
        options.table / "recovery.json", json.dumps([asdict(one) for one in found], indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
