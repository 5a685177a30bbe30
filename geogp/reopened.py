"""A finished run opened again: its data, its model, and the joint law of the level it maps."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geogp.calibration.splits import random_split
from geogp.errors import DataError, RequestError
from geogp.geodata.layers import PolygonLayer, read_layer
from geogp.geodata.region import Tiles
from geogp.job import Job, prepare
from geogp.models.catalogue import find_spec
from geogp.models.field import FieldGP
from geogp.models.joint_level import JointLevel, joint_level
from geogp.models.lowrank import LowRankGP
from geogp.models.storage import load_model
from geogp.models.training import Data
from geogp.runs import MODEL_FILE, read_run
from geogp.settings import MapRequest
from geogp.watcher import Watcher

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers that come with the boundaries."""


@dataclass(frozen=True)
class Reopened:
    """A finished run with all it was made from.

    Attributes
    ----------
    run
        The content of run.json.
    job
        As it was prepared; its question is that of the run's map unless another was asked.
    model
        The model of the map.
    """

    run: dict[str, Any]
    job: Job
    model: LowRankGP

    @cached_property
    def tiles(self) -> Tiles:
        """The tiles of the run's map."""
        return self.job.region.tiles(int(self.run["map"]["zoom"]))

    def level(self, *, seed: int = 0) -> JointLevel:
        """Return the joint law of the level at all tiles, in the quarter of the question.

        Raises
        ------
        DataError
            The rows that the model was fitted to cannot be told.
        """
        quarters = np.full(len(self.tiles), self.job.question.quarter)
        inputs = self.job.scale.inputs(*self.tiles.centres, quarters)
        return joint_level(self.model, self._rows(), inputs, seed=seed)

    def _rows(self) -> Data | None:
        """Return the rows that the map's model was fitted to; None where the model holds them."""
        if isinstance(self.model, FieldGP):
            return None
        seen, settings = self.job.observations, self.run["settings"]
        parts = random_split(seen.quadkey, seen.quarter, self.run["seed"])
        refitted = settings["refit"] or "random" not in settings["splits"]
        rows = self.job.data(parts != "validation" if refitted else parts == "train")
        scaling = [float(self.model.y_mean), float(self.model.y_sd)]
        if not np.allclose([rows.y.mean(), rows.y.std()], scaling, rtol=1e-9):
            raise DataError(
                f"the rows that {self.run['model']} was fitted to cannot be told from the run's "
                "settings."
            )
        return rows


def reopen(
    path: Path,
    *,
    device: str = "auto",
    tests: int | None = None,
    at: str | None = None,
    watcher: Watcher | None = None,
) -> Reopened:
    """Read again what a run was made from, and its model.

    Parameters
    ----------
    path
        A finished run folder.
    device
        ``auto``, ``cpu`` or ``cuda``.
    tests, at
        Tests of a tile mean, and the quarter; None takes the median, and that of the run's map.
    watcher
        Hears of stages and warnings.

    Raises
    ------
    RequestError
        The folder is no finished run, or its model counts tests.
    DataError
        A file is damaged, or differs from that which the run was made from.
    """
    run, _ = read_run(path)
    if find_spec(run["model"]).counts:
        raise RequestError(
            f"{path} maps numbers of tests; levels of areas are those of averages. Run "
            "geogp map with another --target."
        )
    model, _ = load_model(path / MODEL_FILE)
    settings = run["settings"]
    asked = MapRequest(
        region=run["region"],
        source=settings["source"],
        boundaries=settings["boundaries"],
        service=run["service"],
        target=run["target"],
        quarters=",".join(run["quarters"]),
        model=run["model"],
        preset=run["preset"],
        inputs=settings["inputs"],
        device=device,
        seed=run["seed"],
        noise=settings["noise"],
        tests=tests,
        at=at or run["map"]["at"],
        out=path,
    )
    job = prepare(asked, watcher or Watcher())
    used = {file["name"]: file["sha256"] for file in run["inputs"]}
    changed = [
        file.name
        for file in (*job.boundaries.files, *job.ingested.files)
        if used.get(file.name, file.sha256) != file.sha256
    ]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since {path} was made. Make the run again with "
            "--fresh, or bring the files back."
        )
    return Reopened(run, job, model.to(job.device))


def layer_by(job: Job, by: str) -> PolygonLayer:
    """Return the polygons that a user names: ``county``, ``urban``, ``FILE`` or ``FILE:COLUMN``.

    Raises
    ------
    RequestError
        The boundaries have no such layer, or there is no such file or column.
    DataError
        The file is damaged.
    """
    held = {BY_COUNTY: job.boundaries.counties, BY_URBAN: job.boundaries.urban_areas}
    if by not in held:
        return read_layer(by)
    layer = held[by]
    if layer is None:
        raise RequestError(
            f"the boundaries in {job.request.boundaries} hold no {by} areas of {job.region.name}; "
            "give polygons of your own with --by FILE:COLUMN."
        )
    return layer
