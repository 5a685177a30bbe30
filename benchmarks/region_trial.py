"""Common functions of the benchmarks on regions: rows, splits of rows, and a fit."""

import argparse
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.splits.split_rows import split_groups, split_parts
from geogp.files import remove
from geogp.models.numerics.devices import pick_device
from geogp.records.map_settings import MapSettings
from geogp.runs.pipeline.fitting import RunFitter, fit_model
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.pipeline.splits import rows_to_split
from geogp.runs.progress import RunListener

PARTS = ("train", "validation", "test")

Rows = NDArray[np.bool_]


def prepare(options: argparse.Namespace, out: Path, **settings: Any) -> RunFitter:
    """Read the rows of the region that the options name, as ``geogp map`` does.

    `out` is a folder for temporary files of a fit; settings are fields of `MapSettings`.
    """
    place = {name: getattr(options, name) for name in ("region", "source", "boundaries")}
    request = MapSettings(**place, quarters=options.quarters, out=out, **settings)
    listener = RunListener()
    inputs = read_inputs(request, listener)
    model = RunModel.of(request, inputs, pick_device(request.device))
    return RunFitter(model, inputs, out / ".unfinished", listener)


def parts_of(trial: RunFitter, how: str = "random") -> NDArray[np.str_]:
    """Return the part of each row, one of `PARTS`, under the seed of the request."""
    settings = trial.model.settings
    return split_parts(how, rows_to_split(settings, trial.inputs), settings.seed)


def split(trial: RunFitter, how: str = "random") -> dict[str, Rows]:
    """Return the training, validation and test rows."""
    parts = parts_of(trial, how)
    return {name: parts == name for name in PARTS}


def groups_of(trial: RunFitter, how: str = "random") -> NDArray[np.int64] | None:
    """Return the group of each row that the split leaves out together; None for single rows."""
    return split_groups(how, rows_to_split(trial.model.settings, trial.inputs))


def fitted(trial: RunFitter, rows: dict[str, Rows], how: str = "random") -> tuple[SpatialGP, float]:
    """Fit the model of a trial to the rows of a split; return the model and the seconds it took."""
    remove(trial.folder)
    start = monotonic()
    parts = rows["train"], rows["validation"]
    weights = trial.model.preset.weights
    model = fit_model(trial, "benchmark", parts, weights, groups_of(trial, how))
    seconds = monotonic() - start
    remove(trial.folder)
    return model, seconds
