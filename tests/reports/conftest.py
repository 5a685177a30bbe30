"""A made-up run whose predictions are true by construction, in town and in the country."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from geogp.distributions.prediction import Prediction
from geogp.evaluation.metrics import score_by_stratum

SPREAD = {"urban": 0.2, "rural": 0.45, "unknown": 0.3}


def _predictions_of(
    split: str,
    *,
    stratum: list[str],
    seed: int = 0,
    shrink: float = 1.0,
) -> pd.DataFrame:
    """Draw y from the stated distribution; `shrink` makes the stated spread wrong."""
    random = np.random.default_rng(seed)
    n = len(stratum)
    sd = np.array([SPREAD[name] for name in stratum]) * random.uniform(0.8, 1.25, n)
    mean = random.normal(1.5, 0.4, n)
    y = mean + sd * random.standard_normal(n)
    stated = (sd * shrink) ** 2
    prediction = Prediction(mean, 0.3 * stated, 0.7 * stated)
    lower, upper = prediction.interval(0.95)
    return pd.DataFrame(
        {
            "split": split,
            "quadkey": [f"{number:016d}" for number in random.integers(0, n, n)],
            "quarter": random.choice(["2019Q1", "2019Q2"], n),
            "longitude": random.uniform(-67, -65, n),
            "latitude": random.uniform(18, 18.5, n),
            "y": y,
            "tests": random.integers(1, 40, n),
            "stratum": stratum,
            "mean": mean,
            "function_variance": prediction.function_variance,
            "noise_variance": prediction.noise_variance,
            "lower_95": lower,
            "upper_95": upper,
        }
    )


def _run_of(predictions: pd.DataFrame) -> dict[str, Any]:
    """Write the run.json of a table of predictions; the baseline is N(1.5, 0.6²)."""
    metrics, baseline, sizes = {}, {}, {}
    for name, rows in predictions.groupby("split"):
        parts = (rows[part].to_numpy() for part in ("mean", "function_variance", "noise_variance"))
        flat = Prediction(*(np.full(len(rows), value) for value in (1.5, 0.0, 0.36)))
        for table, prediction in ((metrics, Prediction(*parts)), (baseline, flat)):
            scores = score_by_stratum(prediction, rows["y"], rows["stratum"])
            table[name] = {group: asdict(entry) for group, entry in scores.items()}
        sizes[name] = {"train": 8 * len(rows), "validation": len(rows), "test": len(rows)}
    return {
        "geogp": "0.1.0",
        "region": "PR",
        "service": "mobile",
        "target": "download",
        "quarters": ["2019Q1", "2019Q2"],
        "quarters_missing": ["2019Q3"],
        "model": "dbk-rbf",
        "preset": "standard",
        "seed": 7,
        "settings": {"r": 128, "noise": "gaussian", "layers": ["zones.shp"]},
        "inputs": [{"name": "tiles.parquet", "sha256": "ab" * 32, "rows": 12345}],
        "n": sizes,
        "seconds": {"read": 1.25, "fit": 60.0, "predict": 2.0, "write": 0.5},
        "device": "cpu",
        "warnings": ["2019Q3 is missing"],
        "metrics": metrics,
        "baseline": baseline,
    }


@pytest.fixture
def no_drawings(monkeypatch) -> None:
    """Leave the figures of reports empty: other tests look at them."""
    monkeypatch.setattr(
        "geogp.reports.report_figures.drawn", lambda *_: "data:image/svg+xml;base64,"
    )


@pytest.fixture
def predictions_of():
    """Return the maker of predictions."""
    return _predictions_of


@pytest.fixture
def run_of():
    """Return the maker of run.json."""
    return _run_of


@pytest.fixture
def both() -> pd.DataFrame:
    """Both splits; the blocks' intervals are right in town and in the country."""
    return pd.concat(
        [
            _predictions_of("random", stratum=["urban"] * 700 + ["rural"] * 300, seed=1),
            _predictions_of("blocks", stratum=["urban"] * 800 + ["rural"] * 400, seed=2),
        ],
        ignore_index=True,
    )
