"""Probabilities of thresholds of a run of the simulated region, beside an oracle's.

    geogp demo --out runs/demo
    python benchmarks/exceedance.py runs/demo

The oracle knows the law of the simulation and the training rows, but not the effects of tiles; no
model can be better. For each split and threshold: the mean absolute difference and the correlation
of the two probabilities of each test row, and the Brier score of the model, of the oracle, of the
oracle that also knows the effects of tiles, and of each quarter's share. Writes JSON and a table.
"""

import argparse
import json
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from geogp.commands.demo import demo_folder
from geogp.errors import DataError
from geogp.evaluation.assessment import prediction_of
from geogp.evaluation.threshold_reliability import exceedance_reports
from geogp.files import write_text
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.runs.open_run import open_run

Floats = NDArray[np.float64]

KEYS = ["split", "quadkey", "quarter"]

HEADINGS = (
    *("split", "Mbps", "rows", "met", "stated", "oracle", "difference", "correlation"),
    *("Brier", "oracle", "knows tiles", "share", "bins off"),
)


def oracle_probability(rows: pd.DataFrame, name: str, threshold: Threshold) -> Floats:
    """Return the probability by an oracle, ``known`` or ``predictive``, (n,)."""
    z = (rows[f"{name}_mean"] - threshold.log10) / rows[f"{name}_sd"]
    return np.asarray(special.ndtr(threshold.sign * z.to_numpy(np.float64)), np.float64)


def compare(
    predictions: pd.DataFrame, oracles: pd.DataFrame, thresholds: tuple[Threshold, ...]
) -> list[dict[str, Any]]:
    """Return a row for each split and threshold.

    Raises
    ------
    DataError
        A test row of the run is none of the oracle's.
    """
    found = []
    for split, rows in predictions.groupby("split", sort=False):
        joined = rows.merge(oracles.drop(columns="y"), on=KEYS, how="left", validate="1:1")
        if joined["predictive_mean"].isna().any():
            raise DataError(
                "expected the oracle's test rows; run geogp demo with its seed, 0, and this region."
            )
        prediction = prediction_of(joined)
        reports = exceedance_reports(
            joined,
            methodcaller("probability", prediction),
            thresholds[0].target,
            thresholds,
        )
        for threshold in thresholds:
            (report,) = (
                one for one in reports if (one.threshold, one.group) == (threshold.value, "all")
            )
            p = threshold.probability(prediction)
            best = oracle_probability(joined, "predictive", threshold)
            met = threshold.holds(joined["y"].to_numpy(np.float64))
            known = oracle_probability(joined, "known", threshold)
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


def table(found: list[dict[str, Any]], told: str) -> str:
    """Return the comparison as Markdown."""
    heading = (
        f"{told}. Mean stated probability of at least so many Mbps, share that was, mean absolute "
        "difference and correlation of the model's and the oracle's probabilities, and Brier "
        "scores: the model, the oracle, the oracle that knows the effects of tiles, each "
        "quarter's share of the test rows."
    )
    lines = [
        heading,
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "| --- |" + " ---: |" * (len(HEADINGS) - 1),
    ]
    lines += [
        f"| {one['split']} | {one['threshold']:g} | {one['n']:,} | {one['met']:.3f} "
        f"| {one['stated']:.3f} | {one['oracle_stated']:.3f} "
        f"| {one['mean_absolute_difference']:.3f} | {one['correlation']:.3f} | {one['brier']:.4f} "
        f"| {one['brier_oracle']:.4f} | {one['brier_known']:.4f} | {one['brier_share']:.4f} "
        f"| {one['bins_off']} of {one['bins']} |"
        for one in found
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compare one run, and write what is found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/exceedance"))
    given = parser.parse_args()
    opened = open_run(given.run)
    run = opened.record
    oracles = pd.read_parquet(demo_folder() / "oracles.parquet")
    thresholds = thresholds_of(run.target, (5, 7, 35, 100))
    found = compare(opened.predictions, oracles, thresholds)
    told = f"Simulated region, {run.model}, preset {run.preset}, seed {run.seed}"
    write_text(given.out / "demo.json", json.dumps(found, indent=1) + "\n")
    write_text(given.out / "demo.md", table(found, told))
    print(table(found, told))


if __name__ == "__main__":
    main()
