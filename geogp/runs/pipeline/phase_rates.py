"""How long the phases of a map take on this machine, remembered from one map to the next.

The cache folder keeps, for each model, preset and device, the seconds of a phase for each unit of
work. Only the progress bar reads them.
"""

import json
from contextlib import suppress
from pathlib import Path

from geogp.errors import GeogpError
from geogp.files import read_json, write_text
from geogp.geodata.store.cache import cache_folder
from geogp.runs.pipeline.job import Job
from geogp.runs.settings import MAX_TILES


def rates_file() -> Path:
    """Return the file with the rates of this machine."""
    return cache_folder() / "rates.json"


def expect(job: Job, *, fits: bool) -> None:
    """Tell the clock of a job how many parts the phases have, and how long they should take.

    With `fits` false, the map is drawn from stored models.
    """
    checks = len(job.request.splits) * job.request.folds
    number = {"fit": checks + job.refits, "check": checks + 1} if fits else {"fit": 0, "check": 0}
    rates, work = _stored().get(_key(job), {}), _work(job)
    job.clock.parts, job.clock.work = job.clock.parts | number, work
    job.clock.expected |= {phase: rates[phase] * work[phase] for phase in work if phase in rates}


def remember(job: Job) -> None:
    """Store the rates of a finished map."""
    work, spent = job.clock.work, job.clock.spent
    found = {
        phase: sum(spent[phase]) / len(spent[phase]) / work[phase]
        for phase in work
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
    return {"fit": rows * job.epochs, "check": rows, "predict": tiles, "write": tiles}


def _stored() -> dict[str, dict[str, float]]:
    """Return the stored rates; a damaged file counts as empty, because it is only a memory."""
    with suppress(GeogpError):
        found = read_json(rates_file()) if rates_file().is_file() else {}
        if isinstance(found, dict) and all(
            isinstance(rate, int | float) and rate > 0
            for rates in found.values()
            for rate in (rates.values() if isinstance(rates, dict) else [None])
        ):
            return found
    return {}
