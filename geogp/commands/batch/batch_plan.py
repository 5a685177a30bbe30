"""The request for a batch: its regions, services, targets and quarters, and how to run them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from geogp.choices import FORCE_TOLD, check_settings, setting, settings_of
from geogp.errors import RequestError, named
from geogp.geodata.points.point_options import PointOptions
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.records.map_settings import AUTO, MapSettings

VARIED = ("region", "service", "target", "quarters")
"""Fields of a request that differ between the runs of a batch."""

_ALONE = (
    *("region_file", "region_name", "out", "fresh"),
    *("points", "provider", "by_provider", "technology"),
    *(name for name in settings_of(PointOptions) if name != "crs"),  # also of files of polygons
)
"""Fields of a request that a batch cannot have."""

MAP_SETTINGS = tuple(name for name in settings_of(MapSettings) if name not in {*VARIED, *_ALONE})
"""Fields of a request that are the same in all runs of a batch."""

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class BatchRequest:
    """The maps of a batch: every combination of state, service and target, with equal settings.

    Raises RequestError if there is nothing to map, or a setting is not allowed in a batch.
    """

    states: str = setting("States by postal code, name or FIPS number, such as GA,NM; or all.")
    services: str = setting("mobile, fixed, or both as mobile,fixed.", default="mobile")
    targets: str = setting(
        "download, upload, latency, tests or tier; separate several with commas.",
        default="download",
    )
    quarters: str | None = setting(settings_of(MapSettings)["quarters"].told)
    each_quarter: bool = setting(
        "Make one run for each quarter, instead of one run for all quarters.", default=False
    )
    maps: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        odd = sorted(set(self.maps) - set(MAP_SETTINGS))
        if odd:
            raise RequestError(f"a batch cannot set {named(odd)} for all its runs.")
        self.runs_in(self.listed("states")[:1])  # raises errors before boundaries are read

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the states, services or targets of the request, without repetitions."""
        text = str(getattr(self, name) or "")
        names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
        if not names:
            raise RequestError(f"expected one or more {name}, found none.")
        return names

    @property
    def quarter_sets(self) -> tuple[str | None, ...]:
        """The sets of quarters; each region, service and target has one run for each set."""
        if not self.each_quarter:
            return (self.quarters,)
        if self.quarters is None:
            raise RequestError(
                "--each-quarter makes one run for each quarter in --quarters. Give --quarters too."
            )
        return tuple(quarter_label(quarter) for quarter in parse_quarters(self.quarters).all)

    def runs_in(self, regions: Sequence[str]) -> list["PlannedRun"]:
        """Return the runs for some regions."""
        many = product(regions, self.listed("services"), self.listed("targets"), self.quarter_sets)
        return [
            run_of(MapSettings(**{**self.maps, **dict(zip(VARIED, values, strict=True))}))
            for values in many
        ]


@dataclass(frozen=True)
class Execution:
    """How to carry out a batch; the results do not depend on these settings.

    Raises RequestError if a value is out of range, or not allowed with a remote scheduler.
    """

    workers: int | None = setting(
        "Number of workers on this machine. Default: one for each GPU, or one without GPUs.",
        least=1,
        most=1_000,
    )
    scheduler: str | None = setting("Address of the Dask scheduler, for example tcp://HOST:8786.")
    memory_gb: float | None = setting(
        "Memory limit of a worker in GB. Default: an equal share of the memory.",
        noun="a memory limit",
        positive=True,
        most=1_000_000,
        unit="GB",
        option="--memory",
    )
    retries: int = setting(
        "Number of retries after a network failure or a killed worker.",
        default=1,
        least=0,
        most=1_000,
    )
    scratch: Path | None = setting(
        "Folder for temporary files of workers, and for the runs of a batch that goes to an "
        "address. Default: in the cache."
    )
    fresh: bool = setting("Start over, even if the folder already contains a batch.", default=False)
    force: bool = setting(FORCE_TOLD, default=False)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.scratch is not None:
            object.__setattr__(self, "scratch", self.scratch.expanduser().resolve())
        if self.scheduler is not None and (self.workers or self.memory_gb):
            raise RequestError(
                f"the workers of {self.scheduler} keep the settings they were started with; "
                f"leave out --workers and --memory."
            )


@dataclass(frozen=True)
class PlannedRun:
    """One run of a batch; runs that differ only in their region have the same `group`."""

    name: str
    group: str
    region: str
    request: MapSettings


def runs_of(batch: BatchRequest) -> list[PlannedRun]:
    """Return the runs of a batch.

    Raises RequestError if a region is unknown, a value is not allowed, or two runs would have the
    same folder. Raises DataError or NetworkError if boundaries cannot be read.
    """
    from geogp.geodata.places.census import state_codes  # noqa: PLC0415 - slow
    from geogp.geodata.store.sources import open_source  # noqa: PLC0415 - slow

    states = batch.listed("states")
    boundaries = open_source(batch.maps.get("boundaries", PUBLIC_BOUNDARIES))
    everything = "all" in map(str.casefold, states)
    runs = batch.runs_in(state_codes(boundaries, None if everything else states))
    check_apart(runs)
    return runs


def run_of(request: MapSettings) -> PlannedRun:
    """Return the run of a batch for one request, with folder name and group."""
    group = [request.service, request.target]
    if request.quarters is not None:
        group.append(re.sub(r"[^A-Za-z0-9]+", "-", request.quarters).strip("-"))
    joined = safe_name("-".join(group))
    assert request.region is not None, "a batch maps regions of the Census only"
    return PlannedRun(f"{safe_name(request.region)}-{joined}", joined, request.region, request)


def shared_settings(batch: BatchRequest, run: PlannedRun) -> dict[str, Any]:
    """Return the settings that are the same in all runs of a batch, as types of JSON."""
    plain = msgspec.json.decode(msgspec.json.encode(run.request, enc_hook=str))
    settings = {**plain, "model": batch.maps.get("model", AUTO)}
    return {name: settings[name] for name in MAP_SETTINGS}


def check_apart(runs: Sequence[PlannedRun]) -> None:
    """Raise RequestError if two runs have the same folder name, ignoring upper and lower case."""
    names: dict[str, PlannedRun] = {}
    for run in runs:
        other = names.setdefault(run.name.casefold(), run)
        if other is not run:
            raise RequestError(
                f"{run.region} and {other.region} would share the folder {run.name}; map these "
                "regions in two batches."
            )


def safe_name(text: str) -> str:
    """Return a safe folder name for a text; a hash keeps changed names unique."""
    if _SAFE.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")[:60]
    return f"{plain or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
