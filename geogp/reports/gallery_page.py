"""The index page of many runs: a picture and the key numbers of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geogp.errors import DataError
from geogp.evaluation.splits.split_names import SPLITS
from geogp.reports import words
from geogp.reports.rendering import html_page


@dataclass(frozen=True)
class SplitFigures:
    """The key numbers of one run on one split.

    Attributes
    ----------
    title
        The split, in words.
    n
        Number of test rows.
    gain
        Log score of the baseline less that of the run: above 0 is better than the baseline.
    crps
        Mean CRPS, in `GalleryRun.unit`.
    urban, rural
        Share of test rows inside the 95 % interval; None where there are no such rows.
    """

    title: str
    n: int
    gain: float | None
    crps: float | None
    urban: float | None
    rural: float | None


@dataclass(frozen=True)
class GalleryRun:
    """What the page tells of one run.

    Attributes
    ----------
    name
        Of its folder.
    region, service, target, model, preset, quarters, date, unit
        In words; `unit` is that of CRPS.
    splits
        Its key numbers.
    picture, width, height
        Thumbnail as a data address, and its size in pixels.
    links
        Text and address, relative to the page, of its map and report where there are any.
    """

    name: str
    region: str
    service: str
    target: str
    model: str
    preset: str
    quarters: str
    date: str
    unit: str
    splits: tuple[SplitFigures, ...]
    picture: str
    width: int
    height: int
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GalleryGroup:
    """Runs of one target and service that show the same, whose pictures share their colours.

    Attributes
    ----------
    title
        Target and service, and what is shown where other groups have the same.
    label, bar, ticks
        The scale: what is shown, its colours as a data address, places (percent) and texts.
    runs
        In the order shown.
    """

    title: str
    label: str
    bar: str
    ticks: tuple[tuple[float, str], ...]
    runs: tuple[GalleryRun, ...]


def gallery_html(
    groups: Sequence[GalleryGroup], skipped: Sequence[tuple[str, str]], attributions: Sequence[str]
) -> str:
    """Return the page, which needs no other file and no network but where its links lead.

    Parameters
    ----------
    groups
        What is shown.
    skipped
        Folder and reason of what was not taken.
    attributions
        Whose data the runs are made from.
    """
    return html_page(
        "gallery",
        {
            "groups": groups,
            "skipped": skipped,
            "attributions": attributions,
            "count": sum(len(group.runs) for group in groups),
            "words": words,
        },
    )


def split_figures(run: dict[str, Any]) -> tuple[SplitFigures, ...]:
    """Return the key numbers that run.json holds.

    Raises
    ------
    DataError
        They are missing, or no numbers.
    """
    try:
        return tuple(
            _figures(split, found, run["baseline"].get(split, {}))
            for split, found in run["metrics"].items()
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "expected metrics and baseline by split and stratum in run.json, found something "
            f"else ({error!r}). Run `geogp map` again with --fresh."
        ) from error


def quarters_in_words(quarters: Sequence[str]) -> str:
    """Return the first and last of quarters, and how many there are.

    Examples
    --------
    >>> quarters_in_words(["2019Q1", "2019Q2", "2020Q1"])
    '2019Q1 to 2020Q1 (3)'
    """
    if len(quarters) < 2:
        return "".join(quarters) or words.MISSING
    return f"{min(quarters)} to {max(quarters)} ({len(quarters)})"


def _figures(split: str, found: dict[str, Any], baseline: dict[str, Any]) -> SplitFigures:
    own = _number(found["all"]["nll"])
    other = _number(baseline["all"]["nll"]) if "all" in baseline else None
    return SplitFigures(
        SPLITS[split].title if split in SPLITS else split,
        int(found["all"]["n"]),
        None if own is None or other is None else other - own,
        _number(found["all"]["crps"]),
        *(
            _number(found[stratum]["coverage_95"]) if found.get(stratum, {"n": 0})["n"] else None
            for stratum in ("urban", "rural")
        ),
    )


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)
