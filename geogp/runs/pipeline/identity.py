"""The entries of run.json that determine the fits and the map of a run, from its plan."""

from dataclasses import asdict

import numpy as np
import torch
from msgspec import UNSET, convert

from geogp import __version__
from geogp.geodata.places.region import Region
from geogp.geodata.places.state_names import AUTO
from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.run_record import RUN_SCHEMA, RunDrawing, RunIdentity
from geogp.records.run_settings import GROUPS, RunSettings
from geogp.runs.pipeline.plan import Plan
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.run_identity import input_record
from geogp.runs.run_places import reads_tiles


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
            tiers=[tier.name for tier in request.tiers] or UNSET,
            self_contained=request.self_contained,
            **plan.question.record,
        ),
        inputs=[input_record(file) for file in inputs.files],
    )


def _settings_of(region: Region, model: RunModel) -> RunSettings:
    """Return the settings of a run: those that were chosen, completed by those that were found."""
    request, preset = model.settings, model.preset
    values = {
        **vars(preset),
        **vars(request),
        "r": preset.r if request.budget is None else "budget",
        "epochs": model.epochs,
        "batch": model.batch,
        "learning_rate": preset.learning_rate_for(model.batch),
        "weights": "validation" if request.tune_weights else asdict(preset.weights),
        "splits": request.splits,
        "inputs": "place" if model.scale.times is None else "place-quarter",
        "urban_vintage": AUTO if region.urban_vintage is None else str(region.urban_vintage),
        "dtype": "float32",
        "region_name": region.name if request.region is None else None,
        "strata_names": None if request.strata is None else region.strata_names,
    }
    if not reads_tiles(request):
        values["source"] = request.points
    groups = {group: {name: values[name] for name in names} for group, names in GROUPS.items()}
    return convert(groups, RunSettings)
