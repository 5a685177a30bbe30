"""How long the phases of a map take on this machine, remembered from one map to the next.

The cache folder keeps, for each model, preset and device, the seconds and the units of work of a
part of each phase. Only the progress bar reads them.
"""

import json
import math
from contextlib import suppress
from pathlib import Path

import msgspec

from geogp.errors import GeogpError
from geogp.files import read_json, write_text
from geogp.geodata.store.cache_place import cache_folder
from geogp.records.map_settings import MAX_TILES
from geogp.runs.pipeline.plan import Plan
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.progress import PhaseClock

SIMILAR = 3.0
"""A time is known only if the remembered work is less or more by this factor at most."""

Times = dict[str, dict[str, tuple[float, float]]]
"""Seconds and units of work of one part, by model, preset and device, then by phase."""

DEMO: dict[str, tuple[float, float]] = {
    "fit": (31.0, 144_000),
    "check": (4.0, 36_000),
    "predict": (32.0, 160_536),
    "write": (7.0, 20_067),
}
"""Times of `geogp demo` on one core of a shared server (AMD EPYC), for a first map of a field."""

ALIKE = 10.0
"""The demo tells nothing about fits of so many times fewer or more rows: those of few rows, for
example, are cross-validated.
"""

OTHER_MACHINE = 2.0
"""Another machine may be so many times faster or slower."""


def rates_file() -> Path:
    """Return the file with the times of this machine."""
    return cache_folder() / "rates.json"


def expect(clock: PhaseClock, inputs: Inputs, plan: Plan, *, fits: bool) -> None:
    """Tell a clock how many parts the phases of a run have, and how long they should take.

    With `fits` false, the map is drawn from stored models.
    """
    settings = plan.model.settings
    checks = len(settings.splits) * settings.folds
    number = {"fit": 0, "check": 0}
    if fits:  # models with tiles have no check of the variance
        others = not plan.model.name.has_tiles
        number = {"fit": checks + plan.refits, "check": checks + others}
    clock.parts, clock.work = clock.parts | number, _work(inputs, plan.model)
    for phase, (seconds, work) in _stored().get(_key(plan.model), {}).items():
        more = clock.work.get(phase, 0.0) / work
        if 1 / SIMILAR <= more <= SIMILAR:
            clock.expected[phase] = seconds * more
        elif more > 0:
            clock.rough[phase] = _between(seconds, more)
    likeness = clock.work["fit"] / DEMO["fit"][1]
    alike = 1 / ALIKE <= likeness <= ALIKE
    if not clock.expected and not clock.rough and plan.model.name.has_tiles and alike:
        for phase, (seconds, work) in DEMO.items():
            least, most = _between(seconds, clock.work[phase] / work)
            clock.rough[phase] = least / OTHER_MACHINE, most * OTHER_MACHINE


def _between(seconds: float, more: float) -> tuple[float, float]:
    """Return the least and the most seconds of `more` times the work.

    The time grows at most as the work does, because a part of it is the same for all maps; of the
    maps in the table of costs, it grows faster than the square root of the work.
    """
    first, second = seconds * more, seconds * math.sqrt(more)
    return min(first, second), max(first, second)


def remember(clock: PhaseClock, model: RunModel) -> None:
    """Store the times of a finished map."""
    spent = clock.spent
    times = {
        phase: (sum(spent[phase]) / len(spent[phase]), work)
        for phase, work in clock.work.items()
        if phase in spent
    }
    stored, key = _stored(), _key(model)
    stored[key] = stored.get(key, {}) | times
    with suppress(GeogpError):  # a full or read-only cache must not spoil a finished map
        write_text(rates_file(), json.dumps(stored, indent=1) + "\n")


def _key(model: RunModel) -> str:
    return f"{model.settings.model} {model.settings.preset} {model.device}"


def _work(inputs: Inputs, model: RunModel) -> dict[str, float]:
    """Return the units of work in one part of each phase: rows and epochs, or tiles."""
    rows, region = len(inputs.observations), inputs.region
    zoom = region.zoom_within(model.settings.zoom, MAX_TILES)
    tiles = region.about_tiles(zoom, MAX_TILES)
    quarters = len(inputs.observations.quarters)
    others = min(model.preset.other_predictions, tiles * (quarters - 1))
    return {"fit": rows * model.epochs, "check": rows, "predict": tiles + others, "write": tiles}


def _stored() -> Times:
    """Return the stored times; a damaged file counts as empty, because it is only a memory."""
    with suppress(GeogpError, msgspec.ValidationError):
        stored = msgspec.convert(read_json(rates_file()), Times) if rates_file().is_file() else {}
        times = [time for phases in stored.values() for pair in phases.values() for time in pair]
        if min(times, default=1.0) > 0:
            return stored
    return {}
