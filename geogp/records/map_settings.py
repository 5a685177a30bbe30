"""The settings of a map, each with a description, in groups.

The file is long because every setting is written once, in its group, with its help text, and the
rules stand beside the settings. The options of ``geogp map``, the arguments of
`geogp.make_map`, the settings of a batch and those in run.json follow from the groups.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from geogp.choices import (
    AVERAGE,
    CLASS,
    COUNT,
    MAX_KM,
    MAX_SEED,
    MAX_TESTS,
    check_sample,
    one_of,
    setting,
    settings_of,
)
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.splits.split_names import BUFFER, BUFFER_KM, MAX_FOLDS, SESSION, SPLITS
from geogp.geodata.places.file_choice import absolute_name
from geogp.geodata.places.region_choice import CRS_OF_FILES, RegionChoice
from geogp.geodata.places.state_names import VINTAGE_CHOICES
from geogp.geodata.points.point_options import PointOptions, PointSource, named_columns
from geogp.geodata.store.addresses import PUBLIC_SOURCE, absolute_place
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.targets import (
    SERVICES,
    TARGETS,
    TOGETHER,
    find_target,
    not_in_tiles,
    target_names,
    target_of,
)
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.geodata.tiles.tiers import Tier, tiers_of
from geogp.models.names import MODELS, find_model
from geogp.models.options import DOUBLE, NOISES, PRECISIONS
from geogp.models.presets import PRESETS
from geogp.records.record_names import INPUTS, QUESTIONS

SPLIT_CHOICES = {
    **{name: (name,) for name in SPLITS},
    "both": ("random", "blocks"),
    "all": tuple(name for name in SPLITS if name != SESSION.name),
}
"""Splits that each value of ``--split`` selects; the user may give several values with commas.

