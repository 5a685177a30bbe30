"""The predictions in a page: rounded quantiles, and probabilities computed from the quantiles.

Between the quantiles of a tile, the normal score z = Phi^-1(level) is interpolated linearly in
log10 of the value, or in its decibels; beyond the quantiles, z is extrapolated. The interpolation
is exact for a normal distribution. For other distributions, the page contains all quantiles that it
shows, and more quantiles until probabilities are accurate enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from geogp.distributions.prediction import Prediction
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.frame import Floats, Frame
from geogp.maps.page.packing import Packed, filled, pack, text_bytes, unpack
from geogp.maps.scales import round_ladder
from geogp.maps.target_quantities import quantity_of

SAMPLE = 20_000
"""Errors are computed for at most this number of tiles, evenly spaced among all tiles."""

STEPS = (0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03)
"""Rounding steps of log10 of the value, tried from the smallest; 0.002 is half a percent.

The steps of decibels are ten times as large, which is as exact for a power.
"""

SHOWN_LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Levels of the quantiles that the page shows: the median, and the ends of three intervals.

The levels of the intervals are 50, 80 and 95 %.
"""

PAST_LEVELS = (0.025, 0.5, 0.975)
"""Levels of the quantiles that the page contains for quarters other than the shown quarter."""

_FURTHER = (0.01, 0.15, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.85, 0.99)
_MAX_LEVELS = 11
_ENOUGH = 0.005
_CHOSEN_ON = 500
_ROWS = 1 << 16
_MAX_VALUES = 40
_NARROWEST = 1e-9


@dataclass(frozen=True)
class QuarterMap:
    """Predictions for n tiles of any zoom in one quarter; an example of `label` is ``2023Q4``."""

    label: str
    tiles: Tiles
    prediction: Prediction


@dataclass(frozen=True)
class PackedLaw:
    """The predictions of a target in the shown quarter, for m levels and n tiles.

    `quantiles` (m, n) are exact, `decoded` (m, n) are what a page reads from `packed`. `values` are
    thresholds for a slider, in the unit of the target, sorted.
    """

    levels: tuple[float, ...]
    quantiles: Floats
    packed: list[Packed]
    decoded: Floats
    values: list[float]


def cautious_level(bound: str) -> float:
    """Return the level of the cautious bound: 0.05 for a lower bound, 0.95 for an upper bound."""
    return 0.05 if bound == "lower" else 0.95


def choose_levels(prediction: Prediction, bound: str) -> tuple[float, ...]:
    """Return the levels of the quantiles that a page contains, at most eleven, in ascending order.

    For normal distributions, the levels are 0.025, 0.5, 0.975 and `cautious_level`, which determine
    all other quantiles. For other distributions, the first levels are `SHOWN_LEVELS` and
    `cautious_level`, because the page shows these quantiles. Then levels are added, each
    time the level that reduces the largest error of probabilities most, until it is at most half a
    percent. This error is computed at the 1st to 99th percentile of the predictions for some tiles.
    """
    linear = prediction.shape.linear_scores
    first = tuple(sorted({*(PAST_LEVELS if linear else SHOWN_LEVELS), cautious_level(bound)}))
    few = prediction[evenly_spaced(len(prediction), _CHOSEN_ON)]
    percents = np.arange(1, 100)
    at = quantiles_of(few, percents / 100)
    rows = {level: round(100 * level) - 1 for level in _FURTHER}
    quantiles = dict(zip(first, quantiles_of(few, first), strict=True))

    def error(levels: tuple[float, ...]) -> float:
        reached = ndtr(normal_scores(np.stack([quantiles[level] for level in levels]), levels, at))
        return float(np.abs(reached - percents[:, None] / 100).max())

    quantiles |= {level: at[row] for level, row in rows.items()}
    levels = first
    while error(levels) > _ENOUGH and len(levels) < _MAX_LEVELS:
        tried = [tuple(sorted({*levels, level})) for level in _FURTHER if level not in levels]
        levels = min(tried, key=error)
    return levels


