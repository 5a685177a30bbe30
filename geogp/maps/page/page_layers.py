"""The layers that a page offers: what each shows, in which words, units and colours."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from geogp.distributions.quantity import Quantity
from geogp.maps.grid import quantity_of
from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.page.page_quantiles import cautious_level
from geogp.maps.scales import (
    BOUND_PALETTE,
    PROBABILITY_PALETTE,
    TESTS_PALETTE,
    Scale,
    count_scale,
    share_scale,
    speed_scale,
)
from geogp.maps.views import View, views_of

Floats = NDArray[np.float64]
Layer = dict[str, Any]


@dataclass(frozen=True)
class Words:
    """What all layers are about: the target, and what is predicted, many of them."""

    target: str
    predicted: str

    @property
    def quantity(self) -> Quantity:
        """Names and units of the target."""
        return quantity_of(self.target)


def scale_json(scale: Scale) -> dict[str, Any]:
    """Return a scale for the page."""
    return {
        "low": scale.low,
        "high": scale.high,
        "logarithmic": scale.logarithmic,
        "shift": scale.shift,
        "ticks": list(scale.ticks),
        "colours": [to_hex(colour) for colour in scale.colours()[1:, :3] / 255],
    }


def speed_layers(
    grid: xr.Dataset, words: Words, median: Floats, width: Floats, bound: Floats
) -> list[Layer]:
    """Return median, width, cautious bound and probability.

    One scale for all quarters, so that their colours can be compared.

    Parameters
    ----------
    grid
        The map.
    words
        What it is of.
    median, width, bound
        Values that the scales are made for, of all quarters: the median, the width of the 95 %
        interval of log10, and the bound that 19 of 20 keep.
    """
    views = {view.name: view for view in views_of(grid)}
    return [
        _view_layer(views["median"], words, {"quantile": 0.5}, median)
        | {"id": "level", "title": "Median"},
        _view_layer(views["width"], words, {"width": [0.025, 0.975]}, width)
        | {"title": "Uncertainty"},
        _bound_layer(words, bound),
        _probability_layer(words),
    ]


def count_layers(grid: xr.Dataset, words: Words) -> list[Layer]:
    """Return expected number, bounds and probability of none."""
    return [
        _view_layer(view, words, {"array": view.name}, grid[view.variable].to_numpy())
        for view in views_of(grid)
    ]


def tests_layer(grid: xr.Dataset) -> Layer:
    """Return the number of tests in the data."""
    label = "tests in the data, all quarters together"
    values = np.asarray(grid["tests"].values, np.float64)
    measured = values[values > 0] if (values > 0).any() else np.zeros(1)
    scale = count_scale(measured, label=label, palette=TESTS_PALETTE)
    return {
        "id": "tests",
        "title": "Number of tests",
        "label": label,
        "hint": "How many tests the data hold at each tile, those kept for checks among them; 0 "
        "where nothing was measured.",
        "unit": "tests",
        "source": {"array": "tests"},
        "scale": scale_json(scale),
    }


def slice_layers(slices: list[KernelSlice], scale: Scale, unit: str) -> list[Layer]:
    """Return a layer for each slice of the kernel, with its reference point."""
    return [
        {
            "id": f"slice-{place}",
            "title": f"Kernel: {one.title}",
            "label": scale.label,
            "hint": "How strongly the model's smooth field lets the marked point x* inform each "
            "place.",
            "unit": unit,
            "source": {"slice": place},
            "scale": scale_json(scale),
            "point": {
                "latitude": one.latitude,
                "longitude": one.longitude,
                "text": f"x* ({one.title}). {one.description}",
            },
        }
        for place, one in enumerate(slices)
    ]


def _view_layer(view: View, words: Words, source: dict[str, Any], values: Floats) -> Layer:
    return {
        "id": view.name,
        "title": view.title,
        "label": view.label,
        "hint": view.hint.format(predicted=words.predicted),
        "unit": view.unit,
        "source": source,
        "scale": scale_json(view.make_scale(values, label=view.label, palette=view.palette)),
    }


def _bound_layer(words: Words, bound: Floats) -> Layer:
    quantity = words.quantity
    least = quantity.bound == "lower"
    side = "least" if least else "most"
    label = f"at {side} this in 19 of 20, {quantity.unit}"
    scale = speed_scale(bound, label=label, palette=BOUND_PALETTE)
    return {
        "id": "bound",
        "title": f"At {side}, in 19 of 20",
        "label": label,
        "hint": f"19 of 20 {words.predicted} are expected to be at {side} this; 1 of 20 "
        f"{'below' if least else 'above'}.",
        "unit": quantity.unit,
        "source": {"quantile": cautious_level(quantity.bound)},
        "scale": scale_json(scale),
    }


def _probability_layer(words: Words) -> Layer:
    quantity = words.quantity
    least = quantity.bound == "lower"
    side = "least" if least else "most"
    label = f"probability of at {side} the threshold"
    scale = share_scale(np.zeros(1), label=label, palette=PROBABILITY_PALETTE)
    return {
        "id": "probability",
        "title": "Probability of a threshold",
        "label": label,
        "hint": f"The share of {words.predicted} expected to be at {side} the threshold.",
        "unit": "",
        "source": {"probability": True},
        "scale": scale_json(scale),
    }