Few data have sessions; `plan_map` adds their split where the user names no splits.
"""

AUTO = "auto"

INPUT_CHOICES = (AUTO, *INPUTS)
"""Values of ``--inputs``; ``auto`` uses the quarter if the data have several quarters."""

DEFAULT_MODEL = "field"

STRATUM = "stratum"
"""The covariate that is 1 in the second stratum, such as the country, and 0 elsewhere."""

NAMED_COVARIATES = (*SERVICES, STRATUM)
"""Covariates that are not files."""

DEFAULT_MODELS = {AVERAGE: DEFAULT_MODEL, COUNT: "cox-nb"}
"""The default model for each kind of target; classes have none."""

_OF_KIND = {AVERAGE: "averages", COUNT: "numbers of tests"}

DEVICE_CHOICES = (AUTO, "cpu", "cuda")

MAX_TILES = 1_000_000
"""Largest number of tiles of a map; a map that would have more tiles uses a lower zoom."""

MAX_EPOCHS = 100_000
"""Largest number of epochs; more epochs do not improve a fit."""

MAX_BUDGET_S = 1_000_000
"""Largest budget in seconds: more than eleven days."""


@dataclass(frozen=True)
class WhereSettings:
    """The region to map, its boundaries and its strata."""

    title: ClassVar = "Where"

    region: str | None = setting(
        "State: postal code, name or FIPS number, such as PR; or use --region-file.", option=""
    )
    _: KW_ONLY
    region_file: str | None = setting(
        "Polygons that define your own region: FILE, FILE:COLUMN=VALUE or FILE:LAYER:COLUMN=VALUE.",
        is_place=True,
    )
    region_name: str | None = setting(
        "Name of your own region. Default: the name of the file; with --points alone, that of a "
        "town."
    )
    boundaries: str | None = setting(
        "Folder or address of the boundaries. Default: the Census Bureau's site.", is_place=True
    )
    urban_vintage: str = setting(
        "Census that defines the urban areas: auto (the newest), 2020, 2010 or 2000.",
        default=VINTAGE_CHOICES[0],
        noun="vintage of urban areas",
        choices=VINTAGE_CHOICES,
    )
    strata: str | None = setting(
        "Two strata to use instead of urban and rural: FILE (inside and outside its polygons) or "
        "FILE:COLUMN (a column with two names).",
        is_place=True,
    )
    crs: str | None = setting(CRS_OF_FILES)


@dataclass(frozen=True, kw_only=True)
class DataSettings(PointOptions):
    """The data to map: Ookla's tiles or the user's own tests, and covariates."""

    title: ClassVar = "Data"

    source: str = setting(
        "Folder or address of Ookla's files. Default: Ookla's bucket.",
        default=PUBLIC_SOURCE,
        is_place=True,
    )
    points: str | None = setting(
        "File of your own tests to map instead of Ookla's tiles: CSV, Excel, JSON, Parquet, "
        "GeoPackage and others. Without a region, the map shows the extent of the tests.",
        is_place=True,
    )
    provider: str | None = setting("Map only the tests of this provider in --points.")
    by_provider: bool = setting(
        "Map every provider in --points, from one fit, so that they can be compared.",
        default=False,
    )
    technology: str | None = setting("Map only the tests with this technology in --points.")
    service: str = setting("Service: mobile or fixed.", default="mobile", choices=SERVICES)
    target: str = setting(
        "What to map: download, upload, latency, or several of them together, such as "
        "download,upload,latency; tier, which is download,upload; tests; of "
        "--points also success (the share of tests that succeeded), and signal, or one kind of it: "
        "rsrp, rsrq, sinr or rssi.",
        default="download",
    )
    quarters: str | None = setting(
        "Quarters: 2019Q1..2023Q4, 2021Q3, or several with commas. Default: all."
    )
    covariates: tuple[str, ...] = setting(
        "Covariate: the other service (fixed or mobile), stratum, a GeoTIFF, or a file of points. "
        "Default: none, or stratum for models of classes.",
        default=(),
        is_place=True,
    )

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets; the map shows the first."""
        return target_names(self.target)

    @property
    def kind(self) -> str:
        """The kind of the target: averages, numbers of tests or classes."""
        return find_target(self.target).kind

    @property
    def own_points(self) -> PointSource | None:
        """The file of the user's own tests; None for a map of Ookla's tiles."""
        if self.points is None:
            return None
        options = PointOptions(**{name: getattr(self, name) for name in settings_of(PointOptions)})
        return PointSource(self.points, options, self.provider, self.technology, self.by_provider)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The model, its size and its fits."""

    title: ClassVar = "Model"

    model: str = setting(
        "Name of a model; `geogp models` lists the names. auto means cox-nb for --target tests, "
        "and field for other targets. Models of classes map --target tier as classes.",
        default=AUTO,
    )
    preset: str = setting(
        "Size of the model and number of fits: quick, standard or paper.",
        default="standard",
        choices=PRESETS,
    )
    inputs: str = setting(
        "Inputs of the model: auto, place or place-quarter.", default=AUTO, choices=INPUT_CHOICES
    )
    noise: str = setting(
        "Noise: gaussian, or for some models student-t. With student-t, outliers have less "
        "influence.",
        default=NOISES[0],
        choices=NOISES,
    )
    epochs: int | None = setting(
        "Number of epochs. Default: set by the preset.", least=1, most=MAX_EPOCHS
    )
    budget: float | None = setting(
        "Time for all fits in seconds, which determines the rank of models with anchors.",
        noun="a budget",
        positive=True,
        most=MAX_BUDGET_S,
        unit="seconds",
    )
    tune_weights: bool = setting(
        "Choose the weights alpha and beta of the objective by validation (16 short fits).",
        default=False,
    )
    precision: str = setting(
        "Precision of computations: double where it matters, or single everywhere. Single suits "
        "GPUs with few units for double precision.",
        default=DOUBLE,
        choices=PRECISIONS,
    )
    device: str = setting(
        "Device for the fits: auto, cpu or cuda.", default=AUTO, choices=DEVICE_CHOICES
    )
    seed: int = setting(
        "Random seed of splits and fits.", default=0, noun="a seed", least=0, most=MAX_SEED
    )


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """How the model is tested, and how its intervals are repaired."""

    title: ClassVar = "Checks"

    split: str | None = setting(
        "How to choose test rows: random, tiles, blocks, buffer, county, latest, session (several "
        "with commas), both (random and blocks) or all (but session). Default: set by the preset, "
        "and session for a log of drives."
    )
    folds: int = setting(
        "Number of folds of each split (1 to 5). Each fold holds out different rows.",
        default=1,
        least=1,
        most=MAX_FOLDS,
    )
    buffer_km: float = setting(
        "For the split buffer: smallest distance between test rows and other rows, in km.",
        default=BUFFER_KM,
        noun="a buffer",
        positive=True,
        most=MAX_KM,
        unit="km",
    )
    layers: tuple[str, ...] = setting(
        "Polygons by which the report groups test rows: FILE or FILE:COLUMN.",
        default=(),
        option="--layer",
        is_place=True,
    )
    conformal: str = setting(
        "Conformal repair of the intervals: none, marginal, strata or local.",
        default=METHODS[0],
        noun="repair",
        choices=METHODS,
    )

    @property
    def calibrated(self) -> bool:
        """Whether a tenth of the rows is reserved for the repair of intervals."""
        return self.conformal != METHODS[0]


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """What the map shows; the fits do not depend on these settings."""

    title: ClassVar = "Map"

    question: str = setting(
        "What the map predicts: tile-mean, single-test or level.",
        default=QUESTIONS[0],
        choices=QUESTIONS,
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the median in the region.",
        least=1,
        most=MAX_TESTS,
    )
    devices: int | None = setting(
        "Number of devices that made the tests of a tile mean. Default: the typical number in the "
        "region.",
        least=1,
        most=MAX_TESTS,
    )
    at: str | None = setting("Quarter of the map. Default: the latest quarter with data.")
    threshold: tuple[float, ...] | None = setting(
        "Map the probability that a tile reaches this speed in Mbps, this latency in ms, this "
        "signal in dBm or dB, or this success in %. Default: download 7, 35, 100 (fixed 25, 100); "
        "upload 1, 3, 20 (fixed 3, 20); latency 50, 100; rsrp -115, -105, -95; rsrq -17, -14, -12; "
        "sinr 1, 5, 13; rssi -103, -97, -89; success 80, 90, 95."
    )
    tier: tuple[str, ...] | None = setting(
        "With several targets: map the probability that all are met, such as 7/1 (download/upload "
        "in Mbps) or 100/20/100ms. Default: 5/1, 7/1, 35/3 (fixed 25/3), 100/20 and, with latency, "
        "100/20/100ms."
    )
    zoom: int = setting(
        "Zoom level of the map's tiles.", default=ZOOM, noun="a zoom", least=1, most=ZOOM
    )
    far_km: float = setting(
        "Distance in km; the map marks tiles whose nearest measured tile is farther away.",
        default=10.0,
        noun="a distance",
        positive=True,
        most=MAX_KM,
        unit="km",
    )


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """The files of a run."""

    title: ClassVar = "Output"

    out: Path | None = setting(
        "The run folder. Default: a folder in runs/, named after the region, target and settings."
    )
    self_contained: bool = setting(
        "Write map.html without the base map, so that the page needs no network.", default=False
    )
    fresh: bool = setting("Start over, even if the folder already contains a run.", default=False)


# The fields of a dataclass begin with those of its last base.
@dataclass(frozen=True)
class MapSettings(
    OutputSettings, ViewSettings, CheckSettings, ModelSettings, DataSettings, WhereSettings
):
    """All settings that determine a map.

    Paths become absolute, so that the request does not depend on the working directory. The model
    ``auto`` becomes the default model of the target. Raises RequestError if a value is not allowed
    (the message gives similar names), or if two values exclude each other.
    """

    most_used: ClassVar = ("target", "quarters", "region_file", "points", "preset", "out")
    groups: ClassVar = (
        *(WhereSettings, DataSettings, ModelSettings, CheckSettings, ViewSettings, OutputSettings),
        PointOptions,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._complete()
        for name in [] if self.split is None else self.split.split(","):
            one_of("split", name.strip(), SPLIT_CHOICES)
        for rule in RULES:
            if rule.broken(self):
                raise RequestError(rule.message(self))
        find_model(self.model).check_noise(self.noise)
        if self.quarters:
            parse_quarters(self.quarters)
        if self.at is not None:
            quarter_index(self.at)
        _ = self.own_points, self.thresholds, self.tiers  # which check their values
        check_sample(self.tests, self.devices)

    def _complete(self) -> None:
        """Make paths absolute, and take the defaults that depend on the target."""
        target = target_of(self.target, self.service)
        of_classes = self.model != AUTO and find_model(self.model).kind == CLASS
        if find_target(target).classes and not of_classes:
            target = ",".join(TOGETHER[:2])  # whose tiers are those of the service
        object.__setattr__(self, "target", target)
        place = self.place
        covariates = self.covariates or ((STRATUM,) if self.kind == CLASS else ())
        values: dict[str, object] = {
            "source": absolute_place(self.source),
            "points": None if self.points is None else absolute_place(self.points),
            "boundaries": place.boundaries,
            "region_file": place.file,
            "strata": place.strata,
            "layers": tuple(map(absolute_name, self.layers)),
            "covariates": tuple(
                name if name in NAMED_COVARIATES else absolute_place(name) for name in covariates
            ),
            "model": DEFAULT_MODELS[self.kind] if self.model == AUTO else self.model,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def place(self) -> RegionChoice:
        """The region to map."""
        return RegionChoice(
            self.region,
            self.region_file,
            self.region_name,
            self.boundaries,
            urban_vintage=self.urban_vintage,
            strata=self.strata,
            points=self.points,
            crs=self.crs,
        )

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds of the first target, smallest first; none for tests and tiers."""
        return thresholds_of(self.targets[0], self.threshold, self.service)

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of several targets; none for one target."""
        return tiers_of(self.target, self.tier, self.service)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits to run, in the order of `SPLITS`."""
        asked = (self.split or PRESETS[self.preset].split).split(",")
        wanted = {split for name in asked for split in SPLIT_CHOICES[name.strip()]}
        return tuple(name for name in SPLITS if name in wanted)


