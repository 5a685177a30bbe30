"""How well the field model recovers a known truth: parts, variances and the oracle's score.

    python -m benchmarks accuracy.field_recovery --source data/demo --seeds 5

The source is the output of `geogp simulate`, tiles with the true field, tile effect and measurement
variance of each row. Writes a Markdown and a JSON file.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.markdown import table, with_error
from benchmarks.region_trial import fitted, prepare, split
from benchmarks.script import OUT, Figures, parser, write_results
from geogp.geodata.simulation.oracles import predictive_oracle
from geogp.geodata.simulation.truth import TruthLaw
from geogp.geodata.tiles.quadkeys import format_quadkeys
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.field.fitted import FittedField
from geogp.models.field.parameters import numpy_of
from geogp.runs.pipeline.fitting import RunFitter

TESTS = (1, 5, 30)
"""Numbers of tests for which estimated and true measurement variances are compared."""

ROWS = {
    "log_score": "log score",
    "oracle": "log score of the predictive oracle",
    "field_correlation": "correlation with the true field",
    "tile_correlation": "correlation with the true tile effects",
    "oracle_tile_correlation": "the same, of the predictive oracle",
    "level_correlation": "correlation with the true level (field and tile)",
    "tile_variance_ratio": "tile variance, estimated over true",
}
"""Figures of a seed, over its test rows.

The predictive oracle knows the model that generated the data, but not the effects of tiles; on
average no model is better. The tile variance is the mean prior variance of the tile process divided
by the variance of the true tile effects.
"""


def recover(options: argparse.Namespace, seed: int) -> Figures:
    """Fit on the training rows of a random split and compare the parts on its test rows."""
    source = Path(options.source)
    trial = prepare(options, OUT / "recovery" / str(seed), preset=options.preset, seed=seed)
    seen, rows = trial.inputs.observations, split(trial)
    test = rows["test"]
    estimator, _ = fitted(trial, rows)
    model = estimator.network_
    assert isinstance(model, FittedField)
    law = json.loads((source / "simulation.json").read_text())["laws"][trial.model.settings.target]
    truth = true_rows(source, trial)
    oracle = predictive_oracle(truth, rows["train"], TruthLaw(**law))
    held, y, tests = trial.inputs.table[test], seen.y[test], seen.tests[test].astype(float)
    own = estimator.predict_distribution(held)
    level = estimator.predict_distribution(held, level=True).mean
    x = estimator.inputs(held)
    parameters = model.parameters
    terms = model.rows.terms(parameters, parameters.scaled(x), parameters.well_measured(len(x)))
    field = float(model.y_mean) + float(model.y_sd) * numpy_of(terms.mean)
    prior = np.diag(model.tile_kernel(x[:500], x[:500]))
    known = {name: values.to_numpy(float) for name, values in truth[test].items() if "true" in name}
    true_tile, true_field = known["tile_true"], known["field_true"]
    noise = np.square(known["sd_measurement_true"])
    near = {k: (tests >= 0.8 * k) & (tests <= 1.25 * k) for k in TESTS}

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a, b)[0, 1])

    return {
        "seed": seed,
        "log_score": float(own.log_score(y).mean()),
        "oracle": float(oracle.log_score(truth["y"])[test].mean()),
        "field_correlation": correlation(field, true_field),
        "tile_correlation": correlation(level - field, true_tile),
        "oracle_tile_correlation": correlation(oracle.mean[test] - true_field, true_tile),
        "level_correlation": correlation(level, true_field + true_tile),
        "tile_variance_ratio": float(prior.mean() / true_tile.var()),
        "noise_ratios": {
            str(k): float(own.noise_variance[some].mean() / noise[some].mean())
            for k, some in near.items()
        },
    }


def true_rows(source: Path, trial: RunFitter) -> pd.DataFrame:
    """Return the truth of the rows, in their order."""
    seen = trial.inputs.observations
    quarters = [quarter_label(q) for q in seen.quarter.tolist()]
    rows = pd.DataFrame({"quadkey": format_quadkeys(seen.quadkey), "quarter": quarters})
    truth = pd.read_parquet(source / "truth.parquet")
    found = rows.merge(truth, on=["quadkey", "quarter"], how="left", validate="one_to_one")
    assert found["y"].notna().all(), "every row has its truth"
    return found


def page(found: list[Figures], made_by: str) -> str:
    """Return the table with a row for each figure: mean over the seeds and standard error."""
    rows = {text: [one[name] for one in found] for name, text in ROWS.items()}
    for k in TESTS:
        text = f"measurement variance, estimated over true, at about {k} tests"
        rows[text] = [one["noise_ratios"][str(k)] for one in found]
    lines = [(text, with_error(values)) for text, values in rows.items()]
    return f"""# A known truth

    {made_by}

Test rows of random splits of a simulated region; mean over the seeds ± standard error.
The predictive oracle knows the field and all parameters, and predicts the tile effects
from the training rows; on average no model has a lower log score.

{table((f"{len(found)} seeds", ""), lines)}"""


def main() -> None:
    """Fit all seeds and write the table."""
    asked = parser(__doc__, table="field", source="data/demo", seeds=5, preset="quick")
    asked.set_defaults(region="DEMO", quarters=None)
    options = asked.parse_args()
    options.boundaries = str(Path(options.source) / "boundaries")
    found = []
    for seed in range(options.seeds):
        found.append(recover(options, seed))
        print(found[-1], flush=True)
    made_by = (
        f"python -m benchmarks accuracy.field_recovery --source {options.source} "
        f"--seeds {options.seeds} --preset {options.preset}"
    )
    write_results(options.table, page(found, made_by), found, "recovery")
