"""A finished run opened again: its model, its region and what it was made from."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.row_parts import CALIBRATION, TRAIN, VALIDATION
from geogp.evaluation.splits.split_rows import random_split
from geogp.evaluation.stored_figures import rows_in
from geogp.geodata.places.census import AUTO
from geogp.geodata.places.layers import PolygonLayer, read_layer
from geogp.geodata.places.region import Tiles
from geogp.models.catalogue.model_names import find_model
from geogp.models.catalogue.storage import load_model
from geogp.models.core.lowrank import LowRankGP
from geogp.models.field.field_model import FieldGP
from geogp.models.joint.joint_level import JointLevel, joint_level
from geogp.models.training.training_loop import Data
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.progress import Watcher
from geogp.runs.run_folder import MODEL_FILE, RUN_FILE, read_run
from geogp.runs.run_identity import same_input
from geogp.runs.run_places import AS_TOLD, ReadFrom
from geogp.runs.run_record import opened_record
from geogp.runs.settings import MOST_TILES, MapRequest

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers that come with the boundaries."""

WHOLE = "whole region"
"""Name of the layer of the region, its urban and its rural part."""

_TAKEN = (BY_COUNTY, BY_URBAN, WHOLE)

RUNS = Path("runs")
"""Where runs are made unless another folder is asked for."""


@dataclass(frozen=True)
class Reopened:
    """A finished run, with its data read again.

    Attributes
    ----------
    path, run
        Its folder, and the content of run.json.
    job
        What it was made from.
    model
        The model of the map, on the job's device.
    tiles
        The tiles of the map.
    """

    path: Path
    run: dict[str, Any]
    job: Job
    model: LowRankGP
    tiles: Tiles

    def level(self, *, seed: int = 0, columns: int = 0) -> JointLevel:
        """Return the joint law of the level at the tiles; see `joint_level`.

        Raises
        ------
        RequestError
            The model counts tests, or there is not enough memory.
        DataError
            The rows that the model was fitted to cannot be told.
        """
        quarter = np.full(len(self.tiles), self.job.question.quarter)
        inputs = self.job.scale.inputs(*self.tiles.centres, quarter)
        return joint_level(self.model, self._rows(), inputs, seed=seed, columns=columns)

    def layer(self, by: str) -> PolygonLayer:
        """Return the polygons that ``--by`` names: county, urban, or a file.

        Where they overlap, the job warns of the tiles in several.

        Raises
        ------
        RequestError
            The boundaries have no such polygons, or there is no such file or column.
        DataError
            The file is damaged.
        """
        boundaries = self.job.boundaries
        held = {BY_COUNTY: boundaries.counties, BY_URBAN: boundaries.urban_areas}
        layer = held[by] if by in held else read_layer(by)
        if layer is None:
            where = self.job.request.boundaries
            told = "no boundaries given, so" if where is None else f"the boundaries in {where} hold"
            raise RequestError(
                f"{told} no {by} areas of {self.job.region.name}; give polygons of your own with "
                "--by FILE:COLUMN."
            )
        overlap = layer.overlap(*self.tiles.centres, "tiles")
        if overlap is not None:
            self.job.warn(overlap)
        return layer

    def _rows(self) -> Data | None:
        """Return the rows that the map's model was fitted to; None where the model holds them."""
        job, run, model = self.job, self.run, self.model
        if isinstance(model, FieldGP):
            return None
        seen, settings = job.observations, run["settings"]
        calibrated = job.request.calibrated
        parts = random_split(seen.quadkey, seen.quarter, run["seed"], calibrated=calibrated)
        refitted = settings["refit"] or "random" not in settings["splits"]
        held_out = np.isin(parts, (VALIDATION, CALIBRATION))
        rows = job.data(~held_out if refitted else parts == TRAIN)
        if not np.allclose(
            [rows.y.mean(), rows.y.std()], [float(model.y_mean), float(model.y_sd)], rtol=1e-9
        ):
            raise DataError(
                f"the rows that {run['model']} was fitted to cannot be told from the run's "
                "settings."
            )
        return rows


def tag_of(by: str, layer: PolygonLayer) -> str:
    """Return what names of files call the polygons that ``--by`` names.

    That is county or urban, or the name of the user's file. Where a column was named and the file
    has others, its name follows, so that two columns of one file make two sets of files; signs
    that names of files cannot have are written as in addresses (``%2F``). A file called as a
    layer that comes with the boundaries gets ``_file``.
    """
    if by in {BY_COUNTY, BY_URBAN}:
        return by
    column = re.sub(r'[\\/:*?"<>|%\s\x00-\x1f]', lambda sign: quote(sign[0], safe=""), layer.column)
    name = f"{layer.name}_{column}" if column else layer.name
    return f"{name}_file" if name in _TAKEN else name


