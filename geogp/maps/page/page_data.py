"""The data of the interactive page, as plain JSON with packed arrays.

The browser decodes and draws the data; the page contains no pictures. The keys are:

- ``format``, ``title``, ``target``, ``subject``, ``unit``, ``bound``, ``predicted``;
- ``frame``: the raster of the shown quarter, tiles of one zoom of Web Mercator; ``view``: the first
  view of the page, [south, west, north, east];
- ``levels``: the levels of the quantiles of log10 of the value; null for counts and classes;
- ``classes``: the classes in increasing order, each with its ``name`` and ``least``, the array with
  the probability of this class or a higher one (null for the lowest class);
- ``quarters``: in time order, each with ``label``, ``frame`` and packed ``quantiles`` or, for
  counts and classes, ``arrays``; ``shown`` is the index of the quarter at full resolution;
- ``arrays``: rasters of numbers of tests, of the flag for far tiles, and of indices in ``names``;
- ``places``: counties and urban areas with their bounds;
- ``layers``, ``slices``, ``threshold``, ``kernel``: see the other modules of this folder;
- ``steps``: the packing steps (decoded values differ from the map by at most half a step), and the
  largest error of a probability found on some tiles, with the number of these tiles.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.distributions.quantity import Quantity
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.frame import Floats, Frame
from geogp.maps.grid import FLAG_FILL, quantity_of
from geogp.maps.kernel_slices import KernelSlice, check_slices
from geogp.maps.page.kernel_basis import KernelBasis
from geogp.maps.page.packing import Packed, pack
from geogp.maps.page.page_layers import (
    array_layers,
    scale_json,
    slice_layers,
    speed_layers,
    tests_layer,
)
from geogp.maps.page.page_places import labelled_tiles, main_bounds, named_places
from geogp.maps.page.page_quantiles import (
    QuarterMap,
    cautious_level,
    choose_levels,
    pack_within,
    probability_error,
    quantiles_of,
    slider_values,
    unpack_quantiles,
)
from geogp.maps.prediction_grid import LEVEL
from geogp.maps.scales import Scale, kernel_scale
from geogp.maps.strata_flag import strata_in
from geogp.maps.views import kernel_label, veiled

FORMAT = 1

SHOWN_TEXT = 2_800_000
"""Largest number of base64 bytes for the quantiles of the shown quarter."""

PAST_TEXT = 1_500_000
"""Largest number of base64 bytes for the quantiles of all other quarters together."""

_SLICE_STEPS = 250
_MAX_OF_16, _MAX_OF_32 = 65_000, 4_200_000_000
_SHARE_STEP = 0.004
_ENTROPY_STEP = 0.01


@dataclass(frozen=True)
class PageContent:
    """The content of a page in addition to the grid.

    `tiles` are the tiles of the grid; `title` is the heading; `predicted` names the predicted
    quantity in the plural. `quarters` are in time order; `shown` is the index of the quarter that
    has the grid's tiles. `slices` are kernel slices, `kernel` is the reduced kernel, `thresholds`
    are the thresholds of the run.
    """

    region: Region
    tiles: Tiles
    title: str
    predicted: str
    quarters: Sequence[QuarterMap]
    shown: int
    slices: list[KernelSlice]
    kernel: KernelBasis | None = None
    thresholds: tuple[Threshold, ...] = ()
    counties: PolygonLayer | None = None
    urban_areas: PolygonLayer | None = None

    @cached_property
    def county(self) -> tuple[Floats, list[str]] | None:
        """Index of each tile's county (NaN if none), and county names; None without counties."""
        if self.counties is None:
            return None
        return labelled_tiles(self.counties, self.region, self.tiles)

    @property
    def county_names(self) -> NDArray[np.object_] | None:
        """Name of each tile's county (None if none); None if there are no counties."""
        if self.county is None:
            return None
        numbers, names = self.county
        table = np.array([*names, None], object)
        return table[np.where(np.isnan(numbers), len(names), numbers).astype(np.intp)]


