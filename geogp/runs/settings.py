"""What a user asks for: the request of one map."""

from dataclasses import dataclass
from pathlib import Path

from geogp.choices import MOST_KM, MOST_SEED, MOST_TESTS, above_zero, one_of, whole_number
from geogp.errors import RequestError
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.splits.split_names import BUFFER, BUFFER_KM, MOST_FOLDS, SPLITS
from geogp.geodata.places.polygon_names import absolute_layer
from geogp.geodata.places.region_choice import VINTAGE_CHOICES, RegionChoice
from geogp.geodata.store.addresses import absolute_place
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.targets import SERVICES, TARGETS
from geogp.geodata.tiles.thresholds import Threshold, thresholds_of
from geogp.models.catalogue.model_names import MODELS, find_model
from geogp.models.catalogue.presets import PRESETS
from geogp.models.core.options import NOISES

SPLIT_CHOICES = {
    **{name: (name,) for name in SPLITS},
    "both": ("random", "blocks"),
    "all": tuple(SPLITS),
}
"""Splits that each value of ``--split`` runs; several values may be given with commas."""

CONFORMAL_CHOICES = METHODS
"""Values of ``--conformal``."""

INPUT_CHOICES = ("auto", "place", "place-quarter")
"""Values of ``--inputs``; ``auto`` adds the quarter where there are several."""

DEFAULT_MODEL = "field"

COUNT_MODEL = "cox-nb"
"""The default for numbers of tests."""

AUTO = "auto"

DEVICE_CHOICES = ("auto", "cpu", "cuda")

MOST_TILES = 1_000_000
"""A map of more tiles drops to a coarser zoom."""

MOST_EPOCHS = 100_000
"""No fit gains from more."""

MOST_BUDGET_S = 1_000_000
"""Eleven days."""

QUESTIONS = ("tile-mean", "single-test", "level")
"""Values of ``--for``: what a map predicts."""


