"""Ordinary kriging by the R package gstat (Pebesma 2004), in a process of `Rscript`."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

import geogp
from benchmarks.script import Floats

SCRIPT = Path(__file__).with_name("gstat.R")


def missing() -> str:
    """Return what gstat lacks on this machine; nothing if it can be called."""
    if shutil.which("Rscript") is None:
        return "there is no Rscript"
    asked = ["Rscript", "-e", "library(sp); library(gstat)"]
    loaded = subprocess.run(asked, capture_output=True, check=False).returncode == 0
    return "" if loaded else "R has no package gstat"


def krige(parts: Iterable[tuple[Floats, ...]]) -> list[tuple[geogp.Prediction, float]]:
    """Return predictions of each part, and their CPU seconds without the start of R.

    A part has the places of its rows, their values, and new places.
    """
    names, found = ["x", "y"], []
    with TemporaryDirectory() as folder:
        for k, (place, value, new) in enumerate(parts):
            at = Path(folder, str(k))
            at.mkdir()
            rows = pd.DataFrame(place, columns=names).assign(value=value)
            rows.to_csv(at / "rows.csv", index=False)
            pd.DataFrame(new, columns=names).to_csv(at / "new.csv", index=False)
            found.append(at)
        asked = ["Rscript", str(SCRIPT), *map(str, found)]
        seconds = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout.split()
        laws = [pd.read_csv(at / "law.csv") for at in found]
    return [
        (
            geogp.Prediction.of_moments(law["mean"].to_numpy(), law["variance"].to_numpy()),
            float(own),
        )
        for law, own in zip(laws, seconds, strict=True)
    ]