def page_data(grid: xr.Dataset, content: PageContent) -> dict[str, Any]:
    """Return the data of a page, as described at the top of this module.

    Raises DataError if a slice or a prediction does not fit the tiles, or the grid has no finite
    value.
    """
    target = str(grid.attrs["target"])
    quantity = quantity_of(target)
    frame = Frame.of_grid(grid)
    arrays, names = _arrays(grid, content, frame)
    packed = quantity.counted or quantity.classes
    made = (_by_arrays if packed else _speeds)(grid, content)
    arrays |= made.pop("arrays")
    steps = made.pop("steps") | {"tests": arrays["tests"]["step"]}
    scale = _kernel_scale(content, target)
    layers = [*made.pop("layers"), tests_layer(grid)]
    if scale is not None:
        layers += slice_layers(content.slices, scale, quantity.kernel_unit)
    slices = _slices(content, frame)
    if slices:
        steps["slice"] = slices[0]["step"]
    return {
        "format": FORMAT,
        "title": content.title,
        "target": target,
        "subject": quantity.subject,
        "unit": quantity.unit,
        "bound": quantity.bound,
        "classes": [
            {"name": name, "least": least}
            for name, least in zip(quantity.classes, [None, *_least(quantity)], strict=False)
        ],
        "predicted": content.predicted,
        "far_km": float(grid.attrs["far_km"]),
        "frame": asdict(frame),
        "view": main_bounds(_tests(grid), frame),
        **made,
        "shown": content.shown,
        "arrays": arrays,
        "names": names,
        "places": named_places(content.region, [content.counties, content.urban_areas]),
        "layers": layers,
        "slices": slices,
        "kernel": _kernel(content, scale, target),
        "steps": steps,
    }


