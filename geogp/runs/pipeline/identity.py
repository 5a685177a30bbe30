"""The entries of run.json that determine the fits and the map of a run, from its plan."""

from dataclasses import asdict

import numpy as np
import torch
from msgspec import convert
from msgspec.structs import fields, replace

from geogp import __version__
from geogp.choices import settings_of
from geogp.evaluation.splits.split_names import BUFFER
from geogp.geodata.places.region import Region
from geogp.geodata.points.point_options import PointOptions
from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.input_records import PointsOptions
from geogp.records.run_record import RUN_SCHEMA, RunDrawing, RunIdentity, RunSettings
from geogp.runs.pipeline.plan import Plan
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.run_identity import input_record
from geogp.runs.run_places import reads_tiles
from geogp.runs.settings import MapRequest


def identity_of(inputs: Inputs, plan: Plan) -> RunIdentity:
    """Return the entries of run.json that determine the fits and the map."""
    request = plan.model.settings
    return RunIdentity(
        schema=RUN_SCHEMA,
        geogp=__version__,
        versions={"torch": str(torch.__version__), "numpy": np.__version__},
        device=str(plan.model.device),
        region=inputs.region.code,
        service=request.service,
        target=request.target,
        quarters=[quarter_label(q) for q in inputs.observations.quarters],
        model=request.model,
        preset=request.preset,
        seed=request.seed,
        settings=_settings_of(inputs.region, plan.model),
        drawing=RunDrawing(
            zoom=request.zoom,
            far_km=request.far_km,
            thresholds=[threshold.value for threshold in request.thresholds],
            self_contained=request.self_contained,
            **plan.question.record,
        ),
        inputs=[input_record(file) for file in inputs.files],
    )


def _points_options(request: MapRequest) -> PointsOptions | None:
    """Return the options of the user's own tests that differ from their defaults; None if none."""
    every = settings_of(PointOptions)
    names = (one.name for one in fields(PointsOptions))
    values = {name: getattr(request, name) for name in names}
    given = {name: value for name, value in values.items() if value != every[name].default}
    if not given or request.points is None:
        return None
    return convert(given, PointsOptions)


def _settings_of(region: Region, model: RunModel) -> RunSettings:
    request, preset = model.settings, model.preset
    own_region, own_strata = request.region is None, request.strata is not None
    found = RunSettings(
        h=preset.h,
        r=preset.r if request.budget is None else "budget",
        epochs=model.epochs,
        batch=model.batch,
        learning_rate=preset.learning_rate_for(model.batch),
        decay=preset.decay,
        placement=preset.placement,
        weights="validation" if request.tune_weights else asdict(preset.weights),
        refit=preset.refit,
        head_rate=preset.head_rate,
        noise_rate=preset.noise_rate,
        clip=preset.clip,
        average=preset.average,
        noise_start=preset.noise_start,
        optimiser=preset.optimiser,
        noise=request.noise,
        tune_weights=request.tune_weights,
        splits=list(request.splits),
        folds=request.folds,
        layers=list(request.layers),
        covariates=list(request.covariates) or None,
        conformal=request.conformal,
        inputs="place" if model.scale.times is None else "place-quarter",
        source=request.source,
        boundaries=request.boundaries,
        urban_vintage=region.urban_vintage,
        dtype="float32",
        precision=request.precision,
        region_file=request.region_file,
        region_name=region.name if own_region else None,
        crs=request.crs,
        strata_file=request.strata,
        strata=list(region.strata_names) if own_strata else None,
        buffer_km=request.buffer_km if BUFFER.name in request.splits else None,
        budget=request.budget,
        points_file=request.points,
        points_columns=list(request.columns) or None,
        points_units=request.units,
        points_provider=request.provider,
        points_technology=request.technology,
        points_by_provider=request.by_provider or None,
        points_options=_points_options(request),
    )
    return found if reads_tiles(found) else replace(found, source=request.points)