def packed_law(
    shown: QuarterMap, target: str, thresholds: Sequence[Threshold], most: int
) -> PackedLaw:
    """Return the packed predictions of a target in the shown quarter, in at most `most` bytes.

    `thresholds` are among the values of the slider, and other values are round numbers.
    """
    quantity = quantity_of(target)
    scale = quantity.scale
    levels = choose_levels(shown.prediction, quantity.bound)
    quantiles = quantiles_of(shown.prediction, levels)
    packed = pack_within(
        lambda step: pack_quantiles(shown.tiles, quantiles, levels, step), most, decade=scale.decade
    )
    pixels = Frame.of_tiles(shown.tiles).pixels(shown.tiles)
    ends = np.percentile(quantiles[[0, -1]], [1, 99], axis=1)[[0, 1], [0, 1]]
    low, high = scale.values(ends).tolist()
    values = slider_values(low, high, thresholds, factors=scale.logarithmic)
    if scale.most is not None:
        values = [value for value in values if 0 < value < scale.most]
    decoded = unpack_quantiles(packed, levels)[(slice(None), *pixels)]
    return PackedLaw(levels, quantiles, packed, decoded, values)


def quantiles_of(prediction: Prediction, levels: Sequence[float] | Floats) -> Floats:
    """Return the quantiles at m levels, (m, n), computed in chunks of points."""
    quantiles = np.empty((len(levels), len(prediction)))
    for start in range(0, len(prediction), _ROWS):
        rows = slice(start, start + _ROWS)
        chunk = prediction[rows]
        for place, level in enumerate(levels):
            quantiles[place, rows] = chunk.quantile(float(level))
    return quantiles


def normal_scores(quantiles: Floats, levels: Sequence[float], at: Floats) -> Floats:
    """Return the interpolated normal scores of values, float64 (t, n); P(y <= value) = Phi(score).

    `quantiles` (m, n) are the quantiles at m ascending `levels`. `at` has t values for each tile,
    (t, n), or the same t values for all tiles, (t, 1).
    """
    z = ndtri(np.asarray(levels))
    scores = np.empty((len(at), quantiles.shape[1]))
    columns = np.arange(quantiles.shape[1])
    for place, values in enumerate(np.broadcast_to(at, scores.shape)):
        # Values beyond the ends use the first or the last piece of the interpolation.
        piece = np.clip((quantiles <= values).sum(axis=0) - 1, 0, len(z) - 2)
        low, high = quantiles[piece, columns], quantiles[piece + 1, columns]
        share = (values - low) / np.maximum(high - low, _NARROWEST)
        scores[place] = z[piece] + share * (z[piece + 1] - z[piece])
    return scores


def probabilities(
    quantiles: Floats, levels: Sequence[float], thresholds: ArrayLike, *, at_most: bool
) -> Floats:
    """Return the probabilities (t, n) that values are at least (or at most) t thresholds.

    Quantiles and thresholds are values of the model.
    """
    scores = normal_scores(quantiles, levels, np.asarray(thresholds)[:, None])
    return np.asarray(ndtr(scores if at_most else -scores))


def slider_values(
    low: float, high: float, thresholds: Sequence[Threshold], *, factors: bool = True
) -> list[float]:
    """Return round numbers from `low` to `high`, and the thresholds of the run, sorted.

    With `factors`, they grow by factors; otherwise, they are multiples of a round number.
    """
    values = _round_factors(low, high) if factors else _round_multiples(low, high)
    return sorted({*values, *(threshold.value for threshold in thresholds)})


def _round_multiples(low: float, high: float) -> list[float]:
    steps = (step * 10.0**power for power in range(7) for step in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step < _MAX_VALUES - 2)
    first, last = np.floor(low / step), np.ceil(high / step)
    return list(map(float, step * np.arange(first, last + 1)))


def _round_factors(low: float, high: float) -> list[float]:
    ladders: tuple[tuple[float, ...], ...] = (
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8),
        (1, 1.5, 2, 3, 4, 5, 7),
        (1, 2, 3, 5, 7),
        (1, 2, 5),
        (1,),
    )
    for ladder in ladders:
        values = round_ladder(ladder, low, high)
        if len(values) <= _MAX_VALUES:
            break
    return values


def pack_quantiles(
    tiles: Tiles, quantiles: Floats, levels: Sequence[float], step: float
) -> list[Packed]:
    """Return the packed median, and packed distances from each quantile to the next one outward.

    `quantiles` (m, n) are rounded to whole steps before the distances are computed, so each error
    is at most half a step.
    """
    frame = Frame.of_tiles(tiles)
    numbers = np.round(quantiles / step)
    middle = list(levels).index(0.5)
    planes = []
    for place in range(len(levels)):
        if place == middle:
            raster = frame.place(tiles, numbers[place] * step, np.nan)
            planes.append(pack(raster, step, 16, none=True))
            continue
        inward = numbers[place + (1 if place < middle else -1)]
        gap = np.abs(numbers[place] - inward)
        raster = filled(frame.place(tiles, gap * step, np.nan))
        bits = 8 if gap.max() < 256 else 16
        planes.append(pack(raster, step, bits, none=False, offset=0.0) | {"gap": True})
    return planes


