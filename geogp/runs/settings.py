"""The settings of one map, with a description of each setting."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import MAX_KM, MAX_SEED, MAX_TESTS, check_sample, check_settings, one_of, setting
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.splits.split_names import BUFFER, BUFFER_KM, MAX_FOLDS, SPLITS
from geogp.geodata.places.region_choice import VINTAGE_CHOICES, RegionChoice, absolute_name
from geogp.geodata.store.addresses import PUBLIC_SOURCE, absolute_place
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.targets import SERVICES, TARGETS
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.models.catalogue.model_names import MODELS, find_model
from geogp.models.catalogue.presets import PRESETS
from geogp.models.core.options import NOISES
from geogp.records.record_names import INPUTS, QUESTIONS

SPLIT_CHOICES = {
    **{name: (name,) for name in SPLITS},
    "both": ("random", "blocks"),
    "all": tuple(SPLITS),
}
"""Splits that each value of ``--split`` runs; commas separate several values."""

AUTO = "auto"

INPUT_CHOICES = (AUTO, *INPUTS)
"""Values of ``--inputs``; ``auto`` adds the quarter if there are several."""

DEFAULT_MODEL = "field"

COUNT_MODEL = "cox-nb"
"""The default model for numbers of tests."""

DEVICE_CHOICES = (AUTO, "cpu", "cuda")

MAX_TILES = 1_000_000
"""Largest number of tiles of a map; a map of more tiles uses a coarser zoom."""

MAX_EPOCHS = 100_000
"""Largest number of epochs; no fit improves with more."""

MAX_BUDGET_S = 1_000_000
"""Largest budget: more than eleven days."""


@dataclass(frozen=True)
class MapRequest:
    """All settings that determine a map; each field has its description.

    Paths of folders and files become absolute, so that the request does not depend on the working
    directory. The model ``auto`` becomes the default model of the target. RequestError if a value
    is not allowed (the message gives similar names), or if two values exclude each other.
    """

    region: str | None = setting(
        "Postal code, name or FIPS number, such as PR. Or give --region-file.", option=""
    )
    source: str = setting(
        "Folder or address of Ookla's files. Default: Ookla's bucket.", default=PUBLIC_SOURCE
    )
    boundaries: str | None = setting("Folder or address of the boundaries. Default: the Census.")
    region_file: str | None = setting(
        "Your own region: a file of polygons, as FILE or FILE:COLUMN=VALUE."
    )
    region_name: str | None = setting("Name of your own region. Default: the name of the file.")
    urban_vintage: str = setting(
        "Census of the urban areas: auto (the newest), 2020, 2010 or 2000.",
        default=VINTAGE_CHOICES[0],
        noun="vintage of urban areas",
        choices=VINTAGE_CHOICES,
    )
    strata: str | None = setting(
        "Polygons of two strata, to use instead of urban and rural: FILE (inside, outside) or "
        "FILE:COLUMN."
    )
    service: str = setting("mobile or fixed.", default="mobile", choices=SERVICES)
    target: str = setting(
        "download, upload, latency or tests.", default="download", choices=TARGETS
    )
    quarters: str | None = setting("2019Q1..2023Q4, 2021Q3, or several with commas. Default: all.")
    model: str = setting(
        "A model's name; `geogp models` lists them. auto: field, or cox-nb for tests.", default=AUTO
    )
    preset: str = setting("quick, standard or paper.", default="standard", choices=PRESETS)
    split: str | None = setting(
        "random, blocks, buffer, county, latest (several with commas), both (the first two) or "
        "all. Default: the preset's."
    )
    folds: int = setting(
        "Number of folds of each split (1 to 5). Each fold holds out other rows.",
        default=1,
        least=1,
        most=MAX_FOLDS,
    )
    buffer_km: float = setting(
        "Width of the split buffer: training rows nearer than this to test rows are left out.",
        default=BUFFER_KM,
        noun="a buffer",
        positive=True,
        most=MAX_KM,
        unit="km",
    )
    layers: tuple[str, ...] = setting(
        "Polygons by which the report groups test rows, FILE or FILE:COLUMN; repeatable.",
        default=(),
        option="--layer",
    )
    covariates: tuple[str, ...] = setting(
        "What the field may depend on: the other service (fixed or mobile), or a GeoTIFF or a file "
        "of points; repeatable.",
        default=(),
    )
    conformal: str = setting(
        "Repair of intervals: none, marginal, strata or local.",
        default=METHODS[0],
        noun="repair",
        choices=METHODS,
    )
    inputs: str = setting("auto, place or place-quarter.", default=AUTO, choices=INPUT_CHOICES)
    epochs: int | None = setting("Default: the preset's.", least=1, most=MAX_EPOCHS)
    budget: float | None = setting(
        "Time for the fits in seconds. It determines the rank of models with anchors.",
        noun="a budget",
        positive=True,
        most=MAX_BUDGET_S,
        unit="seconds",
    )
    noise: str = setting(
        "gaussian or student-t. With student-t (some models), outliers have less influence.",
        default=NOISES[0],
        choices=NOISES,
    )
    tune_weights: bool = setting(
        "Choose alpha and beta by validation (16 short fits).", default=False
    )
    device: str = setting("auto, cpu or cuda.", default=AUTO, choices=DEVICE_CHOICES)
    seed: int = setting(
        "Random seed of splits and fits.", default=0, noun="a seed", least=0, most=MAX_SEED
    )
    zoom: int = setting("Zoom of the map's tiles.", default=ZOOM, noun="a zoom", least=1, most=ZOOM)
    far_km: float = setting(
        "Mark tiles that are farther than this from any measured tile.",
        default=10.0,
        noun="a distance",
        positive=True,
        most=MAX_KM,
        unit="km",
    )
    question: str = setting(
        "What the map predicts: tile-mean, single-test or level.",
        default=QUESTIONS[0],
        choices=QUESTIONS,
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices behind the tests of a tile mean. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    at: str | None = setting("Quarter of the map. Default: the latest with data.")
    threshold: tuple[float, ...] | None = setting(
        "Map the probability of reaching this speed in Mbps (latency: of at most this many ms); "
        "repeatable. "
        "Default: 5, 7, 35; upload 1, 3; latency 50, 100."
    )
    self_contained: bool = setting(
        "Write a map.html that needs no network; it has no base map.", default=False
    )
    out: Path | None = setting(
        "The run folder. Default: a name in runs/ made from the region, target and settings."
    )
    fresh: bool = setting("Start over, even if the folder holds a run.", default=False)

    def __post_init__(self) -> None:
        self._check_places()
        check_settings(self)
        self._check_model()
        find_model(self.model).check_noise(self.noise)
        self._check_covariates()
        self._check_budget()
        for name in [] if self.split is None else self.split.split(","):
            one_of("split", name.strip(), SPLIT_CHOICES)
        self._check_validation()
        if self.quarters:
            parse_quarters(self.quarters)
        if self.at is not None:
            quarter_index(self.at)
        thresholds_of(self.target, self.threshold)
        self._check_sample()

    def _check_sample(self) -> None:
        """Refuse numbers of tests and devices that the question does not use or that differ."""
        for name, given in (("tests", self.tests), ("devices", self.devices)):
            if given is not None and self.question != QUESTIONS[0]:
                raise RequestError(
                    f"--{name} {given} sets the number of {name} in a tile mean; --for "
                    f"{self.question} does not use it. Leave --{name} out."
                )
        check_sample(self.tests, self.devices)

    def _check_places(self) -> None:
        """Make folders and files absolute, because the request is opened again elsewhere."""
        object.__setattr__(self, "source", absolute_place(self.source))
        object.__setattr__(self, "boundaries", self.place.boundaries)
        object.__setattr__(self, "region_file", self.place.file)
        object.__setattr__(self, "strata", self.place.strata)
        object.__setattr__(self, "layers", tuple(map(absolute_name, self.layers)))
        covariates = (one if one in SERVICES else absolute_place(one) for one in self.covariates)
        object.__setattr__(self, "covariates", tuple(covariates))

    def _check_validation(self) -> None:
        if self.calibrated and TARGETS[self.target].counted:
            raise RequestError(
                f"--conformal {self.conformal} repairs intervals of a speed or a latency, not of "
                f"numbers of tests. Leave --conformal out."
            )
        if self.buffer_km != BUFFER_KM and BUFFER.name not in self.splits:
            raise RequestError(
                f"--buffer-km {self.buffer_km:g} is for the split buffer, which was not chosen. "
                f"Add buffer to --split, or leave --buffer-km out."
            )

    def _check_covariates(self) -> None:
        if self.covariates and not find_model(self.model).takes_covariates:
            able = [name for name, spec in MODELS.items() if spec.takes_covariates]
            raise RequestError(
                f"--covariates is for the model {', '.join(able)}, found --model {self.model}. "
                f"Leave --covariates out, or choose --model {able[0]}."
            )
        if self.service in self.covariates:
            other = next(name for name in SERVICES if name != self.service)
            raise RequestError(
                f"--covariates {self.service} is the service of the map itself. Choose "
                f"--covariates {other}, or a file."
            )
        if len(set(self.covariates)) < len(self.covariates):
            raise RequestError("expected different --covariates, found one of them twice.")

    def _check_budget(self) -> None:
        if self.budget is not None and not find_model(self.model).takes_budget:
            able = [name for name, spec in MODELS.items() if spec.takes_budget]
            raise RequestError(
                f"--budget chooses the rank of models with anchors ({', '.join(able)}). "
                f"The time of {self.model} depends on --preset and --epochs. "
                f"Leave --budget out."
            )

    def _check_model(self) -> None:
        """Choose the default model; refuse a model that does not fit the target."""
        counted = TARGETS[self.target].counted
        if self.model == AUTO:
            object.__setattr__(self, "model", COUNT_MODEL if counted else DEFAULT_MODEL)
        if counted != find_model(self.model).counts:
            fitting = "numbers of tests" if counted else "averages"
            raise RequestError(
                f"--target {self.target} needs a model of {fitting}, found --model {self.model}. "
                f"Leave --model out to use {COUNT_MODEL if counted else DEFAULT_MODEL}"
                f"{'.' if counted else ', or map --target tests.'}"
            )
        asked = self.question != QUESTIONS[0], self.tests is not None, self.devices is not None
        if counted and any(asked):
            raise RequestError(
                "--target tests predicts the number of tests; --for, --tests and --devices "
                "describe averages of tests. Leave them out."
            )

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
        )

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds, smallest first; none for numbers of tests."""
        return thresholds_of(self.target, self.threshold)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits to run, in the order of `SPLITS`."""
        asked = (self.split or PRESETS[self.preset].split).split(",")
        wanted = {split for name in asked for split in SPLIT_CHOICES[name.strip()]}
        return tuple(name for name in SPLITS if name in wanted)

    @property
    def calibrated(self) -> bool:
        """Whether a tenth of the rows is reserved for the repair of intervals."""
        return self.conformal != METHODS[0]
