"""What commands on a finished run are asked, known without what answers them."""

from dataclasses import dataclass, field
from pathlib import Path

from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.runs.questions.question_types import AreaQuestion, ChoiceQuestion, ThresholdQuestion
from geogp.runs.run_places import AS_TOLD, ReadFrom
from geogp.runs.settings import DEVICE_CHOICES

AREA_QUESTIONS = ("level", "tile-mean")
"""Values of ``--for``: what the figure and the printed table show."""

QUESTION = "level"
"""The value of ``--for``."""


@dataclass(frozen=True)
class RunRequest:
    """Which finished run is asked.

    Attributes
    ----------
    run
        Its folder.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Where the run's tiles and boundaries are, where not as its run.json says.

    Raises
    ------
    RequestError
        An unknown device.
    """

    run: Path
    device: str = field(default=DEVICE_CHOICES[0], kw_only=True)
    read_from: ReadFrom = field(default=AS_TOLD, kw_only=True)

    def __post_init__(self) -> None:
        one_of("device", self.device, DEVICE_CHOICES)


@dataclass(frozen=True)
class AreasRequest(RunRequest, AreaQuestion):
    """What to say of areas, from which run, and what to show of it.

    Attributes
    ----------
    question
        ``level``, what measurements scatter around, or ``tile-mean``, the mean over the tiles of
        one average of `tests` tests each, with its noise.

    Raises
    ------
    RequestError
        An unknown question, or a number out of range.
    """

    question: str = AREA_QUESTIONS[0]

    def __post_init__(self) -> None:
        RunRequest.__post_init__(self)
        AreaQuestion.__post_init__(self)
        if self.question not in AREA_QUESTIONS:
            raise RequestError(
                f"unknown --for {self.question!r}; choose one of {', '.join(AREA_QUESTIONS)}."
            )


@dataclass(frozen=True)
class NextRequest(RunRequest, ChoiceQuestion):
    """Which tiles to choose, from which run."""

    def __post_init__(self) -> None:
        RunRequest.__post_init__(self)
        ChoiceQuestion.__post_init__(self)


@dataclass(frozen=True)
class ExceedanceRequest(RunRequest, ThresholdQuestion):
    """Which thresholds to compare the level of which run with.

    Attributes
    ----------
    question
        ``level``.

    Raises
    ------
    RequestError
        Another question, or a number out of range.
    """

    question: str = QUESTION

    def __post_init__(self) -> None:
        if self.question != QUESTION:
            raise RequestError(
                f"--for {self.question} is not answered jointly: averages of tests follow other "
                "laws than the normal one. Choose --for level, or map probabilities tile by tile "
                "with geogp map --threshold."
            )
        RunRequest.__post_init__(self)
        ThresholdQuestion.__post_init__(self)


@dataclass(frozen=True)
class FiguresRequest(RunRequest):
    """Of which run to draw figures.

    Attributes
    ----------
    beside
        Other finished runs of the same region, service and target, for the violins; none for a run
        that maps numbers of tests.
    out
        Where the figures go; None takes the folder ``figures`` of the run.
    """

    beside: tuple[Path, ...] = ()
    out: Path | None = None
