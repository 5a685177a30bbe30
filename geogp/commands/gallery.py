"""An index page for many finished runs, with thumbnails and key numbers."""

import base64
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.split_names import SPLITS
from geogp.files import output_errors
from geogp.geodata.places.stratum_names import ALL, STRATA
from geogp.geodata.tiles.targets import JOINED, TARGETS, find_target
from geogp.maps.figures.thumbnails import Picture, draw_thumbnails, read_picture
from geogp.records.run_record import RunMap, RunRecord, given
from geogp.reports.rendering import html_page
from geogp.reports.words import DEFAULT_ATTRIBUTION, units_of
from geogp.runs.output_files import OutputFiles
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import GRID_FILE, RunFolder, read_run_record
from geogp.runs.run_names import PAGES, RUN_FILE, near_runs, printable

_PAGE = "index.html"
_UNFINISHED = "the run is not finished; to finish the run, repeat the command that started it."


@dataclass(frozen=True)
class Gallery:
    """The page of a gallery, its run folders in order, and skipped folders with reasons."""

    page: Path
    runs: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...]


@dataclass(frozen=True)
class _ShownRun:
    """The facts about a run that the page shows."""

    path: Path
    run: RunRecord
    date: str
    picture: Picture
    links: dict[str, str]

    @property
    def name(self) -> str:
        return printable(self.path.resolve().name)

    @property
    def region(self) -> str:
        return self.run.region_name or self.run.region

    @property
    def provider(self) -> str | None:
        """The provider that the map shows; None for tests of all providers, and for tiles."""
        first = next(iter(given(self.run.providers, [])), None)
        single = self.run.settings.data.provider
        return first.name if first else single

    @property
    def kind(self) -> tuple[str, str, str]:
        """Return the key of the run's group; the pictures of a group have the same colour scale."""
        return self.run.target, self.run.service, self.picture.view.label

    @property
    def splits(self) -> list[dict[str, Any]]:
        """Return the key numbers of each split; strata have coverage, or accuracy for classes."""
        baseline = given(self.run.baseline, {})
        share = "accuracy" if find_target(self.run.target).classes else "coverage_95"
        return [
            {
                "title": SPLITS[split].title,
                "n": strata[ALL].n,
                "gain": strata[ALL].gain(baseline.get(split, {}).get(ALL)),
                "crps": getattr(strata[ALL], "crps", None),
                **{name: getattr(strata.get(name), share, None) for name in STRATA},
            }
            for split, strata in self.run.metrics.items()
        ]


_UNITS = {name: units_of(name) for name in (*TARGETS, *JOINED) if not find_target(name).classes}


def make_gallery(
    places: Sequence[Path],
    *,
    out: Path = Path("gallery"),
    files: Sequence[str] = (),
    force: bool = False,
    listener: ProgressListener | None = None,
) -> Gallery:
    """Write index.html, one page with a thumbnail and the key numbers of each run.

    `places` are run folders, and folders that contain run folders. In a folder that contains run
    folders, unfinished or unreadable runs are skipped, and the page states the reason. Links to
    maps and reports are relative. The page also has links to `files`, the names of files beside
    the page with the data of all maps.

    Raises RequestError if a folder has no run, or `out` has the name of a page, and the errors of
    `OutputFiles`. Raises DataError if a file of a run folder in `places` is damaged, and
    OutputError if the page cannot be written.
    """
    listener = listener or ProgressListener()
    if out.suffix.lower() in {".html", ".htm"}:
        raise RequestError(
            f"expected --out with a folder, in which geogp writes {_PAGE}, found {out}, the name "
            f"of a page. Give a folder, such as --out {out.with_suffix('')}."
        )
    runs, skipped = _find(places)
    page = out / _PAGE
    output = OutputFiles("gallery", [page], runs=[path for path, _ in runs], force=force)
    read: list[_ShownRun] = []
    for path, chosen in runs:
        listener.stage(f"reading {path}")
        try:
            read.append(_read(path, out))
        except DataError as error:
            if chosen:
                raise
            skipped.append((path, str(error)))
    for path, reason in skipped:
        listener.warn(f"{path} is left out: {reason}")
    if not read:
        raise RequestError(
            f"expected finished runs in {', '.join(map(str, places))}, found none that can be "
            "read. Give run folders, or a folder that contains run folders."
        )
    read.sort(key=lambda shown: (*shown.kind, shown.region, shown.run.model, shown.name))
    attributions = sorted(
        {given(shown.run.attribution, "") or DEFAULT_ATTRIBUTION for shown in read}
    )
    left_out = [
        (printable(str(path)), printable(" ".join(reason.split()))) for path, reason in skipped
    ]
    content = {"groups": _groups(read), "skipped": left_out, "attributions": attributions}
    more = {"count": len(read), "units": _UNITS, "files": files}
    output.write(page, html_page("gallery", content | more).encode())
    return Gallery(page, tuple(shown.path for shown in read), tuple(skipped))


