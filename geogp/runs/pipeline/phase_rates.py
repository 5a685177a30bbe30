"""How long the phases of a map take on this machine, remembered from one map to the next.

The cache folder keeps, for each model, preset and device, the seconds and the units of work of a
part of each phase. Only the progress bar reads them.
"""

import json
from contextlib import suppress
from pathlib import Path

import msgspec

from geogp.errors import GeogpError
from geogp.files import read_json, write_text
from geogp.geodata.store.cache import cache_folder
from geogp.records.map_settings import MAX_TILES
from geogp.runs.pipeline.job import Job

SIMILAR = 3.0
"""A time is known only if the remembered work is less or more by this factor at most."""

Times = dict[str, dict[str, tuple[float, float]]]
"""Seconds and units of work of one part, by model, preset and device, then by phase."""


def rates_file() -> Path:
    """Return the file with the times of this machine."""
    return cache_folder() / "rates.json"


def expect(job: Job, *, fits: bool) -> None:
    """Tell the clock of a job how many parts the phases have, and how long they should take.

    With `fits` false, the map is drawn from stored models.
    """
    checks = len(job.request.splits) * job.request.folds
    number = {"fit": 0, "check": 0}
    if fits:  # models with tiles have no check of the variance
        number = {"fit": checks + job.refits, "check": checks + (not job.about.has_tiles)}
    job.clock.parts, job.clock.work = job.clock.parts | number, _work(job)
    for phase, (seconds, work) in _stored().get(_key(job), {}).items():
        more = job.clock.work.get(phase, 0.0) / work
        if 1 / SIMILAR <= more <= SIMILAR:
            job.clock.expected[phase] = seconds * more


def remember(job: Job) -> None:
    """Store the times of a finished map."""
    spent = job.clock.spent
    found = {
        phase: (sum(spent[phase]) / len(spent[phase]), work)
        for phase, work in job.clock.work.items()
        if phase in spent
    }
    stored = _stored()
    stored[_key(job)] = stored.get(_key(job), {}) | found
    with suppress(GeogpError):  # a full or read-only cache must not spoil a finished map
        write_text(rates_file(), json.dumps(stored, indent=1) + "\n")


def _key(job: Job) -> str:
    return f"{job.request.model} {job.request.preset} {job.device}"


def _work(job: Job) -> dict[str, float]:
    """Return the units of work in one part of each phase: rows and epochs, or tiles."""
    rows, zoom = len(job.observations), job.region.zoom_within(job.request.zoom, MAX_TILES)
    tiles = job.region.about_tiles(zoom, MAX_TILES)
    others = min(job.preset.other_predictions, tiles * (len(job.observations.quarters) - 1))
    return {"fit": rows * job.epochs, "check": rows, "predict": tiles + others, "write": tiles}


def _stored() -> Times:
    """Return the stored times; a damaged file counts as empty, because it is only a memory."""
    with suppress(GeogpError, msgspec.ValidationError):
        found = msgspec.convert(read_json(rates_file()), Times) if rates_file().is_file() else {}
        times = [time for phases in found.values() for pair in phases.values() for time in pair]
        if min(times, default=1.0) > 0:
            return found
    return {}
