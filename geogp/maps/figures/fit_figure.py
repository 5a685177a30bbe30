"""A figure of a fit: its map, how sure the map is, and the errors at measurements."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geogp.distributions.prediction import Prediction
from geogp.maps.figures.figure_style import MARKS, SMALL, paper_style

Floats = NDArray[np.float64]

MANY = 1_000
"""From this number of rows on, their marks are smaller."""


class MeasuredRows(NamedTuple):
    """Places of measurements on a map, and predictions of measurements `y`, with their name."""

    x: Floats
    y: Floats
    law: Prediction
    measured: Floats
    what: str


def fit_figure(
    grid: xr.Dataset, rows: MeasuredRows, names: Sequence[str], *, aspect: float
) -> Figure:
    """Return a figure of pyplot: median and interval width on a map, and errors of rows.

    `grid` is from `box_grid`; `names` begins with those of its x and y; `aspect` is the length of a
    unit of y on paper, in units of x.
    """
    width = grid["upper_95"] - grid["lower_95"]
    with paper_style():
        figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.1), layout="constrained")
        for axis, layer, title, palette in (
            (axes[0], grid["median"], "median", "viridis"),
            (axes[1], width, "width of the 95 % interval", "cividis"),
        ):
            drawn = axis.pcolormesh(grid["x"], grid["y"], layer, cmap=palette, shading="nearest")
            figure.colorbar(drawn, ax=axis, location="bottom", label=title, aspect=40, pad=0.02)
            axis.plot(rows.x, rows.y, ".", color="black", markersize=1.5, alpha=0.6)
            axis.set(xlabel=names[0], ylabel=names[1], aspect=aspect)
            axis.set(xlim=(grid["x"].min(), grid["x"].max()))
            axis.set(ylim=(grid["y"].min(), grid["y"].max()))
        _errors(axes[2], rows)
    return figure


def _errors(axis: Axes, rows: MeasuredRows) -> None:
    lower, upper = rows.law.interval(0.95)
    inside = (lower <= rows.measured) & (rows.measured <= upper)
    median = rows.law.median
    for which, mark in ((inside, MARKS[0]), (~inside, MARKS[1])):
        errors = (rows.measured - median)[which]
        (drawn,) = axis.plot(median[which], errors, linestyle="", marker=mark.marker)
        drawn.set(color=mark.colour, markersize=2 if len(inside) < MANY else 1)
    axis.axhline(0, color="black", linewidth=0.6)
    share = f"{inside.mean():.1%} of {len(inside):,} in the 95 % interval; squares: outside"
    axis.set_title(f"{rows.what}\n{share}", fontsize=SMALL)
    axis.set(xlabel="median", ylabel="measured \N{MINUS SIGN} median")
