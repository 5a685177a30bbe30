"""Threshold probabilities of a run on the simulated region, compared with those of an oracle.

    geogp demo --out runs/demo
    python -m benchmarks answers.exceedance runs/demo

The oracle knows the simulation's distribution and the training rows, but not the effects of tiles;
no model can be better. For each split and threshold, the table has the mean absolute difference and
the correlation of the two probabilities over the test rows. It also has the Brier scores of the
model, the oracle, an oracle that also knows the effects of tiles, and each quarter's share. Writes
JSON and a table.
"""

from operator import methodcaller
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

import geogp
from benchmarks.markdown import table
from benchmarks.script import Figures, Floats, parser, write_results
from geogp.commands.demo import demo_folder
from geogp.errors import DataError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.threshold_reliability import exceedance_reports
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of

KEYS = ["split", "quadkey", "quarter"]

HEADER = (
    *("split", "Mbps", "rows", "met", "stated", "oracle", "difference", "correlation"),
    *("Brier", "oracle", "knows tiles", "share", "bins off"),
)


def oracle_probability(rows: pd.DataFrame, name: str, threshold: Threshold) -> Floats:
    """Return the probability from an oracle, ``known`` or ``predictive``, (n,)."""
    z = (rows[f"{name}_mean"] - threshold.modelled) / rows[f"{name}_sd"]
    return np.asarray(special.ndtr(threshold.sign * z.to_numpy(np.float64)), np.float64)


def compare(
    predictions: pd.DataFrame, oracles: pd.DataFrame, thresholds: tuple[Threshold, ...]
) -> list[Figures]:
    """Return a row for each split and threshold.

    Raises
    ------
    DataError
        If a test row of the run is not among those of the oracle.
    """
    found = []
    for split, rows in predictions.groupby("split", sort=False):
        joined = rows.merge(oracles.drop(columns="y"), on=KEYS, how="left", validate="1:1")
        if joined["predictive_mean"].isna().any():
            raise DataError(
                "expected the oracle's test rows; run geogp demo with its seed, 0, and this region."
            )
        prediction = prediction_of(joined)
        stated = methodcaller("probability", prediction)
        reports = {
            one.threshold: one
            for one in exceedance_reports(joined, stated, thresholds)
            if one.group == "all"
        }
        for threshold in thresholds:
            report, p = reports[threshold.value], threshold.probability(prediction)
            best = oracle_probability(joined, "predictive", threshold)
            known = oracle_probability(joined, "known", threshold)
            met = threshold.holds(joined["y"].to_numpy(np.float64))
            found.append(
                {
                    "split": split,
                    "threshold": threshold.value,
                    "n": len(joined),
                    "met": float(met.mean()),
                    "stated": report.stated,
                    "oracle_stated": float(best.mean()),
                    "mean_absolute_difference": float(np.abs(p - best).mean()),
                    "correlation": float(np.corrcoef(p, best)[0, 1]),
                    "brier": report.brier,
                    "brier_oracle": float(np.square(best - met).mean()),
                    "brier_known": float(np.square(known - met).mean()),
                    "brier_share": report.reference,
                    "reliability": report.reliability,
                    "off": report.difference.off,
                    "bins_off": sum(one.difference.off for one in report.bins),
                    "bins": len(report.bins),
                }
            )
    return found


def page(found: list[Figures], told: str) -> str:
    """Return the comparison as Markdown."""
    three = ("met", "stated", "oracle_stated", "mean_absolute_difference", "correlation")
    four = ("brier", "brier_oracle", "brier_known", "brier_share")
    lines = [
        (
            *(one["split"], f"{one['threshold']:g}", f"{one['n']:,}"),
            *(f"{one[key]:.3f}" for key in three),
            *(f"{one[key]:.4f}" for key in four),
            f"{one['bins_off']} of {one['bins']}",
        )
        for one in found
    ]
    return (
        f"{told}. The table has the threshold, the mean stated probability of reaching it, the "
        "share of rows that reached it, mean absolute difference and correlation of the model's "
        "and the oracle's probabilities, and Brier scores of the model, the oracle, the oracle "
        "that knows the effects of tiles, and each quarter's share of the test rows.\n\n"
    ) + table(HEADER, lines)


def main() -> None:
    """Compare one run, and write the figures."""
    asked = parser(__doc__, table="exceedance")
    asked.add_argument("run", type=Path)
    options = asked.parse_args()
    opened = geogp.open_run(options.run)
    run = opened.record
    oracles = pd.read_parquet(demo_folder() / "oracles.parquet")
    found = compare(opened.predictions, oracles, thresholds_of(run.target, (5, 7, 35, 100)))
    text = page(found, f"Simulated region, {run.model}, preset {run.preset}, seed {run.seed}")
    write_results(options.table, text, found, "demo")
    print(text)
