"""The data of the interactive page, as plain JSON with packed arrays.

The browser decodes and draws the data; the page contains no pictures. The keys are:

- ``format``, ``title``, ``target``, ``subject``, ``unit``, ``bound``, ``predicted``; ``linear``:
  whether values are those of the model, as decibels are, and not 10 to the power of them;
- ``frame``: the raster of the shown quarter, tiles of one zoom of Web Mercator; ``view``: the first
  view of the page, [south, west, north, east];
- ``levels``, ``quantiles``: the levels of the quantiles of values of the model, such as log10, and
  the packed quantiles of the shown quarter; null for counts and classes;
- ``classes``: the classes in increasing order, each with its ``name`` and ``least``, the array with
  the probability of this class or a higher one (null for the lowest class);
- ``quarters``: the labels in time order; ``shown`` is the index of the shown quarter;
- ``past``: null, or all other quarters in time order, on tiles of the same zoom or a lower zoom,
  with their ``frame``: packed ``quantiles`` or, for counts and classes, ``arrays``;
- ``measured``: null, or the averages of all tests in a tile and quarter as values of the model, for
  numbers of tests their sums, packed: a row for each quarter, and a column for each cell with
  tests, in the order of the cells;
- ``level``: null, or the packed level of each tile in the shown quarter, as values of the model;
- ``tiers``: null, or the targets and tiers of a map of several targets; see `page_tiers`;
- ``arrays``: rasters of numbers of tests, of the flag for far tiles, and of indices in ``names``;
- ``places``: counties and urban areas with their bounds and a place in them, and towns, the largest
  first; ``towns_left_out``: a sentence if there are too many towns, else empty;
- ``layers``, ``slices``, ``threshold``, ``kernel``: see the other modules of this folder;
- ``steps``: the packing steps (decoded values differ from the map by at most half a step), and the
  largest errors of a probability found on some tiles, with the number of these tiles.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.quantity import Quantity
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.thresholds import Threshold, nearest_threshold
from geogp.geodata.tiles.tiers import Tier
from geogp.maps.frame import Floats, Frame
from geogp.maps.grid import FLAG_FILL, strata_in
from geogp.maps.kernel_slices import KernelSlice, check_slices
from geogp.maps.page.kernel_basis import KernelBasis
from geogp.maps.page.packing import Packed, pack, text_bytes
from geogp.maps.page.page_layers import (
    array_layers,
    kernel_colours,
    slice_layers,
    speed_layers,
    tests_layer,
    tier_layer,
)
from geogp.maps.page.page_places import (
    labelled_tiles,
    main_bounds,
    named_places,
    towns_on,
)
from geogp.maps.page.page_quantiles import (
    PAST_LEVELS,
    QuarterMap,
    cautious_level,
    pack_past,
    pack_within,
    packed_law,
    past_quantiles,
    probability_error,
    quantiles_of,
)
from geogp.maps.page.page_tiers import check_joint, pack_tiers
from geogp.maps.prediction_grid import LEVEL
from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import PROVIDER, QUESTIONS, kernel_label, veiled, views_of

FORMAT = 1

SHOWN_TEXT = 2_800_000
"""Largest number of base64 bytes for the quantiles of the shown quarter."""

ALL_TEXT = 4_200_000
"""Largest number of base64 bytes for the quantiles of all quarters together."""

LEVEL_TEXT = 600_000
"""Number of base64 bytes of the level, above which its step is larger."""

_SLICE_STEPS = 250
_MAX_OF_16, _MAX_OF_32 = 65_000, 4_200_000_000
_SHARE_STEP = 0.004
_ENTROPY_STEP = 0.01
_MEASURED_STEP = 0.005
_MEDIAN_STEP = 0.01


@dataclass(frozen=True)
class PageContent:
    """The content of a page in addition to the grid.

    `tiles` are the tiles of the grid; `title` is the heading; `predicted` names the predicted
    quantity in the plural. `quarters` are in time order; `shown` is the index of the quarter that
    has the grid's tiles; all other quarters have the same tiles. `slices` are kernel slices,
    `kernel` is the reduced kernel, `thresholds` are the thresholds of the run. `measured` are the
    averages of all tests in each quarter and in each tile with tests (for numbers of tests, sums),
    (q, m), NaN without tests. `joint` are the predictions of several targets for the tiles in the
    shown quarter, the grid's target first; `tiers` are the tiers of the run.
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
    measured: Floats | None = None
    joint: JointPrediction | None = None
    tiers: tuple[Tier, ...] = ()

    @property
    def past(self) -> list[QuarterMap]:
        """All quarters except the shown quarter."""
        return [quarter for place, quarter in enumerate(self.quarters) if place != self.shown]

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

    Raises DataError if a slice or a prediction does not fit the tiles, the grid has no finite
    value, or the joint predictions have no tiers or not the grid's target first.
    """
    target = str(grid.attrs["target"])
    quantity = quantity_of(target)
    check_joint(content.joint, content.tiers, target, content.tiles)
    frame = Frame.of_grid(grid)
    arrays, names = _arrays(grid, content, frame)
    packed = quantity.counted or quantity.classes
    made = (_by_arrays if packed else _speeds)(grid, content)
    arrays |= made.pop("arrays") | _provider_arrays(grid)
    steps = made.pop("steps") | {"tests": arrays["tests"]["step"]}
    layers = [*made.pop("layers"), tests_layer(grid)]
    layers += slice_layers(content.slices, kernel_label(target), quantity.kernel_unit)
    layers.sort(key=lambda layer: QUESTIONS.index(layer["group"]))
    places = named_places(content.region, [content.counties, content.urban_areas])
    towns, left_out = towns_on(content.tiles, content.region, content.county_names)
    slices, level = _slices(content, frame), _level(grid)
    if level is not None:
        steps[f"level_{quantity.scale.tag}"] = level["step"]
    if slices:
        steps["slice"] = slices[0]["step"]
    return {
        "format": FORMAT,
        "title": content.title,
        "target": target,
        "subject": quantity.subject,
        "unit": quantity.unit,
        "linear": not quantity.scale.logarithmic,
        "most": quantity.scale.most,
        "suffix": quantity.suffix,
        "bound": quantity.bound,
        "classes": [
            {"name": name, "least": least}
            for name, least in zip(quantity.classes, [None, *quantity.at_least], strict=False)
        ],
        "predicted": content.predicted,
        "far_km": float(grid.attrs["far_km"]),
        "frame": asdict(frame),
        "view": main_bounds(_tests(grid), frame),
        "quarters": [quarter.label for quarter in content.quarters],
        "shown": content.shown,
        **made,
        "measured": _measured(grid, content, frame),
        "level": level,
        "arrays": arrays,
        "names": names,
        "places": [*places, *towns],
        "towns_left_out": left_out,
        "layers": layers,
        "slices": slices,
        "kernel": _kernel(content, target),
        "kernel_colours": kernel_colours(),
        "steps": steps,
    }


def _speeds(grid: xr.Dataset, content: PageContent) -> dict[str, Any]:
    """Return levels, quantiles, threshold, layers and steps for a map of averages."""
    target = str(grid.attrs["target"])
    quantity = quantity_of(target)
    scale, at_most = quantity.scale, quantity.bound == "upper"
    shown = content.quarters[content.shown]
    law = packed_law(shown, target, content.thresholds, SHOWN_TEXT)
    levels, quantiles, decoded, full = law.levels, law.quantiles, law.decoded, law.packed
    choices = content.thresholds or [Threshold(value, target) for value in law.values]
    error_of = partial(
        probability_error, levels=levels, thresholds=scale.modelled(law.values), at_most=at_most
    )
    error, on_tiles = error_of(shown.prediction, decoded)
    step = f"quantile_{scale.tag}"
    steps = {step: full[0]["step"], "probability": error, "probability_tiles": on_tiles}
    past, change = None, None
    if content.past:
        cells = _cells_of(shown.tiles, content.past[0].tiles)
        past, rounded = _past(content.past, ALL_TEXT - text_bytes(full), scale.decade)
        steps[f"past_{step}"] = past["quantiles"][0]["step"]
        steps["past_probability"] = max(
            error_of(
                quarter.prediction,
                past_quantiles(decoded, levels, rounded[:, place, cells]),
                cells=cells,
            )[0]
            for place, quarter in enumerate(content.past)
        )
        # A change between tiles of different sizes would show the difference of the sizes, too.
        if content.shown > 0 and content.past[0].tiles.zoom == shown.tiles.zoom:
            first = rounded[1, 0, cells]
            since = scale.changes(quantiles[levels.index(0.5)] - first)
            change = (content.quarters[0].label, since)
    cautious = scale.values(quantiles[levels.index(cautious_level(quantity.bound))])
    layers = speed_layers(grid, content.predicted, cautious, change)
    tiers = None
    if content.joint is not None:
        tiers, own = pack_tiers(shown, content.joint, content.tiers, law)
        steps |= own
        layers.append(tier_layer(content.predicted))
    return {
        "levels": list(levels),
        "quantiles": full,
        "past": past,
        "threshold": {
            "values": law.values,
            "shown": nearest_threshold(choices, np.median(quantiles[levels.index(0.5)])).value,
            "at_most": at_most,
        },
        "tiers": tiers,
        "layers": layers,
        "arrays": {},
        "steps": steps,
    }


def _past(
    quarters: Sequence[QuarterMap], most: int, decade: float
) -> tuple[dict[str, Any], Floats]:
    """Return the packed quantiles of quarters, and the rounded quantiles, (3, q, n)."""
    tiles = quarters[0].tiles
    quantiles = np.stack(
        [quantiles_of(quarter.prediction, PAST_LEVELS) for quarter in quarters], axis=1
    )
    packed = pack_within(lambda step: pack_past(tiles, quantiles, step), most, decade=decade)
    step = packed[0]["step"]
    past = {"frame": asdict(Frame.of_tiles(tiles)), "quantiles": packed}
    return past, np.round(quantiles / step) * step


def _cells_of(tiles: Tiles, larger: Tiles) -> NDArray[np.int64]:
    """Return for each tile the position of the tile among `larger` that contains it."""
    frame, shift = Frame.of_tiles(larger), tiles.zoom - larger.zoom
    numbers = frame.place(larger, np.arange(len(larger)), -1)
    return np.asarray(
        numbers[(tiles.row >> shift) - frame.row, (tiles.column >> shift) - frame.column]
    )


def _by_arrays(grid: xr.Dataset, content: PageContent) -> dict[str, Any]:
    """Return past, layers, arrays and steps of a map of numbers of tests or of classes."""
    quantity = quantity_of(str(grid.attrs["target"]))

    def packed(quarters: Sequence[QuarterMap]) -> dict[str, Packed]:
        return _class_arrays(quarters, quantity) if quantity.classes else _count_arrays(quarters)

    shown = packed([content.quarters[content.shown]])
    past = content.past and {
        "frame": asdict(Frame.of_tiles(content.past[0].tiles)),
        "arrays": packed(content.past),
    }
    return {
        "levels": None,
        "quantiles": None,
        "past": past or None,
        "threshold": None,
        "tiers": None,
        "layers": array_layers(grid, content.predicted),
        "arrays": shown,
        "steps": {name: array["step"] for name, array in shown.items()},
    }


def _rasters(quarters: Sequence[QuarterMap], values: Sequence[NDArray[Any]]) -> Floats:
    """Return the values of quarters as rasters (q, h, w), with NaN outside the region."""
    tiles = quarters[0].tiles
    frame = Frame.of_tiles(tiles)
    return np.stack([frame.place(tiles, np.asarray(row, np.float64), np.nan) for row in values])


def _count_arrays(quarters: Sequence[QuarterMap]) -> dict[str, Packed]:
    predictions = [quarter.prediction for quarter in quarters]
    ends = [prediction.interval(0.95) for prediction in predictions]
    none = _rasters(quarters, [prediction.cdf(0.0) for prediction in predictions])
    return {
        "expected": _within(
            _rasters(quarters, [prediction.mean for prediction in predictions]), 0.01
        ),
        "lower": _within(_rasters(quarters, [lower for lower, _ in ends]), 1.0),
        "upper": _within(_rasters(quarters, [upper for _, upper in ends]), 1.0),
        "none": pack(none, _SHARE_STEP, 8, none=True, along=True),
    }


def _class_arrays(quarters: Sequence[QuarterMap], quantity: Quantity) -> dict[str, Packed]:
    flags = [quarter.prediction.flags(quantity) for quarter in quarters]
    variables = [quarter.prediction.variables(quantity, LEVEL) for quarter in quarters]

    def packed(name: str, step: float) -> Packed:
        arrays = flags if name in flags[0] else variables
        values = _rasters(quarters, [array[name][0] for array in arrays])
        return pack(values, step, 8, none=True, offset=0.0, along=True)

    steps = dict.fromkeys((*quantity.at_least, "p_most_probable"), _SHARE_STEP)
    steps |= dict.fromkeys(flags[0], 1.0) | {"entropy": _ENTROPY_STEP}
    return {name: packed(name, step) for name, step in steps.items()}


def _within(values: Floats, step: float) -> Packed:
    """Return values of 0 or more, packed in 16 bits, or in 32 bits if a value is large.

    If 32 bits are not enough, the step is increased, but values above 0 stay above 0.
    """
    highest = float(np.nanmax(values)) / step
    if highest > _MAX_OF_32:
        step *= int(np.ceil(highest / _MAX_OF_32))
        values = np.where(values > 0, np.maximum(values, step), values)
    bits = 16 if highest < _MAX_OF_16 else 32
    return pack(values, step, bits, none=True, offset=0.0, along=values.ndim == 3)


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
        numbers, counties = content.county
        raster = frame.place(content.tiles, numbers, np.nan)
        bits = 8 if len(counties) < 256 else 16
        arrays["county"] = pack(raster, 1.0, bits, none=True, offset=0.0)
        names["county"] = counties
    return arrays, names


def _provider_arrays(grid: xr.Dataset) -> dict[str, Packed]:
    """Return the median of each provider near its own measurements, by the name of its view."""
    values = {
        view.name: np.where(veiled(grid, view.variable), np.nan, view.values(grid))
        for view in views_of(grid)
        if PROVIDER in grid[view.variable].attrs
    }
    if quantity_of(str(grid.attrs["target"])).scale.logarithmic:
        return {name: _within(medians, _MEDIAN_STEP) for name, medians in values.items()}
    return {name: pack(medians, _MEDIAN_STEP, 16, none=True) for name, medians in values.items()}


def _tests(grid: xr.Dataset) -> Floats:
    """Return the number of tests on each tile, NaN outside the region."""
    tests = np.asarray(grid["tests"].values, np.float64)
    return np.where(tests >= 0, tests, np.nan)


def _measured(grid: xr.Dataset, content: PageContent, frame: Frame) -> Packed | None:
    """Return the measured averages, packed in the order of the frame's cells."""
    averages, quantity = content.measured, quantity_of(str(grid.attrs["target"]))
    if averages is None or quantity.classes or not np.isfinite(averages).any():
        return None
    down, across = frame.pixels(content.tiles)
    tests = grid["tests"].values[down, across] > 0
    order = np.argsort((down * frame.width + across)[tests])
    if quantity.counted:
        return pack(averages[:, order], 1.0, 32, none=True)
    scale = quantity.scale
    return pack(scale.modelled(averages[:, order]), _MEASURED_STEP * scale.decade, 16, none=True)