def find_run(text: str, runs: Path = RUNS) -> Path:
    """Return the run folder that a user names: its path, or the code of a region.

    A code, such as ``PR``, stands for the finished run in a folder ``PR-...`` of `runs`, where
    there is one only.

    Raises
    ------
    RequestError
        There is no such folder; or no such run, or several.
    """
    if Path(text).is_dir():
        return Path(text)
    found = sorted(
        path.parent
        for path in runs.glob(f"*/{RUN_FILE}")
        if path.parent.name.startswith(f"{text}-")
    )
    if not found:
        raise RequestError(
            f"expected a run folder, or a region with a finished run in {runs / text}-*, found "
            f"neither for {text!r}. Make one with `geogp map`, or name its folder."
        )
    if len(found) > 1:
        raise RequestError(
            f"{text} has {len(found)} finished runs: {', '.join(map(str, found))}. Name the folder."
        )
    return found[0]


def _vintage_of(settings: dict[str, Any]) -> str:
    """Return the census of the urban areas of a run, so that a newer one is not taken."""
    found = settings.get("urban_vintage")
    return AUTO if found is None else str(found)


def reopen(
    path: Path,
    watcher: Watcher,
    *,
    read_from: ReadFrom = AS_TOLD,
    device: str = "auto",
    tests: int | None = None,
    at: str | None = None,
    counts: bool = False,
) -> Reopened:
    """Open a finished run again, and refuse other files than those it was made from.

    Parameters
    ----------
    path
        The run folder.
    watcher
        Hears of stages and warnings.
    read_from
        Where its tiles and boundaries are.
    device
        ``auto``, ``cpu`` or ``cuda``.
    tests
        Tests of a tile's average; None takes the median of the region's rows.
    at
        The quarter; None takes that of the run's map.
    counts
        Whether a run that maps numbers of tests will do.

    Raises
    ------
    RequestError
        The folder is no finished run, its model counts tests where averages are asked for, or it
        names an address that the user has not named.
    DataError
        A file is damaged, contradicts another, or differs from that which the run was made from.
    """
    run, _ = read_run(path)
    if find_model(run["model"]).counts and not counts:
        raise RequestError(
            f"{path} maps numbers of tests; a level is that of averages. Run geogp map with "
            "another --target."
        )
    try:
        opened_record(run)
    except DataError as error:
        raise DataError(
            f"{path} was made by another version: {error} Make the run again with --fresh."
        ) from error
    source, boundaries = read_from.places(path / RUN_FILE, run["settings"])
    model, context = load_model(path / MODEL_FILE)
    asked = _request_of(run, source, boundaries)
    job = prepare(
        replace(asked, device=device, tests=tests, at=at or run["map"]["at"], out=path), watcher
    )
    _check_model(path, run, job, model.name, context)
    _check_inputs(path, run, job)
    return Reopened(path, run, job, model.to(job.device), _tiles(path, run, job))


def _request_of(run: dict[str, Any], source: str, boundaries: str | None) -> MapRequest:
    """Return the request that a run answers, as far as what is read and predicted depends on it."""
    settings = run["settings"]
    return MapRequest(
        region=None if "region_file" in settings else run["region"],
        region_file=settings.get("region_file"),
        region_name=settings.get("region_name"),
        urban_vintage=_vintage_of(settings),
        strata=settings.get("strata_file"),
        source=source,
        boundaries=boundaries,
        service=run["service"],
        target=run["target"],
        quarters=",".join(run["quarters"]),
        model=run["model"],
        preset=run["preset"],
        inputs=settings["inputs"],
        seed=run["seed"],
        noise=settings["noise"],
        conformal=settings["conformal"],
    )


def _check_inputs(path: Path, run: dict[str, Any], job: Job) -> None:
    """Refuse other files and rows than those that a run was made from."""
    # All are looked at, as a layer of the user's may be called like a file of the boundaries.
    changed = [
        file.name
        for file in (*job.boundaries.files, *job.ingested.files)
        if not any(same_input(file.described(), held) for held in run["inputs"])
    ]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since {path} was made, or is new. Make the run again "
            "with --fresh, or bring the files back."
        )
    found = len(job.observations)
    told = {rows_in(parts) for parts in run.get("n", {}).values()}
    if told - {found}:
        raise DataError(
            f"expected the {max(told):,} rows of n in {path / RUN_FILE}, found {found:,} in its "
            "quarters. Was it edited? Make the run again with --fresh."
        )


def _check_model(
    path: Path, run: dict[str, Any], job: Job, name: str, context: dict[str, Any]
) -> None:
    """Refuse a run.json that says of the model's file what it is not."""
    told = {"model": job.spec.name, **{key: run[key] for key in ("region", "target", "service")}}
    held = {**told, **context, "model": name}
    wrong = [f"{key} {told[key]}" for key in told if held[key] != told[key]]
    if wrong:
        raise DataError(
            f"{path / RUN_FILE} says {', '.join(wrong)}, which {MODEL_FILE} is not of. Was it "
            "edited? Make the run again with --fresh."
        )


def _tiles(path: Path, run: dict[str, Any], job: Job) -> Tiles:
    """Return the tiles of the map; refuse a zoom at which it was not made."""
    zoom, told = run["map"]["zoom"], run["map"].get("tiles")
    if zoom == job.region.zoom_within(zoom, MOST_TILES):
        tiles = job.region.tiles(zoom)
        if len(tiles) == (told or len(tiles)) > 0:
            return tiles
    raise DataError(
        f"{path / RUN_FILE} says that the map has {told} tiles of zoom {zoom}, which "
        f"{job.region.name} has not. Was it edited? Make the run again with --fresh."
    )
