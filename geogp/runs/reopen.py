"""Opens a finished run again, with its data and its model."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import pandas as pd
from msgspec import UNSET
from numpy.typing import NDArray

from geogp.choices import one_of
from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.errors import LONGEST_PATH, DataError, OutputError, RequestError, named
from geogp.estimators.spatial_gp import SpatialGP
from geogp.evaluation.conformal.conformal_repair import Repair
from geogp.evaluation.splits.row_parts import CALIBRATION, TRAIN, VALIDATION
from geogp.evaluation.splits.split_names import RANDOM
from geogp.evaluation.splits.split_rows import random_split
from geogp.geodata.places.area_kinds import BY_COUNTY, BY_STRATUM, BY_TRACT, CENSUS_LAYERS
from geogp.geodata.places.census import read_tracts
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.places.layers import PolygonLayer, read_layer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.models.joint.level import JointLevel
from geogp.models.numerics.devices import pick_device
from geogp.models.several.joint_targets import JointTargets
from geogp.records.map_settings import MAX_TILES, MapSettings
from geogp.records.record_reading import complete_record
from geogp.records.run_record import OpenedRecord, RunDrawing, given
from geogp.runs.kept_level import KeptLevel
from geogp.runs.pipeline.map_predictor import MapPredictor
from geogp.runs.pipeline.plan import Plan, plan_map
from geogp.runs.pipeline.read import Inputs, read_inputs
from geogp.runs.pipeline.repair import repair_of
from geogp.runs.pipeline.splits import map_calibration_rows
from geogp.runs.progress import RunListener
from geogp.runs.question import Question
from geogp.runs.run_folder import MODEL_FILE, check_model
from geogp.runs.run_identity import input_record, same_input, settings_of
from geogp.runs.run_names import RUN_FILE
from geogp.runs.stored_run import StoredRun

Floats = NDArray[np.float64]

WHOLE = "whole region"
"""Name of the layer that contains the region, its urban part and its rural part."""

_TAKEN = (*CENSUS_LAYERS, BY_STRATUM, WHOLE)


@dataclass(frozen=True)
class Reopened:
    """A finished run with its data read again, without the user's layers, and with its tiles.

    A run of several targets is opened as one of them, the first by default; `together` is the model
    of all.
    """

    path: Path
    record: OpenedRecord
    settings: MapSettings
    inputs: Inputs
    plan: Plan
    model: SpatialGP
    tiles: Tiles
    listener: RunListener
    together: SpatialGP | None = None

    @property
    def question(self) -> Question:
        """The predicted quantity and the quarter."""
        return self.plan.question

    @property
    def mapped(self) -> Observations:
        """The rows of the provider of the map; all rows if the run is not by provider."""
        return self.inputs.observations.of_provider(self.question.provider)

    def of_provider(self, name: str) -> "Reopened":
        """Return the same run with the map of another provider."""
        question = replace(self.question, provider=name)
        return replace(self, plan=replace(self.plan, question=question))

    @property
    def about(self) -> dict[str, Any]:
        """The facts of answers about the target: its name, and all of several."""
        targets = target_names(self.record.target)
        several = {"targets": list(targets)} if len(targets) > 1 else {}
        return {"target": self.settings.target, **several}

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds of the map; for another of several targets, the defaults."""
        drawn = given(given(self.record.drawing, RunDrawing()).thresholds, [])
        own = self.settings.target == target_names(self.record.target)[0]
        return thresholds_of(
            self.settings.target, drawn if own and drawn else None, self.settings.service
        )

    def of_target(self, name: str) -> "Reopened":
        """Return a run of several targets as one of them; raise RequestError if it has no such."""
        targets = target_names(self.record.target)
        one_of("target", name, targets)
        if self.together is None:
            return self
        return replace(
            self,
            settings=replace(self.settings, target=name, tier=None),
            inputs=self.inputs.of_target(name),
            model=self.together.of_target(name),
        )

    def places(self, quarter: int, provider: str | None = None) -> pd.DataFrame:
        """Return the table of the tiles in a quarter, of the provider of the map by default."""
        name = provider or self.question.provider
        return self.inputs.places.of_tiles(self.tiles, quarter, provider=name)

    def level(
        self,
        *quarters: int,
        providers: Sequence[str] = (),
        seed: int = 0,
        columns: int = 0,
        calibrated: bool = True,
    ) -> JointLevel:
        """Return the joint distribution of the level at the tiles; see `SpatialGP.joint`.

        `quarters` are indices, by default the quarter of the map. The result has all tiles of the
        first quarter, then all tiles of the next quarter; with `providers`, first all of the first
        provider. By default, a run by provider has the level of the provider of the map.
        """
        times, name = quarters or (self.question.quarter,), self.question.provider
        if name is not None and not providers:
            self.listener.warn(
                f"this answer is about {name}, the provider with most rows. "
                "geogp areas --by-provider compares all providers of the run."
            )
        often = "" if len(times) == 1 else f" in {len(times)} quarters"
        self.listener.stage(f"joint level of {len(self.tiles):,} tiles{often}")
        parts = [self.places(time, provider) for provider in providers or (name,) for time in times]
        places = pd.concat(parts)
        how: dict[str, Any] = {"seed": seed, "columns": columns, "calibrated": calibrated}
        alone = calibrated and len(parts) == 1
        with self._remembering(places, times[0]) if alone else nullcontext():
            level: JointLevel = self.model.joint(places, rows=self._rows(), **how)
        return level

    def levels(self, *, seed: int = 0, columns: int = 0) -> JointTargets:
        """Return the joint distribution of the levels of several targets, in the map's quarter."""
        assert self.together is not None, "the run has several targets"
        quarter, often = self.question.quarter, len(target_names(self.record.target))
        self.listener.stage(f"joint level of {len(self.tiles):,} tiles and {often} targets")
        places = self.places(quarter)
        with self._remembering(places, quarter):
            levels: JointTargets = self.together.joint(places, seed=seed, columns=columns)
        return levels

    @cached_property
    def repair(self) -> Repair:
        """The conformal repair of the map's predictions."""
        rows = map_calibration_rows(self.settings, self.inputs)
        return repair_of(self.settings.conformal, self.inputs, self.model, rows)

    def map_law(self, question: Question) -> Prediction:
        """Return the predictions of a question for all tiles, as the map of the run has them."""
        inputs, quarter = self.inputs, question.quarter
        predictor = MapPredictor(inputs, question, self.model, self.repair, self.tiles.zoom)
        with self._remembering(self.places(quarter, question.provider), quarter):
            return predictor.predict(self.tiles, [quarter])

    def map_joint(self, question: Question) -> JointPrediction:
        """Return the joint predictions of several targets for all tiles, as `map_law` for one."""
        assert self.together is not None, "the run has several targets"
        predictor = MapPredictor(
            self.inputs, question, self.model, self.repair, self.tiles.zoom, self.together
        )
        with self._remembering(self.places(question.quarter), question.quarter):
            return cast("JointPrediction", predictor.joint(self.tiles))

    @contextmanager
    def _remembering(self, places: pd.DataFrame, quarter: int) -> Iterator[None]:
        """Keep the level of the tiles in a quarter in the model, and in the run folder."""
        records, network = given(self.record.file_records, {}), self.model.network_
        keeps = network.holds_rows and self.plan.model.keeps_level
        if not keeps or MODEL_FILE not in records:
            yield
            return
        # The hash in run.json is that of the loaded model, even if the folder changes meanwhile.
        model = records[MODEL_FILE].sha256
        kept = KeptLevel.of(self.path, model, quarter_label(quarter), self.tiles)
        stored = kept.read()
        with network.remembering(self.model.inputs(places), stored=stored) as level:
            if stored is None:
                with suppress(OutputError):  # the next answer takes longer
                    kept.write(level)
            yield

    def warn_of_smooth_level(self, level: JointLevel, what: str) -> None:
        """Warn that the uncertainty of `what` is too small if the model has no tile process."""
        name = self.plan.model.name
        if not name.has_tiles:
            own = ", with a variance that differs between tiles" if level.own.any() else ""
            self.listener.warn(
                f"{name.name} does not model how single tiles differ from their surroundings: its "
                f"level is a smooth field{own}, so the stated uncertainty of {what} is too small."
            )

    @cached_property
    def far(self) -> NDArray[np.bool_]:
        """Mask of the tiles far from any measurement, (n,); see ``--far-km`` of `geogp map`."""
        rows = self.mapped
        distance = nearest_km(*self.tiles.centres, rows.longitude, rows.latitude)
        return np.asarray(distance > self.settings.far_km)

    def layer(self, by: str, crs: str | None = None) -> PolygonLayer:
        """Return the polygons of ``--by`` (county, urban, tract or a file); warn if they overlap.

        `crs` is the CRS of a file that has none. Raises RequestError if the boundaries have no such
        polygons, and the errors of `read_layer`.
        """
        boundaries, where = self.inputs.boundaries, self.settings.boundaries
        if by not in CENSUS_LAYERS:
            layer: PolygonLayer | None = read_layer(by, crs)
        elif by == BY_TRACT:
            region = self.inputs.region
            layer = None if where is None else read_tracts(open_source(where), region)
        else:
            layer = boundaries.counties if by == BY_COUNTY else boundaries.urban_areas
        if layer is None:
            reason = (
                "no boundaries were given, so there are"
                if where is None
                else f"the boundaries in {where} contain"
            )
            raise RequestError(
                f"{reason} no {by} areas of {self.inputs.region.name}. Give your own polygons with "
                "--by FILE:COLUMN."
            )
        overlap = layer.overlap(*self.tiles.centres, "tiles")
        for text in layer.warnings if overlap is None else (*layer.warnings, overlap):
            self.listener.warn(text)
        return layer

    def _rows(self) -> tuple[pd.DataFrame, Floats] | None:
        """Return the training rows of the map's model; None if the model stores these rows."""
        if self.model.network_.holds_rows:
            return None
        seen, calibrated = self.inputs.observations, self.settings.calibrated
        parts = random_split(seen.quadkey, seen.quarter, self.record.seed, calibrated=calibrated)
        held_out = np.isin(parts, (VALIDATION, CALIBRATION))
        rows = ~held_out if self.plan.refits else parts == TRAIN
        return self.inputs.table[rows], seen.y[rows]