def pack_past(tiles: Tiles, quantiles: Floats, step: float) -> list[Packed]:
    """Return packed medians, lower half-widths, and differences of upper and lower half-widths.

    `quantiles` (3, q, n) are the quantiles at `PAST_LEVELS` in q quarters. They are rounded to
    whole steps first, so each error is at most half a step.
    """
    frame = Frame.of_tiles(tiles)
    pixels = (slice(None), *frame.pixels(tiles))
    low, middle, high = np.round(quantiles / step)
    lower, upper = middle - low, high - middle
    planes = []
    for values in (middle, lower, upper - lower):
        rasters = np.full((len(values), frame.height, frame.width), np.nan)
        rasters[pixels] = values * step
        stacked = np.stack([filled(raster) for raster in rasters])
        planes.append(pack(stacked, step, 16, none=False, along=True))
    return planes


def past_quantiles(shown: Floats, levels: Sequence[float], past: Floats) -> Floats:
    """Return quantiles (m, n) of another quarter, with the shape of the shown distribution.

    `shown` (m, n) are the quantiles of the shown quarter at m levels, and `past` (3, n) the
    quantiles of the other quarter at `PAST_LEVELS`. Distances from the median are those of the
    shown quarter, times one factor below the median and one above. This is exact for normal
    distributions.
    """
    middle = list(levels).index(0.5)
    ends = [list(levels).index(PAST_LEVELS[0]), list(levels).index(PAST_LEVELS[2])]
    lower, upper = (np.abs(shown[end] - shown[middle]) for end in ends)
    factors = (past[1:] - past[:-1]) / np.maximum([lower, upper], _NARROWEST)
    below = (np.arange(len(levels)) < middle)[:, None]
    return np.asarray(past[1] + (shown - shown[middle]) * np.where(below, *factors))


def unpack_quantiles(planes: Sequence[Packed], levels: Sequence[float]) -> Floats:
    """Return packed quantiles as rasters (m, h, w), with NaN outside the region."""
    middle = list(levels).index(0.5)
    values = [unpack(plane) for plane in planes]
    for place in range(middle - 1, -1, -1):
        values[place] = values[place + 1] - values[place]
    for place in range(middle + 1, len(levels)):
        values[place] = values[place - 1] + values[place]
    return np.stack(values)


def pack_within(
    made: Callable[[float], list[Packed]], most: int, *, decade: float = 1.0
) -> list[Packed]:
    """Return what `made` packs with the smallest of `STEPS` that needs at most `most` bytes.

    If no step is large enough, this is the largest step. `decade` is that of the values' scale.
    """
    packed: dict[int, list[Packed]] = {}
    steps = [round(step * decade, 9) for step in STEPS]

    def fits(place: int) -> bool:
        packed[place] = made(steps[place])
        return text_bytes(packed[place]) <= most

    # Larger steps need fewer bytes, and packing takes long, so halve the steps that remain.
    low, high = (0, 0) if fits(0) else (1, len(STEPS) - 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return packed.get(low) or made(steps[low])


def probability_error(
    prediction: Prediction,
    decoded: Floats,
    levels: Sequence[float],
    thresholds: Floats,
    *,
    at_most: bool,
    cells: NDArray[np.int64] | None = None,
) -> tuple[float, int]:
    """Return the largest error of probabilities from decoded quantiles, and the number of tiles.

    The probabilities from `decoded` (m, n) are compared with `Prediction.cdf` or `exceedance` at
    each threshold, a value of the model, on all tiles or on evenly spaced tiles. `cells` (n,) are
    the positions of the tiles in `prediction`; by default, it has the same tiles.
    """
    rows = evenly_spaced(decoded.shape[1], SAMPLE)
    used, cell = np.unique(rows if cells is None else cells[rows], return_inverse=True)
    few = prediction[used]
    predicted = probabilities(decoded[:, rows], levels, thresholds, at_most=at_most)
    worst = 0.0
    for place, value in enumerate(thresholds):
        exact = few.cdf(value) if at_most else few.exceedance(value)
        worst = max(worst, float(np.abs(predicted[place] - exact[cell]).max()))
    return worst, len(rows)


def evenly_spaced(n: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` of the numbers below n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))
