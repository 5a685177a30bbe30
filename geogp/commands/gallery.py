"""One index page of many finished runs, with thumbnails and key numbers."""

import base64
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import write_text
from geogp.maps.figures.thumbnails import Picture, Thumbnail, draw_thumbnails, read_picture
from geogp.records.run_record import RunMap, RunRecord, given
from geogp.reports.gallery_page import (
    GalleryGroup,
    GalleryRun,
    gallery_html,
    quarters_in_words,
    split_figures,
)
from geogp.reports.words import DEFAULT_ATTRIBUTION, UNITS
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import (
    GRID_FILE,
    RunFolder,
    check_apart,
    read_run_record,
)
from geogp.runs.run_names import RUN_FILE, printable

_PAGE = "index.html"
_LINKS = {"map": "map.html", "report": "report.html"}


@dataclass(frozen=True)
class Gallery:
    """What was written.

    Attributes
    ----------
    page
        The file.
    runs
        Run folders that it shows, in its order.
    skipped
        Folder and reason of each that it does not show.
    """

    page: Path
    runs: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...]


@dataclass(frozen=True)
class _Read:
    path: Path
    run: RunRecord
    shown: GalleryRun
    picture: Picture

    @property
    def kind(self) -> tuple[str, str, str]:
        """Return what decides the group: pictures of one kind share their colours."""
        return self.shown.target, self.shown.service, self.picture.view.label


def make_gallery(
    places: Sequence[Path], *, out: Path = Path("gallery"), listener: ProgressListener | None = None
) -> Gallery:
    """Write index.html, one page with a thumbnail and the key numbers of each run.

    Runs are sorted by target and service, then region, model and name. Pictures of one target and
    service share their colours. Links to maps and reports are relative to the page: move both
    together. The date of a run is that of its run.json.

    Parameters
    ----------
    places
        Run folders, and folders that hold run folders. Of such a folder, runs that are not
        finished or cannot be read are skipped and named on the page, with the reason, and folders
        that are no runs are passed over; what is asked for by itself must be a run.
    out
        Folder for the page, made when absent; no run folder.
    listener
        Is told of each run that is read and of what is skipped.

    Raises
    ------
    RequestError
        A folder is neither a run nor holds one, or `out` is in a run folder.
    DataError
        A file of a run asked for by itself is damaged.
    OutputError
        The page cannot be written.
    """
    listener = listener or ProgressListener()
    found, skipped = _find(places)
    check_apart(out, [path for path, _ in found], "a gallery")
    read: list[_Read] = []
    for path, asked in found:
        listener.stage(f"reading {path}")
        try:
            read.append(_read(path, out))
        except DataError as error:
            if asked:
                raise
            skipped.append((path, str(error)))
    for path, reason in skipped:
        listener.warn(f"{path} is left out: {reason}")
    if not read:
        raise RequestError(
            f"expected finished runs in {', '.join(map(str, places))}, found none that can be "
            "read. Name run folders, or a folder that holds some."
        )
    read.sort(key=lambda one: (*one.kind, one.shown.region, one.shown.model, one.shown.name))
    attributions = sorted({given(one.run.attribution, "") or DEFAULT_ATTRIBUTION for one in read})
    told = [(printable(str(path)), printable(" ".join(reason.split()))) for path, reason in skipped]
    write_text(out / _PAGE, gallery_html(_groups(read), told, attributions))
    return Gallery(out / _PAGE, tuple(one.path for one in read), tuple(skipped))


def _find(places: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[tuple[Path, str]]]:
    """Return each run once, whether it was asked for by itself, and what is skipped."""
    found: dict[Path, tuple[Path, bool]] = {}
    skipped: list[tuple[Path, str]] = []
    for place in places:
        if (place / RUN_FILE).is_file() or RunFolder(place).unfinished.is_dir():
            read_run_record(place)
            found[place.resolve()] = (place, True)
            continue
        if not place.is_dir():
            raise RequestError(f"{place} is no folder; expected a run, or a folder of runs.")
        begun = 0
        for folder in sorted(path for path in _entries(place) if path.is_dir()):
            if (folder / RUN_FILE).is_file():
                found.setdefault(folder.resolve(), (folder, False))
                begun += 1
            elif RunFolder(folder).unfinished.is_dir():
                skipped.append((folder, "the run is not finished; the same command continues it."))
                begun += 1
        if not begun:
            raise RequestError(
                f"{place} is no finished run, and none of the folders in it is one: expected "
                f"{RUN_FILE} in it, or in a folder of it."
            )
    return list(found.values()), skipped


def _entries(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError as error:
        raise RequestError(f"{place} cannot be read ({error.strerror}).") from error


def _read(path: Path, out: Path) -> _Read:
    try:
        _, run = read_run_record(path)
    except RequestError as error:  # test_predictions.parquet is gone
        raise DataError(str(error)) from error
    sha256 = given(given(run.map, RunMap()).grid_sha256, None)
    picture = read_picture(path / GRID_FILE, sha256=sha256)
    try:
        written = datetime.fromtimestamp((path / RUN_FILE).stat().st_mtime, UTC)
    except OSError as error:
        raise OutputError(f"{path / RUN_FILE} is gone: {error}.") from error
    shown = GalleryRun(
        name=printable(path.resolve().name),
        region=run.region_name or run.region,
        service=run.service,
        target=run.target,
        model=run.model,
        preset=run.preset,
        quarters=quarters_in_words(given(run.quarters, [])),
        date=f"{written:%Y-%m-%d}",
        unit=UNITS[run.target][0],
        splits=split_figures(run),
        picture="",
        width=0,
        height=0,
        links=_links(path, out),
    )
    return _Read(path, run, shown, picture)


def _links(path: Path, out: Path) -> tuple[tuple[str, str], ...]:
    try:
        way = Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()
    except ValueError:  # another drive
        way = path.resolve().as_posix()
    return tuple(
        (text, quote(f"./{way}/{name}")) for text, name in _LINKS.items() if (path / name).is_file()
    )


def _groups(read: Sequence[_Read]) -> list[GalleryGroup]:
    groups = []
    kinds = dict.fromkeys(one.kind for one in read)
    times = Counter(kind[:2] for kind in kinds)
    for kind in kinds:
        members = [one for one in read if one.kind == kind]
        drawn = draw_thumbnails([one.picture for one in members])
        groups.append(
            GalleryGroup(
                _title(*kind, alone=times[kind[:2]] == 1),
                drawn.label,
                _address(drawn.bar),
                drawn.ticks,
                tuple(
                    _with_picture(one.shown, image)
                    for one, image in zip(members, drawn.images, strict=True)
                ),
            )
        )
    return groups


def _title(target: str, service: str, label: str, *, alone: bool) -> str:
    """Return target and service; what is shown too where several groups have the same."""
    title = f"{target}, {service}".capitalize()
    return title if alone else f"{title}: {label}"


def _with_picture(shown: GalleryRun, image: Thumbnail) -> GalleryRun:
    return replace(shown, picture=_address(image.png), width=image.width, height=image.height)


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
