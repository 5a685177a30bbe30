"""Requests of the commands that need a finished run."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from geogp.choices import FORCE_TOLD, REQUIRED, check_settings, setting
from geogp.errors import RequestError
from geogp.geodata.points.point_options import TableOptions
from geogp.records.map_settings import DEVICE_CHOICES
from geogp.runs.questions import question_types

_BY_REGION = "A finished run folder, or a region with exactly one run in runs/, such as PR."


@dataclass(frozen=True)
class RunRequest:
    """A request about a finished run; its subclasses raise RequestError for a wrong value."""

    run: Path = setting("A finished run folder.", default=REQUIRED, option="")
    _: KW_ONLY
    device: str = setting("auto, cpu or cuda.", default=DEVICE_CHOICES[0], choices=DEVICE_CHOICES)
    source: str | None = setting(
        "Folder or address of the run's tiles. Default: as stored in run.json."
    )
    boundaries: str | None = setting(
        "Folder or address of the run's boundaries. Default: as stored in run.json."
    )


@dataclass(frozen=True)
class AreasRequest(RunRequest, question_types.AreaQuestion):
    """A request for the level, or the mean of tests, in areas."""


@dataclass(frozen=True)
class ChangeRequest(RunRequest, question_types.ChangeQuestion):
    """A request for the change of the level between two quarters."""


@dataclass(frozen=True)
class NextRequest(RunRequest, question_types.ChoiceQuestion):
    """A request for the tiles to measure next."""

    run: Path = setting(_BY_REGION, default=REQUIRED, option="")


@dataclass(frozen=True)
class ExceedanceRequest(RunRequest, question_types.ThresholdQuestion):
    """A request to compare the level of a run with thresholds."""

    question: str = setting(
        "level: the value around which measurements scatter.", default="level", option="--for"
    )

    def __post_init__(self) -> None:
        if self.question != "level":
            raise RequestError(
                f"--for {self.question} does not work here: averages of tests do not follow a "
                "joint normal distribution. Choose --for level, or map the probability of each "
                "tile with geogp map --threshold."
            )
        super().__post_init__()


@dataclass(frozen=True)
class FiguresRequest(RunRequest):
    """A request for the figures of a run."""

    run: Path = setting(_BY_REGION, default=REQUIRED, option="")
    beside: tuple[Path, ...] = setting(
        "A finished run of another model, to add to the violin plots; repeatable.", default=()
    )
    out: Path | None = setting("Folder of the figures. Default: figures in the run folder.")
    force: bool = setting(FORCE_TOLD, default=False)

    def __post_init__(self) -> None:
        check_settings(self)


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
class AtRequest(RunRequest, question_types.PlaceQuestion, _PlaceChoice, TableOptions):
    """A request for the predictions of a run at places."""

    run: Path = setting(_BY_REGION, default=REQUIRED, option="")
    _: KW_ONLY
    out: Path | None = setting("Also write the answers to this file: .csv or .json.")
    force: bool = setting(FORCE_TOLD, default=False)

    def __post_init__(self) -> None:
        question_types.PlaceQuestion.__post_init__(self)
        TableOptions.__post_init__(self)
        if self.out is not None and self.out.suffix.lower() not in {".csv", ".json"}:
            raise RequestError(
                f"expected --out with a name that ends in .csv or .json, found {self.out}."
            )
