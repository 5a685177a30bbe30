"""What a user asks for: the request of one map, and presets of how hard to try."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from geogp.calibration.conformal import METHODS
from geogp.calibration.splits import BUFFER, BUFFER_KM, MOST_FOLDS, SPLITS
from geogp.errors import RequestError
from geogp.geodata.observations import SERVICES, TARGETS
from geogp.geodata.quadkeys import ZOOM
from geogp.geodata.quarters import quarter_index
from geogp.geodata.thresholds import Threshold, thresholds_of
from geogp.models.catalogue import CATALOGUE, find_spec, with_noise
from geogp.models.noise import NOISES
from geogp.models.objectives import Weights
from geogp.models.placement import Placement
from geogp.models.schedule import Optimiser

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


@dataclass(frozen=True)
class Preset:
    """How hard to try.

    Attributes
    ----------
    h, r
        Width of the network and rank.
    epochs, batch, learning_rate, decay, head_rate, noise_rate, clip,
    average
        The schedule; see `geogp.models.schedule.FitSettings`.
    least_steps
        Steps that an epoch has at least: few rows take a smaller batch. 0 takes the batch as it
        is.
    optimiser
        See `geogp.models.schedule.FitSettings`.
    placement, noise_start
        How inducing points are chosen, and where the noise variance starts.
    weights
        alpha and beta of dPPGP.
    split
        The default of ``--split``.
    refit
        Whether the map is drawn by one more fit on all rows but the validation tenth, rather
        than by the random split's model.
    """

    h: int
    r: int
    epochs: int
    batch: int
    least_steps: int
    learning_rate: float
    decay: Literal["cosine", "constant"]
    placement: Placement
    weights: Weights
    split: str
    refit: bool
    head_rate: float = 1.0
    noise_rate: float | None = None
    clip: float | None = None
    average: float = 0.0
    noise_start: float = 0.5
    optimiser: Optimiser = "adamw"

    def batch_for(self, n: int) -> int:
        """Return the rows per step for n training rows: a power of 2 from 32 to `batch`."""
        if not self.least_steps:
            return min(self.batch, n)
        most = max(32, n // max(self.least_steps, 1))
        return min(self.batch, 1 << (most.bit_length() - 1))

    def learning_rate_for(self, batch: int) -> float:
        """Return the learning rate for a batch: smaller ones are noisier, so as its square root."""
        return float(self.learning_rate * min(1.0, batch / self.batch) ** 0.5)


PRESETS = {
    "quick": Preset(
        h=64,
        r=128,
        epochs=80,
        batch=1024,
        least_steps=100,
        learning_rate=2e-2,
        decay="cosine",
        placement="farthest",
        weights=Weights(alpha=0.01, beta=0.01),
        split="random",
        refit=False,
    ),
    "standard": Preset(
        h=128,
        r=256,
        epochs=150,
        batch=1024,
        least_steps=100,
        learning_rate=1e-2,
        decay="cosine",
        placement="farthest",
        weights=Weights(alpha=0.01, beta=0.01),
        split="both",
        refit=True,
    ),
    # The widths and schedule of Zhu, Yuchi and Xie, appendix B.3.
    "paper": Preset(
        h=256,
        r=1024,
        epochs=400,
        batch=1024,
        least_steps=1,
        learning_rate=1e-3,
        decay="constant",
        placement="uniform",
        weights=Weights(alpha=0.1, beta=0.01),
        split="both",
        refit=True,
        noise_start=1e-2,
    ),
}
"""The presets by name, for the models of the papers."""

FIELD_PRESETS = {
    name: replace(
        preset,
        epochs=epochs,
        learning_rate=1e-2,
        decay="cosine",
        noise_rate=3.0,
        clip=1.0,
        weights=Weights(alpha=0.0, beta=1.0),
    )
    for (name, preset), epochs in zip(PRESETS.items(), (8, 12, 40), strict=True)
}
"""The presets of the field model, whose epochs over blocks of tiles tell more and cost more."""


KERNEL_PRESETS = {
    name: replace(
        preset,
        r=r,
        epochs=epochs,
        batch=batch,
        least_steps=0,
        placement="pivoted",
        optimiser="lbfgs",
        noise_start=0.5,
    )
    for (name, preset), r, epochs, batch in zip(
        PRESETS.items(), (500, 1000, 500), (3, 4, 50), (20_000, 60_000, 1_000_000), strict=True
    )
}
"""The presets of the models whose kernel has a few parameters: an epoch is ten iterations of
L-BFGS on a part of the rows. ``paper`` has the schedule of the mixed-kernel paper, fifty epochs of
Adam at a rate of 1e-3."""

KERNEL_PRESETS["paper"] = replace(KERNEL_PRESETS["paper"], optimiser="adamw")

COUNT_PRESETS = {
    name: replace(
        preset,
        epochs=epochs,
        batch=batch,
        learning_rate=rate,
        decay="cosine",
        clip=1.0,
        weights=Weights(alpha=0.0, beta=1.0),
    )
    for (name, preset), (epochs, batch, rate) in zip(
        PRESETS.items(), ((12, 2048, 1e-2), (20, 2048, 1e-2), (60, 2048, 3e-3)), strict=True
    )
}
"""The presets of models of counts, whose rows are all tiles in all quarters."""

PRESETS_OF = {
    "deep": PRESETS,
    "field": FIELD_PRESETS,
    "kernel": KERNEL_PRESETS,
    "count": COUNT_PRESETS,
}
"""The presets by the family of a model."""


def find_preset(name: str, model: str) -> Preset:
    """Return a preset as it applies to a model.

    Raises
    ------
    RequestError
        No such preset or model.
    """
    _one_of("preset", name, PRESETS)
    return PRESETS_OF[find_spec(model).family][name]


QUESTIONS = ("tile-mean", "single-test", "level")
"""Values of ``--for``: what a map predicts."""


@dataclass(frozen=True)
class MapRequest:
    """Everything that decides the outcome of a map.

    Attributes
    ----------
    region
        Postal code, name or FIPS number.
    source, boundaries
        Where Ookla's files and the Census boundaries are: a folder or an address.
    service, target
        ``mobile`` or ``fixed``; ``download``, ``upload``, ``latency`` or ``tests``.
    quarters
        As `geogp.geodata.quarters.parse_quarters` reads them; None takes all there are.
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
        each it lies in.
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
        takes `geogp.geodata.thresholds.DEFAULTS`.
    self_contained
        Write Leaflet into the interactive page, which then needs no network but for a base map.
    assets
        A folder that holds Leaflet; None takes it from the CDN through the cache.

    Raises
    ------
    RequestError
        A value is not among those allowed (the nearest ones are given), or the model cannot have
        the noise.
    """

    region: str
    source: str
    boundaries: str
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
    assets: Path | None = None

    def __post_init__(self) -> None:
        _one_of("service", self.service, SERVICES)
        _one_of("target", self.target, TARGETS)
        self._settle_model()
        _one_of("noise", self.noise, NOISES)
        with_noise(find_spec(self.model), self.noise)
        self._check_budget()
        _one_of("preset", self.preset, PRESETS)
        _one_of("inputs", self.inputs, INPUT_CHOICES)
        _one_of("device", self.device, DEVICE_CHOICES)
        for name in [] if self.split is None else self.split.split(","):
            _one_of("split", name.strip(), SPLIT_CHOICES)
        self._check_validation()
        _one_of("question", self.question, QUESTIONS)
        if self.at is not None:
            quarter_index(self.at)
        thresholds_of(self.target, self.threshold)
        if self.tests is not None and self.tests < 1:
            raise RequestError(f"expected 1 test or more, found {self.tests}.")
        if self.tests is not None and self.question != "tile-mean":
            raise RequestError(
                f"--tests {self.tests} says how many tests a tile mean averages; --for "
                f"{self.question} has no use for it."
            )
        if not 1 <= self.zoom <= ZOOM:
            raise RequestError(f"expected a zoom from 1 to {ZOOM}, found {self.zoom}.")
        if self.epochs is not None and self.epochs < 1:
            raise RequestError(f"expected 1 epoch or more, found {self.epochs}.")
        if self.seed < 0:
            raise RequestError(f"expected a seed of 0 or more, found {self.seed}.")
        if not 0 < self.far_km < float("inf"):
            raise RequestError(f"expected a distance above 0 km, found {self.far_km:g}.")
        if self.assets is not None and not self.self_contained:
            raise RequestError(
                f"--assets {self.assets} is where --self-contained takes Leaflet from; add that."
            )

    def _check_validation(self) -> None:
        _one_of("repair", self.conformal, CONFORMAL_CHOICES)
        if self.calibrated and TARGETS[self.target].counted:
            raise RequestError(
                f"--conformal {self.conformal} repairs intervals of a speed or a latency, not of "
                "whole numbers of tests. Leave it out."
            )
        if not 1 <= self.folds <= MOST_FOLDS:
            raise RequestError(f"expected 1 to {MOST_FOLDS} folds, found {self.folds}.")
        if not 0 < self.buffer_km < float("inf"):
            raise RequestError(f"expected a buffer above 0 km, found {self.buffer_km:g}.")
        if self.buffer_km != BUFFER_KM and BUFFER.name not in self.splits:
            raise RequestError(
                f"--buffer-km {self.buffer_km:g} is for the split buffer, which is not run; add "
                "it to --split."
            )

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        if not 0 < self.budget < float("inf"):
            raise RequestError(f"expected a budget above 0 seconds, found {self.budget}.")
        if find_spec(self.model).family != "kernel":
            able = [name for name, spec in CATALOGUE.items() if spec.family == "kernel"]
            raise RequestError(
                f"--budget picks the rank of models with anchors ({', '.join(able)}); the time of "
                f"{self.model} follows from --preset and --epochs."
            )

    def _settle_model(self) -> None:
        """Choose the model where none was named; refuse one that does not fit the target."""
        counted = TARGETS[self.target].counted
        if self.model == AUTO:
            object.__setattr__(self, "model", COUNT_MODEL if counted else DEFAULT_MODEL)
        if counted != find_spec(self.model).counts:
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


def _one_of(what: str, found: str, allowed: Iterable[str]) -> None:
    names = list(allowed)
    if found not in names:
        near = difflib.get_close_matches(found, names, n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise RequestError(f"unknown {what} {found!r}; choose one of {', '.join(names)}.{hint}")
