"""Common functions of the benchmarks on regions: rows, splits of rows, and a fit."""

import argparse
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.split_rows import SplitRows, split_groups, split_parts
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.fitting import fit_model
from geogp.runs.pipeline.job import Job
from geogp.runs.pipeline.job import prepare as prepare_job
from geogp.runs.progress import ProgressListener

PARTS = ("train", "validation", "test")

Rows = NDArray[np.bool_]


def prepare(options: argparse.Namespace, out: Path, **settings: Any) -> Job:
    """Read the rows of the region that the options name, as ``geogp map`` does.

    `out` is a folder for temporary files of a fit; settings are fields of `MapSettings`.
    """
    asked = {name: getattr(options, name) for name in ("region", "source", "boundaries")}
    request = MapSettings(**asked, quarters=options.quarters, out=out, **settings)
    return prepare_job(request, ProgressListener())


def parts_of(job: Job, how: str = "random") -> NDArray[np.str_]:
    """Return the part of each row, one of `PARTS`, under the seed of the request."""
    return split_parts(how, _split_rows(job), job.request.seed)


def split(job: Job, how: str = "random") -> dict[str, Rows]:
    """Return the training, validation and test rows."""
    parts = parts_of(job, how)
    return {name: parts == name for name in PARTS}


def groups_of(job: Job, how: str = "random") -> NDArray[np.int64] | None:
    """Return the group of each row that the split leaves out together; None for single rows."""
    return split_groups(how, _split_rows(job))


def fitted(job: Job, rows: dict[str, Rows], how: str = "random") -> tuple[SpatialGP, float]:
    """Fit the model of a job to the rows of a split; return the model and the seconds it took."""
    job.folder.clear()
    start = monotonic()
    parts = rows["train"], rows["validation"]
    model = fit_model(job, "benchmark", parts, job.preset.weights, groups_of(job, how))
    seconds = monotonic() - start
    job.folder.clear()
    return model, seconds


def _split_rows(job: Job) -> SplitRows:
    seen = job.observations
    return SplitRows(seen.quadkey, seen.quarter, seen.longitude, seen.latitude)
