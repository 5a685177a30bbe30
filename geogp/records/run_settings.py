"""The settings in run.json, as typed structs that follow from the groups of `map_settings`.

run.json has some settings outside of `settings`: the region, the service, the target, the quarters,
the model, the preset and the seed. The settings of the map alone are under `drawing`. In schema 1,
the settings stood without groups, and some had other names.
"""

from functools import reduce
from operator import or_
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, defstruct, json
from msgspec.structs import fields

from geogp.arguments import alternatives
from geogp.choices import Setting, settings_of
from geogp.evaluation.scores import Size
from geogp.evaluation.splits.split_names import BUFFER
from geogp.geodata.places.state_names import AUTO
from geogp.geodata.points.point_options import PointOptions
from geogp.records.map_settings import (
    CheckSettings,
    DataSettings,
    MapSettings,
    ModelSettings,
    WhereSettings,
)
from geogp.records.record_types import (
    AboveZero,
    Name,
    Place,
    Rank,
    Some,
    Split,
    Text,
    WeightsAsked,
)

_ELSEWHERE = (
    *("region", "service", "target", "quarters", "model", "preset", "seed", "device"),
    "split",  # `splits` names them
)
"""Settings of the groups that run.json does not have under `settings`."""


_NEEDED = (
    *("noise", "tune_weights", "folds", "layers", "conformal", "inputs", "source", "boundaries"),
    *("epochs", "urban_vintage"),
)
"""Settings that every run.json has; another that is absent, as in older runs, has its default."""


class OwnStrata(Struct, frozen=True, kw_only=True):
    """The names of the two strata of the user; None for urban and rural."""

    strata_names: Annotated[list[Name], Meta(min_length=2, max_length=2)] | None = None


class FitSizes(Struct, frozen=True, kw_only=True):
    """The sizes and the schedule of the fits."""

    h: Some
    r: Rank
    batch: Some
    learning_rate: AboveZero
    decay: Text
    placement: Text
    weights: WeightsAsked
    refit: bool
    head_rate: Size
    noise_rate: Size | None
    clip: Size | None
    average: Size
    noise_start: AboveZero
    optimiser: Text
    dtype: Text


class RunSplits(Struct, frozen=True, kw_only=True):
    """The splits of a run."""

    splits: Annotated[list[Split], Meta(min_length=1)]


def _stored(kind: Any, about: Setting) -> Any:
    """Return the type that a setting has in run.json, with its range and its help text."""
    told = Meta(extra_json_schema={"description": about.told})
    least = {"gt": 0} if about.positive else {"ge": about.least}
    limits = Meta(**least, le=about.most)
    types: dict[Any, Any] = {
        NoneType: None,
        bool: Annotated[bool, told],
        int: Annotated[int, limits, told],
        float: Annotated[float, limits, told],
        str: Annotated[Place if about.is_place else Text, told],
        tuple[str, ...]: Annotated[tuple[Place, ...] if about.is_place else tuple[Text, ...], told],
    }
    if about.choices:
        types[str] = Annotated[Literal[tuple(about.choices)], told]
    return reduce(or_, (types[one] for one in alternatives(kind)))