def _level(grid: xr.Dataset) -> Packed | None:
    """Return the packed level of a grid; None if the grid has none."""
    quantity = quantity_of(str(grid.attrs["target"]))
    if f"level_{quantity.suffix}" not in grid:
        return None
    scale = quantity.scale
    values = scale.modelled(np.asarray(grid[f"level_{quantity.suffix}"].values, np.float64))

    def packed(step: float) -> list[Packed]:
        return [pack(values, step, 16, none=True)]

    return pack_within(packed, LEVEL_TEXT, decade=scale.decade)[0]


def _slices(content: PageContent, frame: Frame) -> list[Packed]:
    if not content.slices:
        return []
    values = check_slices(content.tiles, content.slices)
    step = float(np.ptp(values)) / _SLICE_STEPS or 1.0
    offset = float(np.floor(values.min() / step) * step)
    return [
        pack(frame.place(content.tiles, row, np.nan), step, 8, none=True, offset=offset)
        for row in values
    ]


def _kernel(content: PageContent, target: str) -> dict[str, Any] | None:
    basis = content.kernel
    if basis is None:
        return None
    return {
        "frame": asdict(basis.frame),
        "components": basis.components,
        "error": basis.error,
        "error_in_middles": basis.error_in_middles,
        "unit": quantity_of(target).kernel_unit,
    }
