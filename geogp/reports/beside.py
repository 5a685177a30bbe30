"""What the report of a run shows of the files beside it: pictures, the page, and answers."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from geogp.errors import DataError
from geogp.maps.target_quantities import quantity_of

_WIDEST = 1000
"""Largest width of a picture in a page, in pixels."""


@dataclass(frozen=True)
class AreaMean:
    """The mean level of an area, the ends of its 95 % interval, and those of its rank or None.

    `median` is the mean of the map's medians in the area, or None if it is not known.
    """

    area: str
    value: float
    lower: float
    upper: float
    ranks: tuple[int, int] | None
    median: float | None = None


@dataclass(frozen=True)
class RankedAreas:
    """The mean levels of an answer's areas, by kind of area, in one quarter.

    Areas that are mostly far from data are left out; `far` is their number. `within` is half the
    median width of the intervals in words, such as ``12 %``. `mark` is as in `ShownAnswer`. The map
    predicts `predicted`, in the plural.
    """

    mark: str
    by: str
    at: str
    unit: str
    within: str
    far: int
    means: list[AreaMean]
    predicted: str = ""


@dataclass(frozen=True)
class Changed:
    """How many areas rose and fell between two quarters, in words, by kind of area."""

    by: str
    start: str
    end: str
    text: str


@dataclass(frozen=True)
class ShownAnswer:
    """An answer: its title, sentences, table as texts, and names of files in the run folder.

    `mark` names the answer's part of the report, for links; `picture` is a PNG file, or empty.
    `ranked` and `changed` are what an answer about areas or changes says on the first page.
    """

    mark: str
    title: str
    notes: list[str]
    head: list[str]
    rows: list[list[str]]
    files: list[str]
    picture: str
    ranked: RankedAreas | None = None
    changed: Changed | None = None


@dataclass(frozen=True)
class Beside:
    """What lies in the folder of a report, whose map shows `subject`.

    `map_picture` is the file of the main picture of the map, or empty; `with_map` says whether the
    folder has the interactive page.
    """

    folder: Path = Path()
    subject: str = ""
    map_picture: str = ""
    with_map: bool = False
    answers: tuple[ShownAnswer, ...] = ()

    @classmethod
    def in_folder(
        cls, folder: Path, target: str, answers: tuple[ShownAnswer, ...] = ()
    ) -> "Beside":
        """Return what lies in a run folder, and the answers in it."""
        about = quantity_of(target)
        view = "expected" if about.counted else about.suffix if about.classes else "median"
        picture = f"{view}.png"
        return cls(
            folder,
            about.subject,
            picture if (folder / picture).is_file() else "",
            (folder / "map.html").is_file(),
            answers,
        )

    def source(self, name: str) -> str:
        """Return a PNG file as a ``data:`` URL of a picture of few bytes.

        Raises DataError if the file is damaged.
        """
        path, stream = self.folder / name, io.BytesIO()
        try:
            with Image.open(path, formats=["PNG"]) as image:
                small = image.convert("RGB")
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be read as a picture ({error}). Delete it.") from error
        small.thumbnail((_WIDEST, 4 * _WIDEST))
        small.save(stream, "WEBP", quality=80)
        return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode()


NOTHING_BESIDE = Beside()
"""For a report without a folder."""
