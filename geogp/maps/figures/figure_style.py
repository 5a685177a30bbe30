"""The style of all figures for papers, readable in print, in grey and by colour-blind readers."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl

from geogp.geodata.places.stratum_names import marked

WIDTH = 7.2
"""Width of a figure in inches: the width of a page of text."""

SIGNED_PALETTE = "cividis"
"""Palette for positive and negative values, whose ends also differ in grey. A line marks 0."""

TEXT, SMALL = 8, 7
"""Font sizes in points."""

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # part of matplotlib, so it is the same on every machine
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.top": True,
    "axes.spines.right": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": TEXT,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Mark:
    """How figures draw a stratum; strata differ by line, marker and hatch, not only by colour.

    `colour` and `dashes` are for lines, `fill` and `hatch` for areas, `marker` for points. In grey
    prints, urban areas are darker than rural areas.
    """

    colour: str
    fill: str
    dashes: str
    marker: str
    hatch: str


MARKS = (
    Mark("#0b4f8a", "#5f93c2", "-", "o", ""),
    Mark("#d2691e", "#fbd9b5", "--", "s", "////"),
    Mark("#4d4d4d", "#bdbdbd", "-.", "^", ""),
)
"""How figures draw the first stratum, the second stratum, and all rows.

The first two colours are from the palette of Okabe and Ito; the first colour is made darker.
"""


def marks_of(names: Iterable[str]) -> dict[str, Mark]:
    """Return how figures draw each stratum, by its name."""
    return marked(list(names), *MARKS)


def paper_style() -> AbstractContextManager[None]:
    """Return a context in which all figures have the style of this module."""
    return mpl.rc_context(_STYLE)


def letter(place: int) -> str:
    """Return the letter of a panel.

    Examples
    --------
    >>> letter(0), letter(2)
    ('(a)', '(c)')
    """
    return f"({chr(ord('a') + place)})"
