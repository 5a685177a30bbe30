"""Maps of one colour: the threshold that suits a map best, and those that divide its tiles."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.geodata.tiles.thresholds import Threshold, nearest_threshold
from geogp.maps.page.page_quantiles import slider_values
from geogp.maps.target_quantities import quantity_of

Floats = NDArray[np.float64]

NEARLY = 0.02
"""Smallest share of the tiles on each side of a threshold that divides a map."""


def first_threshold(grid: xr.Dataset, thresholds: tuple[Threshold, ...]) -> Threshold | None:
    """Return the threshold nearest to the median of the tiles' medians; None if there is none."""
    if not thresholds:
        return None
    return nearest_threshold(thresholds, float(np.median(_medians(grid))))


def one_colour(grid: xr.Dataset, thresholds: tuple[Threshold, ...]) -> str | None:
    """Return sentences on a map whose tiles are nearly all alike, and on what divides it.

    A map of classes is judged by its most probable class, another map by its `first_threshold`.
    Returns None if the map is divided, or has neither.
    """
    quantity = quantity_of(str(grid.attrs["target"]))
    if quantity.classes:
        return _one_class(grid, quantity.classes, quantity.at_least)
    first = first_threshold(grid, thresholds)
    return None if first is None else one_side(_medians(grid), first)


def one_side(medians: Floats, threshold: Threshold) -> str | None:
    """Return sentences if nearly all tiles have medians on one side of a threshold, else None.

    `medians` are values of the model, (n,). The sentences name the nearest round threshold with
    `NEARLY` of the tiles or more on each side.
    """
    share = float(threshold.holds(medians).mean())
    if NEARLY <= share <= 1 - NEARLY:
        return None
    scale = threshold.scale
    low, high = map(float, scale.values(np.array([medians.min(), medians.max()])))
    others = [
        other
        for value in slider_values(low, high, (), factors=scale.logarithmic)
        for other in [Threshold(value, threshold.target)]
        if (scale.most is None or 0 < value < scale.most)
        and NEARLY <= other.holds(medians).mean() <= 1 - NEARLY
    ]
    side = threshold.met if share > NEARLY else threshold.missed
    return f"{_in_tiles(max(share, 1 - share))}, the median is {side}. " + (
        f"The nearest round threshold that divides the map: --threshold "
        f"{nearest_threshold(others, threshold.modelled).number}."
        if others
        else "No round threshold divides the map."
    )


def _one_class(grid: xr.Dataset, names: tuple[str, ...], at_least: list[str]) -> str | None:
    """Return sentences if nearly all tiles have the same most probable class, else None."""
    quantity = quantity_of(str(grid.attrs["target"]))
    codes = grid[quantity.suffix].to_numpy()
    codes = codes[np.isfinite(grid["entropy"].to_numpy())].astype(np.intp)
    shares = np.bincount(codes, minlength=len(names)) / len(codes)
    most = int(shares.argmax())
    if shares[most] <= 1 - NEARLY:
        return None
    halves = {}
    for place, variable in enumerate(at_least, 1):
        p = grid[variable].to_numpy()
        halves[place] = float((p[np.isfinite(p)] >= 0.5).mean())
    dividing = [place for place, share in halves.items() if NEARLY <= share <= 1 - NEARLY]
    told = f"{_in_tiles(shares[most])}, the most probable {quantity.subject} is {names[most]}. "
    if not dividing:
        return (
            f"{told}No {quantity.subject} divides the map at a probability of 50 %. Thresholds of "
            "your own do: --target download --threshold."
        )
    nearest = names[min(dividing, key=lambda place: abs(place - most))]
    return (
        f"{told}The layer “Probability of at least {nearest}” divides the map at a probability of "
        "50 %."
    )


def _in_tiles(share: float) -> str:
    return (
        "In every tile of the map" if share == 1 else f"In {100 * share:.1f} % of the map's tiles"
    )


def _medians(grid: xr.Dataset) -> Floats:
    """Return the medians of a grid's tiles as values of the model, (n,)."""
    quantity = quantity_of(str(grid.attrs["target"]))
    values = grid[f"median_{quantity.suffix}"].to_numpy().astype(np.float64)
    return np.asarray(quantity.scale.modelled(values[np.isfinite(values)]))