def for_file_name(text: str) -> str:
    """Return a text with the characters percent-encoded that file names cannot have."""
    return re.sub(r'[\\/:*?"<>|%\s\x00-\x1f]', lambda sign: quote(sign[0], safe=""), text)


def weights_tag(weights: str | None) -> str:
    """Return what file names say about ``--weights``; empty without weights."""
    return "" if weights is None else f"_by_{for_file_name(Path(weights).stem)}"


def tag_of(by: str, layer: PolygonLayer) -> str:
    """Return the name that the polygons of ``--by`` have in file names.

    The name is county, urban, tract, or the name of the user's file, followed by the column if the
    user chose one of several columns. Characters that file names cannot have are percent-encoded
    (``%2F``). A file with the name of a built-in layer gets the ending ``_file``.
    """
    if by in CENSUS_LAYERS:
        return by
    column = for_file_name(layer.column)
    name = f"{layer.name}_{column}" if column else layer.name
    return f"{name}_file" if name in _TAKEN else name


def reopen(
    run: StoredRun,
    *,
    tests: int | None,
    devices: int | None,
    at: str | None,
    target: str | None = None,
) -> Reopened:
    """Read the data of a finished run again; raise DataError if the data have changed.

    Raises the errors of `Run.reopen`, and RequestError if the model cannot make the prediction.
    """
    path, record = run.path, complete_record(run.path, run.record, OpenedRecord)
    model, notes = run.loaded
    source, boundaries = run.read_from.places(path / RUN_FILE, record.settings)
    request = settings_of(
        record,
        source=source,
        boundaries=boundaries,
        layers=(),
        zoom=record.map.zoom,
        question=MapSettings.question,
        threshold=None,
        tests=tests,
        devices=devices,
        at=at or record.map.at,
        device=run.device,
        out=path,
    )
    if not (request.region_file or request.strata or request.points):
        request = replace(request, crs=None)  # which was that of the user's layers alone
    device, listener = pick_device(run.device), RunListener(run.listener)
    inputs = read_inputs(request, listener)
    # The version of geogp that made the run may define the preset differently.
    checked = record.settings
    refits = checked.model.refit or RANDOM.name not in checked.checks.splits
    plan = replace(plan_map(request, inputs, device, listener), refits=refits)
    check_model(path, record, model.model, notes)
    _check_inputs(path, record, inputs)
    tiles = _tiles(path, record, inputs.region)
    opened = Reopened(path, record, request, inputs, plan, model, tiles, listener)
    if len(request.targets) > 1:
        opened = replace(opened, together=model)
    return opened.of_target(target or request.targets[0])


