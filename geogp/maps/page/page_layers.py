"""The layers of a page with their variables, texts, units and colours."""

from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from geogp.maps.kernel_slices import KernelSlice
from geogp.maps.page.page_quantiles import cautious_level
from geogp.maps.scales import (
    BOUND_PALETTE,
    CHANGE_PALETTE,
    DIVERGING_KERNEL_PALETTE,
    PROBABILITY_PALETTE,
    SEQUENTIAL_KERNEL_PALETTE,
    TESTS_PALETTE,
    Bytes,
    Scale,
    change_scale_of,
    count_scale,
    palette_colours,
    share_scale,
    value_scale,
)
from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import (
    HOW_IT_THINKS,
    WHAT_CHANGED,
    WHERE_MEASURED,
    WHO_IS_SERVED,
    View,
    provider_views,
    views_of,
)

Floats = NDArray[np.float64]
Layer = dict[str, Any]


def scale_json(scale: Scale) -> dict[str, Any]:
    """Return a scale as JSON for the page."""
    return {
        "low": scale.low,
        "high": scale.high,
        "logarithmic": scale.logarithmic,
        "shift": scale.shift,
        "ticks": list(scale.ticks),
        "labels": scale.labels,
        "names": list(scale.names),
        "colours": _hex(scale.colours()),
    }


def kernel_colours() -> dict[str, list[str]]:
    """Return the colours of kernels with and without clearly negative values."""
    palettes = {"diverging": DIVERGING_KERNEL_PALETTE, "sequential": SEQUENTIAL_KERNEL_PALETTE}
    return {kind: _hex(palette_colours(mpl.colormaps[name])) for kind, name in palettes.items()}


def speed_layers(
    grid: xr.Dataset, predicted: str, bound: Floats, change: tuple[str, Floats] | None
) -> list[Layer]:
    """Return the layers of median, cautious bound, width, probability and change.

    The scales are those of the grid's figures, for all quarters. `bound` (see `cautious_level`) are
    the values of that layer; `change` is the first quarter, and the changes of the median since
    then, in per cent or dB. `predicted` names the predicted quantity in the plural.
    """
    views = {view.name: view for view in views_of(grid)}
    quantity = quantity_of(str(grid.attrs["target"]))
    side, beyond = ("least", "below") if quantity.bound == "lower" else ("most", "above")
    cautious = View(
        "bound",
        "",
        f"In 19 of 20, at {side}",
        f"in 19 of 20, at {side} this, {quantity.unit}",
        BOUND_PALETTE,
        partial(value_scale, unit=quantity.unit),
        f"19 of 20 {{predicted}} are expected to be at {side} this value, and 1 of 20 {beyond} "
        "this value.",
        quantity.unit,
        quantity.scale.question,
    )
    probability = View(
        "probability",
        "",
        "Probability of a threshold",
        f"probability of at {side} the threshold",
        PROBABILITY_PALETTE,
        share_scale,
        f"The share of {{predicted}} expected to be at {side} the threshold.",
        "",
        WHO_IS_SERVED,
    )
    median, width = views["median"], views["width"]
    layers = [
        layer_json(median, predicted, {"quantile": 0.5}, median.values(grid))
        | {"id": "level", "title": "Median"},
        layer_json(cautious, predicted, {"quantile": cautious_level(quantity.bound)}, bound),
        layer_json(width, predicted, {"width": [0.025, 0.975]}, width.values(grid))
        | {"title": "Uncertainty"},
        layer_json(probability, predicted, {"probability": True}, np.zeros(1)),
    ]
    layers += [
        layer_json(view, predicted, {"array": view.name}, view.values(grid))
        for view in provider_views(grid, median)
    ]
    if change is not None:
        first, values = change
        unit = quantity.scale.change_unit
        view = View(
            "change",
            "",
            f"Change of the median since {first}",
            f"change of the median since {first}, {unit}",
            CHANGE_PALETTE,
            change_scale_of(unit),
            f"The median of the shown quarter, compared with {first}. The change may be uncertain: "
            "geogp change computes its probability.",
            unit,
            WHAT_CHANGED,
        )
        layers.append(layer_json(view, predicted, {"change": True}, values))
    return layers


def tier_layer(predicted: str) -> Layer:
    """Return the layer of the probability that the thresholds of several targets hold together."""
    view = View(
        "tier",
        "",
        "Probability of a tier",
        "probability that all thresholds hold together",
        PROBABILITY_PALETTE,
        share_scale,
        "The share of {predicted} expected to meet all thresholds of the tier together.",
        "",
        WHO_IS_SERVED,
    )
    return layer_json(view, predicted, {"tier": True}, np.zeros(1))


def array_layers(grid: xr.Dataset, predicted: str) -> list[Layer]:
    """Return a layer for each view, whose values are an array with the name of the view."""
    return [
        layer_json(view, predicted, {"array": view.name}, view.values(grid))
        for view in views_of(grid)
    ]


def tests_layer(grid: xr.Dataset) -> Layer:
    """Return the layer of the number of tests in the data."""
    view = View(
        "tests",
        "tests",
        "Number of tests",
        "tests in the data, all quarters together",
        TESTS_PALETTE,
        count_scale,
        "The number of tests in each tile, in training and test rows; 0 where nothing "
        "was measured.",
        "tests",
        WHERE_MEASURED,
    )
    values = np.asarray(grid["tests"].values, np.float64)
    measured = values[values > 0] if (values > 0).any() else np.zeros(1)
    return layer_json(view, "", {"array": "tests"}, measured)


def slice_layers(slices: list[KernelSlice], label: str, unit: str) -> list[Layer]:
    """Return a layer for each slice of the kernel, with its reference point.

    The page chooses the scale of a kernel from its values.
    """
    return [
        {
            "id": f"slice-{place}",
            "title": f"Kernel: {kernel_slice.title}",
            "label": label,
            "hint": "How strongly the marked point x* influences the smooth field of the model at "
            "each place.",
            "unit": unit,
            "group": HOW_IT_THINKS,
            "source": {"slice": place},
            "point": {
                "latitude": kernel_slice.latitude,
                "longitude": kernel_slice.longitude,
                "text": f"x* ({kernel_slice.title}). {kernel_slice.description}",
            },
        }
        for place, kernel_slice in enumerate(slices)
    ]


def layer_json(view: View, predicted: str, source: dict[str, Any], values: Floats) -> Layer:
    """Return a layer of the page: the texts of a view, its source, and the scale of `values`."""
    return {
        "id": view.name,
        "title": view.title,
        "label": view.label,
        "hint": view.hint.format(predicted=predicted),
        "unit": view.unit,
        "group": view.question,
        "source": source,
        "share": view.make_scale is share_scale,
        "scale": scale_json(view.make_scale(values, label=view.label, palette=view.palette)),
    }


def _hex(colours: Bytes) -> list[str]:
    return [to_hex(colour) for colour in colours[1:, :3] / 255]