@dataclass(frozen=True)
class Rule:
    """Settings that exclude each other.

    `settings` are the names of the settings that a message names. `broken` returns whether a
    request breaks the rule, and `message` what a user reads then.
    """

    settings: tuple[str, ...]
    broken: Callable[[MapSettings], bool]
    message: Callable[[MapSettings], str]


def _model_needed(request: MapSettings) -> str:
    """Return the message about a model that does not predict the target."""
    kind, predicted = request.kind, find_model(request.model).kind
    other = next(name for name, target in TARGETS.items() if target.kind == predicted)
    instead = f", or map --target {other}" if kind == AVERAGE else ""
    return (
        f"--target {request.target} needs a model for {_OF_KIND[kind]}, found --model "
        f"{request.model}. Leave --model out to use {DEFAULT_MODELS[kind]}{instead}."
    )


def _covariates_refused(request: MapSettings) -> str:
    """Return the message about a model that takes no covariates."""
    instead = f", or choose --model {_TAKE_COVARIATES[0]}"
    return (
        f"--covariates is for the model {', '.join(_TAKE_COVARIATES)}, found --model "
        f"{request.model}. Leave --covariates out"
        f"{instead if request.kind == AVERAGE else ''}."
    )


def _about_points(name: str) -> Rule:
    """Return the rule that a setting about a file of tests needs such a file."""
    about = settings_of(DataSettings)[name]
    default, option = about.default, about.option_name(name)
    return Rule(
        (name, "points"),
        lambda request: (
            request.points is None and (getattr(request, name) or None) != (default or None)
        ),
        lambda _: (
            f"{option} describes a file of your own tests. Give the file with --points, or leave "
            f"{option} out."
        ),
    )