@dataclass(frozen=True)
class MapRequest:
    """Everything that decides the outcome of a map.

    Attributes
    ----------
    region
        Postal code, name or FIPS number; None with `region_file`.
    source, boundaries
        Where Ookla's files and the Census boundaries are: a folder or an address. Folders become
        absolute: what is asked for does not change with the working directory. `boundaries` may be
        None; see `RegionChoice`.
    service, target
        ``mobile`` or ``fixed``; ``download``, ``upload``, ``latency`` or ``tests``.
    quarters
        As `parse_quarters` reads them; None takes all there are.
    model, preset
        Names of the catalogue and of `PRESETS`. The model ``auto`` becomes that of the target:
        ``cox-nb`` for ``tests``, else ``field``.
    split
        Names of splits with commas between, ``both`` (random and blocks) or ``all``; None takes
        the preset's.
    folds
        How often each split is run, each time with other rows held out, 1 to 5.
    buffer_km
        Distance that the split ``buffer`` keeps between training and test rows.
    layers
        Polygon layers, as ``FILE`` or ``FILE:COLUMN``: each test row is told which polygon of
        each it lies in. Files become absolute.
    conformal
        How intervals are repaired by rows kept for it: ``none``, ``marginal``, ``strata`` or
        ``local``.
    budget
        Seconds that the fits may take, for models whose rank can follow from that; None takes
        the preset's rank.
    noise
        ``gaussian``, the model's own noise, or ``student-t``, for models that can have it.
    inputs
        ``place``, ``place-quarter`` or ``auto``.
    epochs
        Overrides the preset's.
    tune_weights
        Choose alpha and beta by validation log score, once, instead of taking the preset's.
    device
        ``auto``, ``cpu`` or ``cuda``.
    seed
        Fixes splits and fits.
    zoom
        Zoom of the map's tiles.
    far_km
        Tiles farther than this from any measured tile are marked.
    out
        The run folder; None makes one under ``runs``.
    fresh
        Start over, whatever the run folder holds.
    question
        What the map predicts: ``tile-mean``, the average of `tests` tests, as Ookla publishes
        it; ``single-test``; ``level``, what measurements scatter around.
    tests
        Tests of a tile mean; None takes the median of the region's rows.
    at
        The quarter that the map shows; None takes the latest with data.
    threshold
        Values, in the unit of the target, whose probabilities of being met are mapped; None
        takes `DEFAULTS`.
    self_contained
        Leave the base map out of the interactive page, which then asks the network for nothing.
    region_file, region_name, urban_vintage, strata
        A region of the user's own, what it is called, the census of urban areas, and strata in the
        place of urban and rural, as `RegionChoice` has them. Files become
        absolute.

    Raises
    ------
    RequestError
        A value is not among those allowed (the nearest ones are given), or the model cannot have
        the noise.
    """

    region: str | None
    source: str
    boundaries: str | None
    service: str = "mobile"
    target: str = "download"
    quarters: str | None = None
    model: str = AUTO
    preset: str = "standard"
    split: str | None = None
    inputs: str = "auto"
    epochs: int | None = None
    tune_weights: bool = False
    device: str = "auto"
    seed: int = 0
    zoom: int = ZOOM
    far_km: float = 10.0
    out: Path | None = None
    fresh: bool = False
    question: str = "tile-mean"
    tests: int | None = None
    at: str | None = None
    noise: str = NOISES[0]
    budget: float | None = None
    folds: int = 1
    buffer_km: float = BUFFER_KM
    layers: tuple[str, ...] = ()
    conformal: str = CONFORMAL_CHOICES[0]
    threshold: tuple[float, ...] | None = None
    self_contained: bool = False
    region_file: str | None = None
    region_name: str | None = None
    urban_vintage: str = VINTAGE_CHOICES[0]
    strata: str | None = None

    def __post_init__(self) -> None:
        self._settle_places()
        one_of("service", self.service, SERVICES)
        one_of("target", self.target, TARGETS)
        self._settle_model()
        one_of("noise", self.noise, NOISES)
        find_model(self.model).check_noise(self.noise)
        self._check_budget()
        one_of("preset", self.preset, PRESETS)
        one_of("inputs", self.inputs, INPUT_CHOICES)
        one_of("device", self.device, DEVICE_CHOICES)
        for name in [] if self.split is None else self.split.split(","):
            one_of("split", name.strip(), SPLIT_CHOICES)
        self._check_validation()
        one_of("question", self.question, QUESTIONS)
        if self.quarters:
            parse_quarters(self.quarters)
        if self.at is not None:
            quarter_index(self.at)
        thresholds_of(self.target, self.threshold)
        if self.tests is not None:
            whole_number("tests", self.tests, 1, MOST_TESTS)
        if self.tests is not None and self.question != "tile-mean":
            raise RequestError(
                f"--tests {self.tests} says how many tests a tile mean averages; --for "
                f"{self.question} has no use for it."
            )
        whole_number("a zoom", self.zoom, 1, ZOOM)
        if self.epochs is not None:
            whole_number("epochs", self.epochs, 1, MOST_EPOCHS)
        whole_number("a seed", self.seed, 0, MOST_SEED)
        above_zero("a distance", self.far_km, MOST_KM, "km")

    def _settle_places(self) -> None:
        """Make folders and files absolute, as what is asked for is opened again elsewhere."""
        object.__setattr__(self, "source", absolute_place(self.source))
        object.__setattr__(self, "boundaries", self.place.boundaries)
        object.__setattr__(self, "region_file", self.place.file)
        object.__setattr__(self, "strata", self.place.strata)
        object.__setattr__(self, "layers", tuple(map(absolute_layer, self.layers)))

    def _check_validation(self) -> None:
        one_of("repair", self.conformal, CONFORMAL_CHOICES)
        if self.calibrated and TARGETS[self.target].counted:
            raise RequestError(
                f"--conformal {self.conformal} repairs intervals of a speed or a latency, not of "
                "whole numbers of tests. Leave it out."
            )
        whole_number("folds", self.folds, 1, MOST_FOLDS)
        above_zero("a buffer", self.buffer_km, MOST_KM, "km")
        if self.buffer_km != BUFFER_KM and BUFFER.name not in self.splits:
            raise RequestError(
                f"--buffer-km {self.buffer_km:g} is for the split buffer, which is not run; add "
                "it to --split."
            )

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        above_zero("a budget", self.budget, MOST_BUDGET_S, "seconds")
        if find_model(self.model).family != "kernel":
            able = [name for name, spec in MODELS.items() if spec.family == "kernel"]
            raise RequestError(
                f"--budget picks the rank of models with anchors ({', '.join(able)}); the time of "
                f"{self.model} follows from --preset and --epochs."
            )

    def _settle_model(self) -> None:
        """Choose the model where none was named; refuse one that does not fit the target."""
        counted = TARGETS[self.target].counted
        if self.model == AUTO:
            object.__setattr__(self, "model", COUNT_MODEL if counted else DEFAULT_MODEL)
        if counted != find_model(self.model).counts:
            fitting = "numbers of tests" if counted else "averages"
            raise RequestError(
                f"--target {self.target} needs a model of {fitting}, found --model {self.model}. "
                f"Leave --model out to take {COUNT_MODEL if counted else DEFAULT_MODEL}"
                f"{'.' if counted else ', or map --target tests.'}"
            )
        if counted and (self.question != QUESTIONS[0] or self.tests is not None):
            raise RequestError(
                "--target tests predicts how many tests are made; --for and --tests say what an "
                "average of tests is of. Leave them out."
            )

    @property
    def place(self) -> RegionChoice:
        """The region that is mapped."""
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
        """The thresholds, smallest first; none where tests are counted."""
        return thresholds_of(self.target, self.threshold)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits to run, in the order of `SPLITS`."""
        asked = (self.split or PRESETS[self.preset].split).split(",")
        wanted = {split for name in asked for split in SPLIT_CHOICES[name.strip()]}
        return tuple(name for name in SPLITS if name in wanted)

    @property
    def calibrated(self) -> bool:
        """Whether a tenth of the rows is kept for the repair of intervals."""
        return self.conformal != CONFORMAL_CHOICES[0]
