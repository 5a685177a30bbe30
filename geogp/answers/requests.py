"""Requests about a finished run: settings of answers, without the code that computes them."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from geogp.choices import (
    FORCE_TOLD,
    MAX_DRAWS,
    MAX_KM,
    MAX_SEED,
    MAX_TESTS,
    MIN_DRAWS,
    REQUIRED,
    check_sample,
    check_settings,
    setting,
)
from geogp.errors import RequestError
from geogp.geodata.places.area_kinds import AREAS_TOLD, BY_COUNTY, POLYGONS_TOLD, check_by
from geogp.geodata.places.file_choice import crs_for
from geogp.geodata.points.point_options import TableOptions
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.models.options import CANDIDATES
from geogp.records.map_settings import DEVICE_CHOICES, MAX_TILES
from geogp.records.record_names import QUESTIONS

ALL_QUARTERS = "all"
"""Value of ``--quarters`` for all quarters with data."""

BY_REGION = "A finished run folder, or a region with exactly one run in runs/, such as PR."
"""Help text of a run that may be named by its region."""


@dataclass(frozen=True)
class RunRequest:
    """A request about a finished run.

    Raises
    ------
    RequestError
        A value is not allowed, or two values exclude each other.
    """

    run: Path = setting("A finished run folder.", default=REQUIRED, option="")
    _: KW_ONLY
    target: str | None = setting("One target of a run of several. Default: the first.")
    device: str = setting("auto, cpu or cuda.", default=DEVICE_CHOICES[0], choices=DEVICE_CHOICES)
    source: str | None = setting(
        "Folder or address of the run's tiles. Default: as stored in run.json."
    )
    boundaries: str | None = setting(
        "Folder or address of the run's boundaries. Default: as stored in run.json."
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class _AreaRequest(RunRequest):
    """Settings common to requests about areas."""

    _: KW_ONLY
    seed: int = setting(
        "Random seed of the draws.", default=0, noun="a seed", least=0, most=MAX_SEED
    )
    crs: str | None = setting(
        "Code of the coordinate system of the file of --by, such as EPSG:32161, if the file states "
        "none."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        crs_for(Path(), self.crs)  # raises RequestError for a wrong code


@dataclass(frozen=True)
class _QuarterRequest(_AreaRequest):
    """Settings common to requests about one quarter."""

    _: KW_ONLY
    at: str | None = setting("Quarter. Default: the quarter of the run's map.")


@dataclass(frozen=True)
class _WeightedRequest(_QuarterRequest):
    """Settings common to requests about areas, whose tiles may have weights."""

    _: KW_ONLY
    weights: str | None = setting(
        "Also weight the tiles, for example by people: a GeoTIFF of a density, a file of points "
        "with a column value, a column of the file of --by, or a column of tiles.parquet."
    )


@dataclass(frozen=True)
class AreasRequest(_WeightedRequest):
    """A request for the level, or the mean of tests, in areas."""

    _: KW_ONLY
    by: str = setting(f"Areas: {AREAS_TOLD}.", default=BY_COUNTY)
    question: str = setting(
        "level (without noise), or tile-mean (averages of --tests tests, with noise).",
        default="level",
        noun="--for",
        choices=("level", "tile-mean"),
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: the region's median.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices for the tests of a tile mean. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    draws: int = setting(
        "Number of posterior draws for medians, arithmetic means and ranks.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )
    by_provider: bool = setting(
        "Compare the levels of all providers of a run that geogp map --by-provider made.",
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by(self.by)
        check_sample(self.tests, self.devices)
        others = self.weights, self.tests, self.devices
        if self.by_provider and (self.question != "level" or others != (None, None, None)):
            raise RequestError(
                "--by-provider compares levels: leave out --for, --weights, --tests and --devices."
            )


@dataclass(frozen=True)
class ChangeRequest(_AreaRequest):
    """A request for the change of the level between two quarters."""

    _: KW_ONLY
    start: str = setting("The first quarter, such as 2021Q4.", default=REQUIRED, option="--from")
    end: str | None = setting(
        "The last quarter. Default: the quarter of the run's map.", option="--to"
    )
    by: str = setting(f"Areas: {AREAS_TOLD}.", default=BY_COUNTY)
    at_least: float | None = setting(
        "Also give the probability that the level rose by at least this many per cent, or for a "
        "signal by this many dB.",
        noun="--at-least",
        positive=True,
        most=100_000,
        unit="% or dB",
    )
    draws: int = setting(
        "Number of posterior draws for the uncertainty of single tiles.",
        default=400,
        least=MIN_DRAWS,
        most=MAX_DRAWS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by(self.by)


@dataclass(frozen=True)
class NextRequest(_QuarterRequest):
    """A request for the tiles to measure next."""

    run: Path = setting(BY_REGION, default=REQUIRED, option="")
    _: KW_ONLY
    tiles: int = setting("Number of tiles to choose.", default=50, least=1, most=MAX_TILES)
    among: str | None = setting(
        "Reduce only the variance in this stratum: urban, rural or your own. Default: all."
    )
    within: str | None = setting("Reduce only the variance in this county or area.", option="--in")
    by: str = setting(f"Kind of area that --in names: {POLYGONS_TOLD}.", default=BY_COUNTY)
    tests: int | None = setting(
        "Number of tests in each new measurement. Default: the region's median.",
        least=1,
        most=MAX_TESTS,
    )
    devices: int | None = setting(
        "Number of devices that made these tests. Default: the region's typical number.",
        least=1,
        most=MAX_TESTS,
    )
    candidates: int = setting(
        "Largest number of tiles whose reduction of variance is computed exactly.",
        default=CANDIDATES,
        least=1,
        most=2 * MAX_TILES,
    )
    seed: int = setting(
        "Random seed of the estimates that choose candidates.",
        default=0,
        noun="a seed",
        least=0,
        most=MAX_SEED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by(self.by, told=POLYGONS_TOLD)
        check_sample(self.tests, self.devices)
        if self.by != BY_COUNTY and self.within is None:
            raise RequestError(
                f"--by {self.by} names a kind of area. Choose an area of this kind with --in."
            )
        if self.candidates < 2 * self.tiles:
            raise RequestError(
                f"expected {2 * self.tiles} candidates or more for {self.tiles} tiles, found "
                f"{self.candidates}. Increase --candidates, or choose fewer tiles."
            )


@dataclass(frozen=True)
class ExceedanceRequest(_WeightedRequest):
    """A request to compare the level of a run with thresholds."""

    _: KW_ONLY
    threshold: tuple[float, ...] | None = setting(
        "Threshold in the unit of the run's target. Default: the thresholds of the run's map."
    )
    tier: tuple[str, ...] | None = setting(
        "Tier of a run of several targets, such as 7/1 or 100/20/100ms, instead of thresholds."
    )
    by: str | None = setting(f"Also report shares of areas: {AREAS_TOLD}.")
    draws: int = setting(
        "Number of posterior draws, 200 or more.", default=500, least=MIN_DRAWS, most=MAX_DRAWS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by is not None:
            check_by(self.by)
        if self.tier is not None and (self.threshold, self.target) != (None, None):
            raise RequestError(
                "--tier is of all targets together: leave out --threshold and --target."
            )


@dataclass(frozen=True)
class VerifyRequest(RunRequest):
    """A request to score a run on quarters after those to which it was fitted."""

    _: KW_ONLY
    quarters: str = setting(
        "Quarters after those of the run: 2024Q1, 2024Q1..2024Q4, or several with commas.",
        default=REQUIRED,
        option="--quarters",
    )
    points: str | None = setting(
        "For a run of your own tests: a file of later tests with the same columns."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_quarters(self.quarters)


@dataclass(frozen=True, kw_only=True)
class PlaceQuestion:
    """Settings for the predictions at places; raises RequestError as `RunRequest` does."""

    quarters: str | None = setting(
        "Quarters: all, 2022Q3, 2019Q1..2023Q4, or several with commas. Default: the quarter of "
        "the run's map."
    )
    question: str | None = setting(
        "What to predict: tile-mean, single-test or level. Default: as the run's map.",
        noun="--for",
        choices=QUESTIONS,
        option="--for",
    )
    tests: int | None = setting(
        "Number of tests in a tile mean. Default: as in the run's map.", least=1, most=MAX_TESTS
    )
    devices: int | None = setting(
        "Number of devices that made these tests. Default: as in the run's map, or typical.",
        least=1,
        most=MAX_TESTS,
    )
    threshold: tuple[float, ...] | None = setting(
        "Threshold in the unit of the run's target. Default: the thresholds of the run's map."
    )
    tier: tuple[str, ...] | None = setting(
        "Tier of a run of several targets, such as 7/1. Default: the tiers of the run's map."
    )
    near_km: float = setting(
        "Count the tests within this distance in km.",
        default=2.0,
        noun="a distance",
        positive=True,
        most=MAX_KM,
        unit="km",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        check_sample(self.tests, self.devices)
        if self.quarters is not None and self.quarters != ALL_QUARTERS:
            parse_quarters(self.quarters)


@dataclass(frozen=True)
class FiguresRequest(RunRequest):
    """A request for the figures of a run."""

    run: Path = setting(BY_REGION, default=REQUIRED, option="")
    beside: tuple[Path, ...] = setting(
        "A finished run of another model, to add to the violin plots.", default=()
    )
    out: Path | None = setting("Folder of the figures. Default: figures in the run folder.")
    force: bool = setting(FORCE_TOLD, default=False)


@dataclass(frozen=True, kw_only=True)
class _PlaceChoice:
    """The places of an `AtRequest`; a class of its own, so that the places come before the run."""

    place: str = setting(
        "A place as LATITUDE,LONGITUDE in degrees, such as 18.2,-66.4; or a file of places (CSV, "
        "Parquet, GeoPackage).",
        default=REQUIRED,
        option="",
    )


@dataclass(frozen=True)
class AtRequest(RunRequest, PlaceQuestion, _PlaceChoice, TableOptions):
    """A request for the predictions of a run at places."""

    run: Path = setting(BY_REGION, default=REQUIRED, option="")
    _: KW_ONLY
    out: Path | None = setting("Also write the answers to this file: .csv or .json.")
    force: bool = setting(FORCE_TOLD, default=False)

    def __post_init__(self) -> None:
        PlaceQuestion.__post_init__(self)
        TableOptions.__post_init__(self)
        if self.out is not None and self.out.suffix.lower() not in {".csv", ".json"}:
            raise RequestError(
                f"expected --out with a name that ends in .csv or .json, found {self.out}."
            )