def _check_inputs(path: Path, record: OpenedRecord, inputs: Inputs) -> None:
    """Raise DataError if the input files or their rows differ from the input of the run."""
    # Each file is compared with all entries: a user's layer may have the name of a boundary file.
    changed = [
        file.name
        for file in inputs.files
        if not any(same_input(input_record(file), entry) for entry in record.inputs)
    ]
    if changed:
        raise DataError(
            f"{named(changed, longest=LONGEST_PATH)} changed or appeared since {path} was "
            "made. Make the run again with --fresh, or restore the files."
        )
    # A missing file of the other service has no rows, and is no error when the service is read.
    read = {file.name for file in inputs.places.files}
    lost = [
        name
        for covariate in given(record.covariates, [])
        for name in covariate.files
        if name not in read
    ]
    if lost:
        raise DataError(
            f"{path} was made with covariates from "
            f"{named(sorted(set(lost)), longest=LONGEST_PATH)}, which are "
            f"missing now. Restore the files, or make the run again with --fresh."
        )
    rows = len(inputs.observations)
    counted = {} if record.n is UNSET else record.n
    other = {parts.rows for parts in counted.values()} - {rows}
    if other:
        raise DataError(
            f"expected {max(other):,} rows (n in {path / RUN_FILE}), found {rows:,} rows in the "
            "run's quarters. Was the file edited? Make the run again with --fresh."
        )


def _tiles(path: Path, record: OpenedRecord, region: Region) -> Tiles:
    """Return the tiles of the map; raise DataError if run.json has another number of tiles."""
    zoom, count = record.map.zoom, record.map.tiles
    if zoom == region.zoom_within(zoom, MAX_TILES):
        tiles = region.tiles(zoom)
        if len(tiles) == (len(tiles) if count is UNSET else count) > 0:
            return tiles
    raise DataError(
        f"{path / RUN_FILE} says that the map has {count} tiles of zoom {zoom}, but "
        f"{region.name} does not have these tiles. Was the file edited? Make the run again "
        f"with --fresh."
    )
