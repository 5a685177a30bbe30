"""The first page of a report: sentences for readers who decide, and the best and worst areas."""

from dataclasses import dataclass, replace
from typing import Any

from geogp.geodata.tiles.targets import find_target
from geogp.reports.beside import AreaMean, Beside, RankedAreas
from geogp.reports.place_checks import PlaceCheck
from geogp.reports.rendering import say_labelled
from geogp.reports.split_report import SplitReport

LONGEST = 3
"""Largest number of best areas, and of worst areas."""


@dataclass(frozen=True)
class Summary:
    """The first page of a report.

    `sentences` has sentences by label: what the map says of the place, what changed, and what not
    to rely on; a sentence about which nothing is known is left out. `areas` is the answer with the
    areas, the best one first, or None without such an answer.
    """

    sentences: dict[str, str]
    areas: RankedAreas | None

    @property
    def extremes(self) -> dict[str, list[AreaMean]]:
        """The best and the worst areas, by these words; empty if there are fewer than two."""
        means = self.areas.means if self.areas else []
        count = min(LONGEST, len(means) // 2)
        return {"Best": means[:count], "Worst": means[-count:]} if count else {}


def summary_of(
    target: str,
    split: SplitReport,
    far: dict[str, Any] | None,
    beside: Beside,
    places: list[PlaceCheck],
) -> Summary:
    """Return the first page, from a run's first split and the answers beside its report.

    The first page computes nothing: all numbers come from the split and from the answers. Of
    several answers, those by county come first, then those of the latest quarter, then the changes
    over the longest time. `far` is as in `far_from_data`, and `places` as in `place_checks`.
    """
    ranked = [one.ranked for one in beside.answers if one.ranked]
    changes = [one.changed for one in beside.answers if one.changed]
    areas = max(ranked, key=lambda one: (one.by == "county", one.at), default=None)
    changed = min(
        (one for one in changes if one.end == max(each.end for each in changes)),
        key=lambda one: (one.by != "county", one.start),
        default=None,
    )
    if areas:
        down = not find_target(target).low_is_good
        order = sorted(areas.means, key=lambda one: one.value, reverse=down)
        areas = replace(areas, means=order)
    about = split, far, beside.subject, areas, changed, places
    sentences = say_labelled("summary", "sentences", *about)
    return Summary(sentences, areas)
