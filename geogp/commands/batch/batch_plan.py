"""Which runs a batch has: the product of regions, services, targets and quarters."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec

from geogp.choices import settings_of
from geogp.errors import DataError, RequestError
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.runs.settings import AUTO, MapRequest

ALL = "all"
"""Stands for every region of the boundaries."""

VARIED = ("region", "service", "target", "quarters")
"""Fields of a request in which the runs of a batch differ."""

PLACED = ("out", "fresh")
"""Fields of a request that the batch decides."""

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class BatchRequest:
    """What to map.

    Attributes
    ----------
    states
        Postal codes, names or FIPS numbers, or ``all``.
    services, targets
        As `MapRequest` has them.
    quarters
        Sets of quarters, each a run of its own; None takes all there are.
    settings
        Values of the other fields of `MapRequest`, the same in all runs.

    Raises
    ------
    RequestError
        There is nothing to map, or a field is not for a batch.
    """

    states: tuple[str, ...]
    services: tuple[str, ...]
    targets: tuple[str, ...]
    quarters: tuple[str | None, ...]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name in ("states", "services", "targets", "quarters"):
            if not getattr(self, name):
                raise RequestError(f"expected one or more {name}, found none.")
        known = set(settings_of(MapRequest)) - {*VARIED, *PLACED}
        odd = sorted(set(self.settings) - known)
        if odd:
            raise RequestError(f"a batch cannot set {', '.join(odd)} for all its runs.")
        _runs(self, self.states[:1])  # what is wrong is told before boundaries are read


@dataclass(frozen=True)
class PlannedRun:
    """One run of a batch: the name of its folder, and what it maps.

    `group` is the name of those that differ from it in the region alone.
    """

    name: str
    group: str
    request: MapRequest

    @property
    def region(self) -> str:
        """The region's code."""
        assert self.request.region is not None, "a batch maps regions of the Census"
        return self.request.region


def runs_of(batch: BatchRequest) -> tuple[PlannedRun, ...]:
    """Return the runs of a batch; those of a region stand together.

    Raises
    ------
    RequestError
        A region is unknown, a value is not among those allowed, or two regions have one name.
    DataError, NetworkError
        The boundaries cannot be read.
    """
    runs = _runs(batch, _regions(batch))
    check_apart(runs)
    return tuple(runs)


def run_of(request: MapRequest) -> PlannedRun:
    """Return the run of a request.

    Raises
    ------
    RequestError
        It is for a region of the user's own.
    """
    group = [request.service, request.target]
    if request.quarters is not None:
        group.append(re.sub(r"[^A-Za-z0-9]+", "-", request.quarters).strip("-"))
    joined = safe_name("-".join(group))
    if request.region is None:
        raise RequestError("a batch maps states; map a region of your own by `geogp map`.")
    return PlannedRun(f"{safe_name(request.region)}-{joined}", joined, request)


def shared_settings(batch: BatchRequest, run: PlannedRun) -> dict[str, Any]:
    """Return what the runs of a batch have in common, as JSON has it.

    The model is that asked for: what ``auto`` becomes depends on the target.
    """
    told = plain_fields(run.request) | {"model": batch.settings.get("model", AUTO)}
    return {key: value for key, value in told.items() if key not in VARIED}


def check_apart(runs: Sequence[PlannedRun]) -> None:
    """Refuse two runs of one folder, also where upper and lower case are one.

    Raises
    ------
    RequestError
        There are such runs.
    """
    names: dict[str, PlannedRun] = {}
    for run in runs:
        other = names.setdefault(run.name.casefold(), run)
        if other is not run:
            raise RequestError(
                f"{run.region} and {other.region} would share the folder "
                f"{run.name}; map them in batches of their own."
            )


def each_quarter(quarters: str | None) -> tuple[str, ...]:
    """Return the quarters of a request, one by one.

    Raises
    ------
    RequestError
        There is no request, or it cannot be read.
    """
    if quarters is None:
        raise RequestError("--each-quarter makes a run of each of --quarters; say which.")
    return tuple(quarter_label(quarter) for quarter in parse_quarters(quarters).all)


def safe_name(text: str) -> str:
    """Return a name for one file or folder, which leads nowhere else.

    What is no plain name (letters, digits, points, dashes, at most a hundred) is made one, with a
    digest that keeps it apart from others.
    """
    if _SAFE.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-")[:60]
    return f"{plain or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def check_name(name: str) -> str:
    """Refuse a name that `safe_name` would not have made.

    Raises
    ------
    DataError
        It is none.
    """
    if not isinstance(name, str) or safe_name(name) != name:
        raise DataError(f"expected a plain name of a folder, found {name!r}.")
    return name


def plain_fields(request: MapRequest) -> dict[str, Any]:
    """Return a request for JSON, without what the batch decides."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(request, enc_hook=str))
    return {name: value for name, value in plain.items() if name not in PLACED}


def request_of(plain: Mapping[str, Any]) -> MapRequest:
    """Return the request that `plain_fields` gave, read from JSON.

    Raises
    ------
    DataError
        It is none.
    """
    odd = sorted(set(plain) - set(settings_of(MapRequest)) | set(plain) & set(PLACED))
    if odd:
        raise DataError(f"expected settings of this version of geogp, found {odd}.")
    try:
        return msgspec.convert(plain, MapRequest)
    except msgspec.ValidationError as error:
        raise DataError(f"expected settings of a map, found others: {error}") from error


def _runs(batch: BatchRequest, regions: Sequence[str]) -> list[PlannedRun]:
    return [
        run_of(MapRequest(**{**batch.settings, **dict(zip(VARIED, varied, strict=True))}))
        for varied in product(
            regions,
            *(dict.fromkeys(each) for each in (batch.services, batch.targets, batch.quarters)),
        )
    ]


def _regions(batch: BatchRequest) -> list[str]:
    """Return the codes of the regions asked for, each once."""
    from geogp.geodata.places.census import state_codes  # noqa: PLC0415 - slow
    from geogp.geodata.store.sources import open_source  # noqa: PLC0415 - slow

    where = batch.settings.get("boundaries", PUBLIC_BOUNDARIES)
    everything = ALL in {state.strip().casefold() for state in batch.states}
    return state_codes(open_source(where), None if everything else batch.states)