def _find(places: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[tuple[Path, str]]]:
    """Return the runs and the skipped runs; true marks a run whose folder itself is in `places`."""
    runs: dict[Path, tuple[Path, bool]] = {}
    skipped: list[tuple[Path, str]] = []
    for place in places:
        if _is_complete(place) or _is_begun(place):
            read_run_record(place)
            runs[place.resolve()] = (place, True)
            continue
        try:
            folders = sorted(path for path in place.iterdir() if path.is_dir())
        except OSError as error:
            raise RequestError(
                f"expected a run folder, or a folder that contains run folders, found {place} "
                f"({error.strerror}).{near_runs(place)}"
            ) from error
        complete = list(filter(_is_complete, folders))
        begun = [folder for folder in folders if folder not in complete and _is_begun(folder)]
        if not complete and not begun:
            raise RequestError(
                f"{place} is not a finished run, and contains no finished run: expected {RUN_FILE} "
                "in this folder or in one of its subfolders."
            )
        for folder in complete:
            runs.setdefault(folder.resolve(), (folder, False))
        skipped += [(folder, _UNFINISHED) for folder in begun]
    return list(runs.values()), skipped


def _is_complete(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file()


def _is_begun(folder: Path) -> bool:
    return RunFolder(folder).unfinished.is_dir()


def _read(path: Path, out: Path) -> _ShownRun:
    try:
        _, run = read_run_record(path)
    except RequestError as error:  # test_predictions.parquet is gone
        raise DataError(str(error)) from error
    sha256 = given(given(run.map, RunMap()).grid_sha256, None)
    picture = read_picture(path / GRID_FILE, sha256=sha256)
    with output_errors(path / RUN_FILE):
        written = datetime.fromtimestamp((path / RUN_FILE).stat().st_mtime, UTC)
    return _ShownRun(path, run, f"{written:%Y-%m-%d}", picture, _links(path, out))


def _links(path: Path, out: Path) -> dict[str, str]:
    try:
        way = Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()
    except ValueError:  # the page is on another drive
        way = path.resolve().as_posix()
    return {
        text: quote(f"./{way}/{name}") for text, name in PAGES.items() if (path / name).is_file()
    }


def _groups(read: Sequence[_ShownRun]) -> list[dict[str, Any]]:
    """Return the runs of each group, with their pictures and the colour scale of the pictures."""
    kinds = dict.fromkeys(shown.kind for shown in read)
    times = Counter(kind[:2] for kind in kinds)
    groups = []
    for kind in kinds:
        runs = [shown for shown in read if shown.kind == kind]
        drawn = draw_thumbnails([shown.picture for shown in runs])
        title = f"{kind[0]}, {kind[1]}".capitalize()
        groups.append(
            {
                # Add the view to the title if several groups have the same target and service.
                "title": title if times[kind[:2]] == 1 else f"{title}: {drawn.label}",
                "label": drawn.label,
                "bar": _address(drawn.bar),
                "ticks": drawn.ticks,
                "arrows": drawn.arrows,
                "runs": list(zip(runs, map(_address, drawn.images), strict=True)),
            }
        )
    return groups


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