def _about_tile_means(name: str) -> Rule:
    """Return the rule that a number of tests or devices is that of a tile mean."""
    return Rule(
        (name, "question"),
        lambda request: getattr(request, name) is not None and request.question != QUESTIONS[0],
        lambda request: (
            f"--{name} {getattr(request, name)} sets the number of {name} in a tile mean; --for "
            f"{request.question} does not use this number. Leave --{name} out."
        ),
    )


_TAKE_COVARIATES = [name for name, model in MODELS.items() if model.takes_covariates]

_TAKE_BUDGET = [name for name, model in MODELS.items() if model.takes_budget]

_WHAT_COUNTS_AND_CLASSES_ARE = {
    COUNT: ("the number of tests", "intervals of numbers of tests"),
    CLASS: ("the tier of a measured tile", "probabilities of tiers"),
}
"""What a map of such a target predicts, and by what it states how sure it is."""

RULES = (
    Rule(
        ("target", "points"),
        lambda request: request.points is None and not find_target(request.target).in_tiles,
        lambda request: not_in_tiles(request.target),
    ),
    Rule(
        ("target", "covariates"),
        lambda request: (
            not find_target(request.target).in_tiles
            and not {*request.covariates}.isdisjoint(SERVICES)
        ),
        lambda request: (
            f"--covariates {next(name for name in request.covariates if name in SERVICES)} is "
            f"Ookla's tiles of this service, which have no --target {request.target}. Leave it "
            "out, or choose a file."
        ),
    ),
    Rule(
        ("target", "model"),
        lambda request: find_model(request.model).kind != request.kind,
        _model_needed,
    ),
    Rule(
        ("target", "model", "points", "conformal"),
        lambda request: (
            len(request.targets) > 1
            and (request.model != DEFAULT_MODEL or request.points is not None or request.calibrated)
        ),
        lambda request: (
            f"--target {request.target} maps Ookla's tiles by the model {DEFAULT_MODEL}, without "
            "--points and --conformal. Leave these options and --model out, or map one target. "
            "(FieldGP of the library fits several targets of your own rows.)"
        ),
    ),
    Rule(
        ("target", "question", "tests", "devices"),
        lambda request: (
            request.kind != AVERAGE
            and (request.question, request.tests, request.devices) != (QUESTIONS[0], None, None)
        ),
        lambda request: (
            f"--target {request.target} predicts "
            f"{_WHAT_COUNTS_AND_CLASSES_ARE[request.kind][0]}; --for, --tests and "
            f"--devices describe averages of tests. Leave these options out."
        ),
    ),
    Rule(
        ("by_provider", "target", "model"),
        lambda request: request.by_provider and not find_model(request.model).has_tiles,
        lambda request: (
            f"--by-provider is for the model {DEFAULT_MODEL}, and for a speed, a latency or a "
            f"signal, "
            f"found --target {request.target} and --model {request.model}. Leave --by-provider out."
        ),
    ),
    *(
        _about_points(name)
        # `crs` is also of files of polygons.
        for name in (*settings_of(PointOptions), "provider", "by_provider", "technology")
        if name != "crs"
    ),
    Rule(
        ("target", "at_least"),
        lambda request: request.at_least is not None and not find_target(request.target).is_share,
        lambda request: (
            f"--at-least {request.at_least:g} says which tests succeeded, found --target "
            f"{request.target}. Choose --target success, or leave --at-least out. (--threshold "
            "maps the probability of a speed.)"
        ),
    ),
    Rule(
        ("columns", "at_least"),
        lambda request: (
            request.at_least is not None and "success" in named_columns(request.columns)
        ),
        lambda _: (
            "--at-least and --columns success= both say which tests succeeded. Leave one out."
        ),
    ),
    Rule(
        ("target", "model", "question", "tests", "devices", "conformal"),
        lambda request: (
            find_target(request.target).is_share
            and (
                request.model != DEFAULT_MODEL
                or request.question == QUESTIONS[1]
                or (request.tests, request.devices) != (None, None)
                or request.calibrated
            )
        ),
        lambda request: (
            f"--target {request.target} maps the probability that a test succeeds, with the model "
            f"{DEFAULT_MODEL}; --model, --for, --tests, --devices and --conformal have no other "
            "value. Leave these options out."
        ),
    ),
    Rule(
        ("columns", "model", "epochs", "by_provider", "conformal"),
        lambda request: (
            "error_sd" in named_columns(request.columns)
            and request.kind == AVERAGE
            and (
                request.model != DEFAULT_MODEL
                or request.epochs is not None
                or request.by_provider
                or request.calibrated
            )
        ),
        lambda _: (
            f"--columns error_sd= needs the exact process of the model {DEFAULT_MODEL}, which has "
            "no --epochs, --by-provider and --conformal. Leave these options and --model out, or "
            "error_sd."
        ),
    ),
    Rule(
        ("covariates", "model"),
        lambda request: bool(request.covariates) and not find_model(request.model).takes_covariates,
        _covariates_refused,
    ),
    Rule(
        ("covariates",),
        lambda request: request.service in request.covariates,
        lambda request: (
            f"--covariates {request.service} is the service of the map itself. Choose --covariates "
            f"{next(name for name in SERVICES if name != request.service)}, or a file."
        ),
    ),
    Rule(
        ("covariates",),
        lambda request: len(set(request.covariates)) < len(request.covariates),
        lambda _: "expected different --covariates, found the same one twice.",
    ),
    Rule(
        ("budget", "preset", "epochs"),
        lambda request: request.budget is not None and request.model not in _TAKE_BUDGET,
        lambda request: (
            f"--budget chooses the rank, but only of models with anchors "
            f"({', '.join(_TAKE_BUDGET)}). The time of {request.model} depends on --preset and "
            f"--epochs. Leave --budget out."
        ),
    ),
    Rule(
        ("conformal",),
        lambda request: request.calibrated and request.kind != AVERAGE,
        lambda request: (
            f"--conformal {request.conformal} repairs intervals of a speed, a latency or a signal, "
            f"not "
            f"{_WHAT_COUNTS_AND_CLASSES_ARE[request.kind][1]}. Leave --conformal out."
        ),
    ),
    Rule(
        ("buffer_km", "split"),
        lambda request: request.buffer_km != BUFFER_KM and BUFFER.name not in request.splits,
        lambda request: (
            f"--buffer-km {request.buffer_km:g} is for the split buffer, which was not chosen. "
            f"Add buffer to --split, or leave --buffer-km out."
        ),
    ),
    _about_tile_means("tests"),
    _about_tile_means("devices"),
)
"""The combinations of settings that geogp refuses, in the order in which they are checked."""
