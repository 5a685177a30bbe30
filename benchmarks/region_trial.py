"""Common functions of the benchmarks on regions: rows, splits of rows, and a fit."""

import argparse
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.split_rows import block_split, random_split
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job
from geogp.runs.pipeline.job import prepare as prepare_job
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

PARTS = ("train", "validation", "test")

Rows = NDArray[np.bool_]


def prepare(options: argparse.Namespace, out: Path, **settings: Any) -> Job:
    """Read the rows of the region that the options name, as ``geogp map`` does.

    Parameters
    ----------
    options
        Options with the arguments of `parser` for a region.
    out
        A folder for temporary files of a fit.
    **settings
        Fields of `MapRequest`.
    """
    asked = {name: getattr(options, name) for name in ("region", "source", "boundaries")}
    request = MapRequest(**asked, quarters=options.quarters, out=out, **settings)
    return prepare_job(request, ProgressListener())


def parts_of(job: Job, how: str = "random") -> NDArray[np.str_]:
    """Return the part of each row, one of `PARTS`, under the seed of the request."""
    seen, seed = job.observations, job.request.seed
    if how == "random":
        return random_split(seen.quadkey, seen.quarter, seed)
    return block_split(seen.longitude, seen.latitude, seed)


def split(job: Job, how: str = "random") -> dict[str, Rows]:
    """Return the training, validation and test rows."""
    parts = parts_of(job, how)
    return {name: parts == name for name in PARTS}


def fitted(job: Job, rows: dict[str, Rows]) -> tuple[SpatialGP, float]:
    """Fit the model of a job; return the model and the seconds of the fit."""
    job.folder.clear()
    start = monotonic()
    model = fit_model(job, "benchmark", rows["train"], rows["validation"], job.preset.weights)
    seconds = monotonic() - start
    job.folder.clear()
    return model, seconds
