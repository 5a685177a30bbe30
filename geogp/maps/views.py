"""The views of a map, each with its variable of the grid, its texts and its colours."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.choices import one_of
from geogp.distributions.quantity import Quantity
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.maps import scales
from geogp.maps.grid import FLAG_FILL
from geogp.maps.target_quantities import quantity_of
from geogp.value_scales import DECIBELS, LOG10, PERCENT, scale_of

FAR, PROVIDER = "far", "provider"
"""Attributes of a median of one provider: the variable with far tiles, and the provider's name."""

TARGET, TIER = "target", "tier"
"""Attributes of a median of a further target, and of the probability of a tier: their names."""

MakeScale = Callable[..., scales.Scale]

HOW_FAST, HOW_STRONG, HOW_OFTEN = (scale.question for scale in (LOG10, DECIBELS, PERCENT))
HOW_MANY = "How many tests"
WHICH_CLASS = "Which class"
HOW_SURE = "How sure"
WHO_IS_SERVED = "Who is served"
WHERE_MEASURED = "Where measured"
WHAT_CHANGED = "What changed"
HOW_IT_THINKS = "How the model thinks"

QUESTIONS = (
    *(HOW_FAST, HOW_STRONG, HOW_OFTEN, HOW_MANY, WHICH_CLASS),
    *(HOW_SURE, WHO_IS_SERVED, WHERE_MEASURED, WHAT_CHANGED, HOW_IT_THINKS),
)
"""All questions, in the order of the page."""


@dataclass(frozen=True)
class View:
    """A description of one picture of a grid: its variable, texts and colours.

    `name` is also the name of the picture's file; `label` is the text of the legend, with the unit;
    `make_scale` makes the colour scale from the values and the palette. `hint` is a sentence that
    explains the values, in which ``{predicted}`` stands for the predicted quantity. `question` is
    the question that the view answers, one of `QUESTIONS`.
    """

    name: str
    variable: str
    title: str
    label: str
    palette: str
    make_scale: MakeScale
    hint: str
    unit: str
    question: str

    def scale(self, grid: xr.Dataset) -> scales.Scale:
        """Return the colour scale for a grid's values; raise DataError if no value is finite."""
        return self.make_scale(self.values(grid), label=self.label, palette=self.palette)

    def values(self, grid: xr.Dataset) -> NDArray[np.float64]:
        """Return the values of a grid as numbers, NaN outside the region."""
        variable = grid[self.variable]
        values = np.asarray(variable.values, np.float64)
        if "flag_values" in variable.attrs:
            values = np.where(values == FLAG_FILL, np.nan, values)
        return values


def views_of(grid: xr.Dataset) -> tuple[View, ...]:
    """Return the views of a grid made by `build_grid`, with the main view first."""
    quantity = quantity_of(str(grid.attrs["target"]))
    if quantity.classes:
        return _class_views(quantity)
    if quantity.counted:
        return _count_views(int(grid.attrs["zoom"]))
    # Distributions with heavy tails may have no mean.
    with_mean = bool(np.isfinite(grid[f"mean_{quantity.suffix}"].values).any())
    views = tuple(view for view in _speed_views(quantity) if view.name != "mean" or with_mean)
    return views + provider_views(grid, views[0]) + _target_views(grid) + _tier_views(grid)


def provider_views(grid: xr.Dataset, median: View) -> tuple[View, ...]:
    """Return a view of each provider's median in a run by provider, all on the same scale."""
    names = [str(name) for name, variable in grid.data_vars.items() if FAR in variable.attrs]
    values = np.stack([grid[name].values for name in names]) if names else np.zeros(0)

    def common(_: NDArray[np.float64], **words: str) -> scales.Scale:
        return median.make_scale(values, **words)

    return tuple(
        replace(
            median,
            name=name.replace(median.variable, median.name),
            variable=name,
            title=f"{median.title}, {grid[name].attrs[PROVIDER]}",
            hint=_literal(
                f"The median of {grid[name].attrs[PROVIDER]}, near its own measurements."
            ),
            make_scale=common,
        )
        for name in names
    )