def _speeds(grid: xr.Dataset, content: PageContent) -> dict[str, Any]:
    """Return levels, quarters, threshold, layers and steps for a map of speeds or latencies."""
    bound = quantity_of(str(grid.attrs["target"])).bound
    at_most = bound == "upper"
    shown = content.quarters[content.shown]
    levels = choose_levels(shown.prediction, bound)
    quantiles = quantiles_of(shown.prediction, levels)
    (full,) = pack_within([(shown.tiles, quantiles)], levels, SHOWN_TEXT)
    decoded = unpack_quantiles(full.planes, levels)[(slice(None), *full.frame.pixels(shown.tiles))]
    low, high = np.percentile(quantiles[[0, -1]], [1, 99], axis=1)[[0, 1], [0, 1]]
    values = slider_values(float(10**low), float(10**high), content.thresholds)
    choices = [one.value for one in content.thresholds] or values
    error, tiles = probability_error(shown.prediction, decoded, levels, values, at_most=at_most)
    others = [one for one in content.quarters if one is not shown]
    others_quantiles = [quantiles_of(one.prediction, levels) for one in others]
    past = pack_within(
        [(one.tiles, found) for one, found in zip(others, others_quantiles, strict=True)],
        levels,
        PAST_TEXT,
    )
    packed = [*past[: content.shown], full, *past[content.shown :]]
    steps = {"quantile_log10": full.step, "probability": error, "probability_tiles": tiles}
    if past:
        steps["past_quantile_log10"] = past[0].step
    return {
        "levels": list(levels),
        "quarters": [
            {"label": one.label, "frame": asdict(part.frame), "quantiles": part.planes}
            for one, part in zip(content.quarters, packed, strict=True)
        ],
        "threshold": {
            "values": values,
            "shown": choices[len(choices) // 2],
            "at_most": at_most,
        },
        "layers": speed_layers(
            grid, content.predicted, *_scaled_values([quantiles, *others_quantiles], levels, bound)
        ),
        "arrays": {},
        "steps": steps,
    }


def _scaled_values(
    quarters: Sequence[Floats], levels: Sequence[float], bound: str
) -> tuple[Floats, Floats, Floats]:
    """Return percentiles of median, width and cautious bound over the tiles of each quarter."""
    places = [list(levels).index(one) for one in (0.5, 0.025, 0.975, cautious_level(bound))]

    def percentiles(values: Floats) -> Floats:
        return np.asarray(np.percentile(values, np.arange(101)))

    rows = [[one[place] for place in places] for one in quarters]
    median = np.concatenate([percentiles(10**middle) for middle, _, _, _ in rows])
    width = np.concatenate([percentiles(high - low) for _, low, high, _ in rows])
    cautious = np.concatenate([percentiles(10**end) for _, _, _, end in rows])
    return median, width, cautious


def _least(quantity: Quantity) -> list[str]:
    """Return the arrays with the probability of each class or a higher one; not of the lowest."""
    return [f"p_at_least_{tag}" for tag in quantity.class_tags[1:]]


def _by_arrays(grid: xr.Dataset, content: PageContent) -> dict[str, Any]:
    """Return quarters, layers, arrays and steps of a map of numbers of tests or of classes."""
    quantity = quantity_of(str(grid.attrs["target"]))
    arrays = [
        _class_arrays(one, quantity) if quantity.classes else _count_arrays(one)
        for one in content.quarters
    ]
    shown = arrays[content.shown]
    arrays[content.shown] = {}
    return {
        "levels": None,
        "quarters": [
            {
                "label": one.label,
                "frame": asdict(Frame.of_tiles(one.tiles)),
                "quantiles": None,
                "arrays": found,
            }
            for one, found in zip(content.quarters, arrays, strict=True)
        ],
        "threshold": None,
        "layers": array_layers(grid, content.predicted),
        "arrays": shown,
        "steps": {name: packed["step"] for name, packed in shown.items()},
    }


def _count_arrays(one: QuarterMap) -> dict[str, Packed]:
    lower, upper = one.prediction.interval(0.95)
    frame = Frame.of_tiles(one.tiles)

    def raster(values: Floats) -> Floats:
        return np.asarray(frame.place(one.tiles, values, np.nan), np.float64)

    return {
        "expected": _within(raster(one.prediction.mean), 0.01),
        "lower": _within(raster(lower), 1.0),
        "upper": _within(raster(upper), 1.0),
        "none": pack(raster(one.prediction.cdf(0.0)), _SHARE_STEP, 8, none=True),
    }


def _class_arrays(one: QuarterMap, quantity: Quantity) -> dict[str, Packed]:
    frame = Frame.of_tiles(one.tiles)

    def packed(values: NDArray[Any], step: float) -> Packed:
        raster = frame.place(one.tiles, np.asarray(values, np.float64), np.nan)
        return pack(raster, step, 8, none=True, offset=0.0)

    shown = (*_least(quantity), "p_most_probable")
    variables = one.prediction.variables(quantity, LEVEL)
    flags = one.prediction.flags(quantity)
    codes = {name: packed(values, 1.0) for name, (values, _) in flags.items()}
    shares = {name: packed(variables[name][0], _SHARE_STEP) for name in shown}
    return codes | shares | {"entropy": packed(variables["entropy"][0], _ENTROPY_STEP)}


def _within(values: Floats, step: float) -> Packed:
    """Return values of 0 or more, packed in 16 bits, or in 32 bits if a value is large.

    If 32 bits are not enough, the step is increased, but values above 0 stay above 0.
    """
    highest = float(np.nanmax(values)) / step
    if highest > _MAX_OF_32:
        step *= int(np.ceil(highest / _MAX_OF_32))
        values = np.where(values > 0, np.maximum(values, step), values)
    return pack(values, step, 16 if highest < _MAX_OF_16 else 32, none=True, offset=0.0)


def _arrays(
    grid: xr.Dataset, content: PageContent, frame: Frame
) -> tuple[dict[str, Packed], dict[str, list[str]]]:
    """Return the packed arrays that all targets have, and the names to which indices refer."""
    tests = _tests(grid)
    far = np.where(np.isnan(tests), np.nan, veiled(grid))
    arrays = {
        "tests": _within(tests, 1.0),
        "far": pack(far, 1.0, 8, none=True, offset=0.0),
    }
    names: dict[str, list[str]] = {"stratum": [], "county": []}
    strata = strata_in(grid)
    if strata is not None:
        index = np.where(strata[0] == FLAG_FILL, np.nan, strata[0] == 0)
        arrays["stratum"] = pack(index, 1.0, 8, none=True, offset=0.0)
        names["stratum"] = list(strata[1])
    if content.county is not None:
        numbers, found = content.county
        raster = frame.place(content.tiles, numbers, np.nan)
        bits = 8 if len(found) < 256 else 16
        arrays["county"] = pack(raster, 1.0, bits, none=True, offset=0.0)
        names["county"] = found
    return arrays, names


def _tests(grid: xr.Dataset) -> Floats:
    """Return the number of tests on each tile, NaN outside the region."""
    tests = np.asarray(grid["tests"].values, np.float64)
    return np.where(tests >= 0, tests, np.nan)


def _kernel_scale(content: PageContent, target: str) -> Scale | None:
    """Return one colour scale for all kernel slices, or None if there are no slices."""
    held = [check_slices(content.tiles, content.slices)] if content.slices else []
    if content.kernel is not None:
        held.append(content.kernel.sample)
    if not held:
        return None
    values = np.concatenate([one.ravel() for one in held])
    return kernel_scale(values, label=kernel_label(target))


def _slices(content: PageContent, frame: Frame) -> list[Packed]:
    if not content.slices:
        return []
    values = check_slices(content.tiles, content.slices)
    step = float(np.ptp(values)) / _SLICE_STEPS or 1.0
    offset = float(np.floor(values.min() / step) * step)
    return [
        pack(frame.place(content.tiles, one, np.nan), step, 8, none=True, offset=offset)
        for one in values
    ]


def _kernel(content: PageContent, scale: Scale | None, target: str) -> dict[str, Any] | None:
    basis = content.kernel
    if basis is None or scale is None:
        return None
    return {
        "frame": asdict(basis.frame),
        "components": basis.components,
        "error": basis.error,
        "error_in_middles": basis.error_in_middles,
        "unit": quantity_of(target).kernel_unit,
        "scale": scale_json(scale),
    }
