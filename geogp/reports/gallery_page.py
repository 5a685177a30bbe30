"""The index page of many runs: a picture and the key numbers of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from geogp.evaluation.splits.split_names import SPLITS
from geogp.geodata.places.region import STRATA
from geogp.geodata.places.stratum_column import ALL
from geogp.records.run_record import RunRecord, Strata, given
from geogp.reports.rendering import html_page
from geogp.reports.words import MISSING


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
        },
    )


def split_figures(run: RunRecord) -> tuple[SplitFigures, ...]:
    """Return the key numbers that run.json holds."""
    baseline = given(run.baseline, {})
    return tuple(
        _figures(split, found, baseline.get(split, {})) for split, found in run.metrics.items()
    )


def quarters_in_words(quarters: Sequence[str]) -> str:
    """Return the first and last of quarters, and how many there are.

    Examples
    --------
    >>> quarters_in_words(["2019Q1", "2019Q2", "2020Q1"])
    '2019Q1 to 2020Q1 (3)'
    """
    if len(quarters) < 2:
        return "".join(quarters) or MISSING
    return f"{min(quarters)} to {max(quarters)} ({len(quarters)})"


def _figures(split: str, found: Strata, baseline: Strata) -> SplitFigures:
    own, other = found[ALL].nll, baseline[ALL].nll if ALL in baseline else None
    return SplitFigures(
        SPLITS[split].title,
        found[ALL].n,
        None if own is None or other is None else other - own,
        found[ALL].crps,
        *(found[stratum].coverage_95 if stratum in found else None for stratum in STRATA),
    )