def _struct(name: str, group: type, *bases: type[Struct], leave: str = "") -> Any:
    """Return the struct of a group in run.json: its settings, and the fields of other structs."""
    kinds = get_type_hints(group)
    own = [
        (
            setting,
            _stored(kinds[setting], about),
            NODEFAULT if setting in _NEEDED else about.default,
        )
        for setting, about in settings_of(group).items()
        if setting not in {*_ELSEWHERE, leave}
    ]
    return defstruct(
        name,
        own,
        bases=bases or None,
        namespace={"__doc__": group.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


if TYPE_CHECKING:  # the fields follow from the groups, so only msgspec checks them
    WhereRecord = Any
    DataRecord = Any
    ModelRecord = Any
    CheckRecord = Any
else:
    WhereRecord = _struct("WhereRecord", WhereSettings, OwnStrata)
    DataRecord = _struct("DataRecord", DataSettings, leave="crs")
    ModelRecord = _struct("ModelRecord", ModelSettings, FitSizes)
    CheckRecord = _struct("CheckRecord", CheckSettings, RunSplits)


class RunSettings(Struct, frozen=True, kw_only=True):
    """The settings of a run, in groups."""

    where: WhereRecord
    data: DataRecord
    model: ModelRecord
    checks: CheckRecord

    @property
    def is_state(self) -> bool:
        """Whether the region is a state; other regions have their name among the settings."""
        return self.where.region_file is None and self.where.region_name is None

    @property
    def flat(self) -> dict[str, Any]:
        """The settings by their names in schema 1, which rasters and reports have, too.

        As in schema 1, most settings are left out if they have their defaults.
        """
        values = {name: one for group in _as_json(self).values() for name, one in group.items()}
        vintage = values["urban_vintage"]
        values["urban_vintage"] = None if vintage == AUTO else int(vintage)
        kept = {"buffer_km"} if BUFFER.name in self.checks.splits else set()
        chosen = {
            name: value
            for name, value in values.items()
            if name in kept or name not in _DEFAULTS or value != _as_json(_DEFAULTS[name])
        }
        options = {name: chosen.pop(name) for name in _OPTIONS if name in chosen}
        flat = {_FORMER.get(name, name): value for name, value in chosen.items()}
        return flat | ({OPTIONS: options} if options else {})


GROUPS = {
    group.name: tuple(one.name for one in fields(group.type)) for group in fields(RunSettings)
}
"""The names of the settings in each group of run.json."""

PLACES = tuple(name for name, about in settings_of(MapSettings).items() if about.is_place)
"""Settings that may be local paths."""

OPTIONS = "points_options"
"""The key of schema 1 for the options of a file of tests."""

_OPTIONS = tuple(
    name for name in settings_of(PointOptions) if name not in {"columns", "units", "crs"}
)

_FORMER = {
    "strata": "strata_file",
    "strata_names": "strata",
    "points": "points_file",
    **{
        name: f"points_{name}"
        for name in ("columns", "units", "provider", "technology", "by_provider")
    },
}
"""The names in schema 1 of settings that have another name since."""

_DEFAULTS = {
    setting.name: setting.default
    for group in fields(RunSettings)
    for setting in fields(group.type)
    if not setting.required
}
"""The defaults of settings that may be absent."""


def _as_json(value: object) -> Any:
    return json.decode(json.encode(value))


def former_name(name: str) -> str:
    """Return the name of a setting under `settings` in schema 1."""
    return f"{OPTIONS}.{name}" if name in _OPTIONS else _FORMER.get(name, name)


def in_groups(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run.json of schema 1 in groups; other keys stay beside them."""
    places = {_FORMER.get(name, name): (group, name) for group in GROUPS for name in GROUPS[group]}
    found: dict[str, Any] = {group: {} for group in GROUPS}
    vintage = settings.get("urban_vintage")
    values = {**settings, "urban_vintage": AUTO if vintage is None else str(vintage)}
    options = values.pop(OPTIONS, None)
    if options is not None and not isinstance(options, dict):
        return settings  # which the types refuse
    for former, value in {**values, **(options or {})}.items():
        group, name = places.get(former, (None, former))
        if group is None:
            found.setdefault(name, value)
        elif value is not None or name not in _DEFAULTS:
            found[group][name] = value
    return found


def upgraded(run: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json with its settings in groups, as in schema 2."""
    settings, schema = run.get("settings"), run.get("schema", 1)
    if type(schema) is not int or schema != 1 or not isinstance(settings, dict):
        return run
    found = {**run, "settings": in_groups(settings)}
    return found if "schema" not in run else {**found, "schema": 2}