def _target_views(grid: xr.Dataset) -> tuple[View, ...]:
    """Return a view of the median of each target after the first."""
    names = [str(name) for name, variable in grid.data_vars.items() if TARGET in variable.attrs]
    medians = {name: _speed_views(quantity_of(grid[name].attrs[TARGET]))[0] for name in names}
    return tuple(
        replace(median, name=f"median_{grid[name].attrs[TARGET]}", variable=name)
        for name, median in medians.items()
    )


def _tier_views(grid: xr.Dataset) -> tuple[View, ...]:
    """Return a view of the probability of each tier."""
    return tuple(
        View(
            str(name),
            str(name),
            f"Probability of {variable.attrs[TIER]}",
            f"probability of {variable.attrs[TIER]}",
            scales.PROBABILITY_PALETTE,
            scales.share_scale,
            f"The share of {{predicted}} with a {variable.attrs['long_name'].split(' of ', 1)[1]}.",
            "",
            WHO_IS_SERVED,
        )
        for name, variable in grid.data_vars.items()
        if TIER in variable.attrs
    )


def _literal(text: str) -> str:
    """Return a text for `str.format` that stays as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def find_view(grid: xr.Dataset, name: str) -> View:
    """Return a view of a grid by its name; raise RequestError if the name is unknown."""
    views = {view.name: view for view in views_of(grid)}
    one_of("view", name, views)
    return views[name]


def veiled(grid: xr.Dataset, variable: str | None = None) -> NDArray[np.bool_]:
    """Return which tiles to show in grey, because they are far from any measurement.

    For a `variable` of one provider, these are measurements of the provider. For numbers of tests
    no tile is grey, because a tile without tests is a measurement of 0.
    """
    name = FAR if variable is None else grid[variable].attrs.get(FAR, FAR)
    far = np.asarray(grid[name].values == 1)
    return np.zeros_like(far) if quantity_of(str(grid.attrs["target"])).counted else far


def kernel_label(target: str) -> str:
    """Return the text of the legend of kernel slices, with the unit of the kernel."""
    return f"kernel k(x, x*), {quantity_of(target).kernel_unit}"


def _speed_views(quantity: Quantity) -> tuple[View, ...]:
    """Return the views of median, mean, bound and width.

    The bound is the cautious end of the interval: the lower end for a speed, the upper end for
    latency.
    """
    subject, unit, end, bound = quantity.subject, quantity.unit, quantity.suffix, quantity.bound
    side = "above" if bound == "lower" else "below"
    make_scale = partial(scales.value_scale, unit=unit)
    fast = partial(View, make_scale=make_scale, unit=unit, question=quantity.scale.question)
    return (
        fast(
            "median",
            f"median_{end}",
            f"Median {subject}",
            f"median {subject}, {unit}",
            scales.SPEED_PALETTE,
            hint="Half of {predicted} are expected above this value, half below it.",
        ),
        fast(
            "mean",
            f"mean_{end}",
            f"Mean {subject}",
            f"mean {subject}, {unit}",
            scales.SPEED_PALETTE,
            hint=_MEANS[quantity.scale],
        ),
        fast(
            "bound",
            f"{bound}_{end}",
            f"{bound.capitalize()} bound of {subject}",
            f"{bound} end of the 95 % interval, {unit}",
            scales.BOUND_PALETTE,
            hint=f"39 of 40 {{predicted}} are expected {side} this value.",
        ),
        View(
            "width",
            f"width_{quantity.scale.tag}",
            f"Uncertainty of {subject}",
            width_label(unit),
            scales.WIDTH_PALETTE,
            partial(scales.width_scale, unit=unit),
            _WIDTHS[quantity.scale],
            quantity.scale.unit(unit),
            HOW_SURE,
        ),
    )


_MEANS = {
    LOG10: "The average of {predicted}; a few high values make the average larger than the median.",
    DECIBELS: "The average of {predicted}, of their decibels.",
    PERCENT: "The average of {predicted}.",
}
_WIDTHS = {
    LOG10: "\N{MULTIPLICATION SIGN}3 means that the upper end is three times the lower end.",
    DECIBELS: "The upper minus the lower bound.",
    PERCENT: "The upper minus the lower bound, in percentage points.",
}


def width_label(unit: str) -> str:
    """Return the text of the legend of widths of intervals, of values in a unit."""
    scale = scale_of(unit)
    shown = "upper end / lower end" if scale.logarithmic else scale.unit(unit)
    return f"width of the 95 % interval, {shown}"


def _count_views(zoom: int) -> tuple[View, ...]:
    """Return the views of the expected number, its bounds, and the probability of no test."""
    tile = "tile" if zoom == ZOOM else f"tile of zoom {zoom}"
    unit = f"tests per {tile} and quarter"
    return (
        View(
            "expected",
            "expected_tests",
            "Expected number of tests",
            f"expected {unit}",
            scales.SPEED_PALETTE,
            scales.speed_scale,
            f"The number of tests to expect on average in a {tile} and quarter.",
            unit,
            HOW_MANY,
        ),
        *(
            View(
                side,
                f"{side}_tests",
                f"{side.capitalize()} bound of the number of tests",
                f"{side} end of the 95 % interval, {unit}",
                scales.BOUND_PALETTE,
                scales.count_scale,
                "In at least 39 of 40 cases, the number of tests is expected to be this or "
                f"{more}.",
                unit,
                HOW_SURE,
            )
            for side, more in (("lower", "more"), ("upper", "less"))
        ),
        View(
            "none",
            "p_none",
            "Probability of no test",
            f"probability of no test in a {tile} and quarter",
            scales.WIDTH_PALETTE,
            scales.share_scale,
            "1 means that there is certainly no test; 0 means that there is certainly a test.",
            "",
            WHERE_MEASURED,
        ),
    )


def _class_views(quantity: Quantity) -> tuple[View, ...]:
    """Return the views of the most probable class, of probabilities, and of the entropy."""
    subject, names = quantity.subject, quantity.classes
    return (
        View(
            quantity.suffix,
            quantity.suffix,
            f"Most probable {subject}",
            f"most probable {subject}",
            scales.SPEED_PALETTE,
            partial(scales.class_scale, names=names),
            f"The {subject} with the highest probability among {{predicted}}.",
            "",
            WHICH_CLASS,
        ),
        *(
            View(
                f"p_at_least_{tag}",
                f"p_at_least_{tag}",
                f"Probability of at least {name}",
                f"probability of {subject} {name} or higher",
                scales.PROBABILITY_PALETTE,
                scales.share_scale,
                f"The share of {{predicted}} expected to be {name} or higher.",
                "",
                WHO_IS_SERVED,
            )
            for name, tag in list(zip(names, quantity.class_tags, strict=True))[1:]
        ),
        View(
            "p_most_probable",
            "p_most_probable",
            f"Probability of the most probable {subject}",
            f"probability of the most probable {subject}",
            f"{scales.WIDTH_PALETTE}_r",
            scales.share_scale,
            f"1 means that the {subject} is certain; {1 / len(names):.2g} means that all are "
            "equally probable.",
            "",
            HOW_SURE,
        ),
        View(
            "entropy",
            "entropy",
            f"Entropy of the {subject}",
            f"entropy of the {subject}, nats",
            scales.WIDTH_PALETTE,
            scales.linear_scale,
            f"0 means that the {subject} is certain; {np.log(len(names)):.3g} means that all are "
            "equally probable.",
            "nats",
            HOW_SURE,
        ),
    )
