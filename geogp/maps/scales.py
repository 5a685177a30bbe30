"""Colour scales with round numbers, and rasters as small paletted PNG images."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from geogp.errors import DataError
from geogp.value_scales import scale_of

LEVELS = 96
"""Number of colours of a scale. More colours would look the same, but make files larger."""

SPEED_PALETTE = "viridis"
BOUND_PALETTE = "YlGnBu_r"
WIDTH_PALETTE = "magma"
PROBABILITY_PALETTE = "cividis"
TESTS_PALETTE = "Greys"
CHANGE_PALETTE = "PuOr"
SEQUENTIAL_KERNEL_PALETTE = "YlOrBr"
DIVERGING_KERNEL_PALETTE = "RdBu_r"

_LADDERS = (
    (1, 1.5, 2, 3, 4, 5, 6, 8),
    (1, 2, 3, 5),
    (1, 2, 5),
    (1, 3),
    (1,),
)
_FACTORS = (1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 2, 3, 5, 10, 20, 50, 100)
_MAX_TICKS = 7
_TICK_ROOM = 0.1  # least distance between two labels, as a share of the scale
_CLIPPED_PERCENT = 1.0

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Scale:
    """A colour scale: a function from values to colours.

    `label` names the values and the unit; `palette` is a matplotlib colour map that is suitable for
    colour-blind readers and for print. `low`, `high` and `ticks` are round numbers; values beyond
    an end have the colour of the end. If `logarithmic`, equal distances on the scale are equal
    factors; `shift` is added before the logarithm, because counts may be 0. A scale of classes has
    their `names`; its values are numbers of classes, and each class has one colour. If `factors`,
    values are log10 of factors, and their texts are factors.
    """

    label: str
    palette: str
    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]
    shift: float = 0.0
    names: tuple[str, ...] = ()
    factors: bool = False

    @property
    def labels(self) -> list[str]:
        """The text of each tick."""
        return list(self.names) or [self.text(tick) for tick in self.ticks]

    def text(self, value: float, digits: int = 6) -> str:
        """Return a value as text, with at most so many significant digits."""
        shown = format_tick(float(f"{10**value if self.factors else value:.{digits}g}"))
        return f"\N{MULTIPLICATION SIGN}{shown}" if self.factors else shown

    @property
    def colour_map(self) -> Colormap:
        """The palette, with one colour for each class of a scale of classes."""
        palette = mpl.colormaps[self.palette]
        if not self.names:
            return palette
        k = len(self.names)
        return ListedColormap(palette((np.arange(k) + 0.5) / k))

    def fraction(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return positions on the scale, from 0 (at `low` or below) to 1; NaN gives NaN."""
        values = np.asarray(values, np.float64)
        if not self.logarithmic:
            return np.asarray(np.clip((values - self.low) / (self.high - self.low), 0, 1))
        low, high = self.low + self.shift, self.high + self.shift
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.log((values + self.shift) / low) / np.log(high / low)
        return np.asarray(np.clip(place, 0, 1))

    def values_at(self, fraction: ArrayLike) -> NDArray[np.float64]:
        """Return the values at positions on the scale, from 0 to 1; the inverse of `fraction`."""
        place, low, high = np.asarray(fraction, np.float64), self.low, self.high
        if not self.logarithmic:
            return np.asarray(low + place * (high - low))
        low, high = low + self.shift, high + self.shift
        return np.asarray(low * (high / low) ** place - self.shift)

    def indices(self, values: NDArray[np.floating]) -> Bytes:
        """Return palette indices: 0 for NaN, 1 to `LEVELS` for values."""
        place = self.fraction(values)
        level = np.minimum(np.nan_to_num(place) * LEVELS, LEVELS - 1).astype(np.uint8)
        return np.where(np.isnan(place), 0, level + 1).astype(np.uint8)

    def colours(self) -> Bytes:
        """Return the RGBA colour of each index, (LEVELS + 1, 4); index 0 is transparent."""
        return palette_colours(self.colour_map)


def palette_colours(palette: Colormap) -> Bytes:
    """Return `LEVELS` colours of a palette after a transparent colour, RGBA (LEVELS + 1, 4)."""
    shades = palette((np.arange(LEVELS) + 0.5) / LEVELS, bytes=True)
    return np.vstack([np.zeros((1, 4), np.uint8), shades]).astype(np.uint8)


def speed_scale(values: NDArray[np.floating], *, label: str, palette: str) -> Scale:
    """Return a logarithmic scale for positive values, with round numbers as ends.

    The ends are the 1st and 99th percentile, moved outward to round numbers. If the ends differ by
    less than a factor of 1.5, the scale is linear, because a logarithmic scale would not have round
    ticks. Raises DataError if no value is finite, or a value is not positive.
    """
    low, high = _range_of(values, label)
    if np.nanmin(values) <= 0:
        raise DataError(f"expected positive values for {label}, found {np.nanmin(values):.3g}.")
    if high / low < 1.5:
        return linear_scale(values, label=label, palette=palette)
    low, *_, high = round_ladder(_LADDERS[0], low, high)
    for ladder in _LADDERS:
        steps = _ladder_values(ladder, low, high)
        room = (high / low) ** _TICK_ROOM
        inner = steps[(steps > low * room) & (steps < high / room)]
        if len(inner) + 2 <= _MAX_TICKS:
            break
    ticks = (low, *inner.tolist(), high)
    return Scale(label, palette, low, high, logarithmic=True, ticks=ticks)


def count_scale(values: NDArray[np.floating], *, label: str, palette: str) -> Scale:
    """Return a scale from 0, logarithmic in count + 1; raise DataError if no value is finite."""
    _, high = _range_of(values, label)
    top = round_ladder((1, 2, 5), 1.0, max(high, 2.0))[-1]
    for ladder in ((1, 2, 5), (1, 3), (1,)):
        inner = _ladder_values(ladder, 1.0, top)
        inner = inner[inner + 1 < (top + 1) ** (1 - _TICK_ROOM)]
        if len(inner) + 2 <= _MAX_TICKS:
            break
    ticks = (0.0, *inner.tolist(), top)
    return Scale(label, palette, 0.0, top, logarithmic=True, ticks=ticks, shift=1.0)


def share_scale(values: NDArray[np.floating], *, label: str, palette: str) -> Scale:
    """Return a linear scale from 0 to 1 for any values; raise DataError if no value is finite."""
    _range_of(values, label)
    return Scale(label, palette, 0.0, 1.0, logarithmic=False, ticks=(0, 0.2, 0.4, 0.6, 0.8, 1))


def linear_scale(values: NDArray[np.floating], *, label: str, palette: str) -> Scale:
    """Return a linear scale with round numbers as ends; raise DataError if no value is finite."""
    return _linear(*_range_of(values, label), label, palette)


def width_scale(values: NDArray[np.floating], *, label: str, palette: str, unit: str) -> Scale:
    """Return a linear scale for widths of intervals of values of a unit.

    Widths of log10 are log10 of factors, and its ticks are round factors. Raises DataError if no
    value is finite.
    """
    if not scale_of(unit).logarithmic:
        return linear_scale(values, label=label, palette=palette)
    made = speed_scale(10.0 ** np.asarray(values), label=label, palette=palette)
    low, *_, high = ticks = tuple(np.log10(made.ticks).tolist())
    return replace(made, low=low, high=high, ticks=ticks, logarithmic=False, factors=True)


def change_scale(
    values: NDArray[np.floating], *, label: str, palette: str = CHANGE_PALETTE
) -> Scale:
    """Return a scale for changes in per cent, above -100, on which 0 is in the middle.

    Equal distances are equal factors: a doubling (+100 %) is as far from 0 as a halving (-50 %).
    Raises DataError if no value is finite.
    """
    ends = np.array(_range_of(values, label))
    wanted = min(float(np.exp(np.abs(np.log(ends / 100 + 1)).max())), _FACTORS[-1])
    top = next(k for k, factor in enumerate(_FACTORS) if factor >= wanted)
    factors_shown = _FACTORS[max(0, top - 2) : top + 1 : 2]
    changes = [100 * (1 / factor - 1) for factor in reversed(factors_shown)]
    changes += [0.0, *(100 * (factor - 1) for factor in factors_shown)]
    ticks = tuple(float(f"{change:.3g}") for change in changes)
    return Scale(label, palette, ticks[0], ticks[-1], logarithmic=True, ticks=ticks, shift=100)


def difference_scale(
    values: NDArray[np.floating], *, label: str, palette: str = CHANGE_PALETTE
) -> Scale:
    """Return a linear scale with 0 in the middle; raise DataError if no value is finite."""
    reach = max(map(abs, _range_of(values, label)))
    return _linear(-reach, reach, label, palette)


def value_scale(values: NDArray[np.floating], *, label: str, palette: str, unit: str) -> Scale:
    """Return a scale for values of a unit: logarithmic for a speed, linear for decibels and shares.

    Shares end at 0 or 100 %.
    """
    make = speed_scale if scale_of(unit).logarithmic else linear_scale
    made, most = make(values, label=label, palette=palette), scale_of(unit).most
    if most is None:
        return made
    ticks = tuple(tick for tick in made.ticks if 0 <= tick <= most)
    return replace(made, low=max(made.low, 0.0), high=min(made.high, most), ticks=ticks)


def change_scale_of(unit: str) -> Callable[..., Scale]:
    """Return what makes the scale for changes in a unit: per cent, decibels or points."""
    return change_scale if unit == "%" else difference_scale


def class_scale(
    values: NDArray[np.floating], *, label: str, palette: str, names: tuple[str, ...]
) -> Scale:
    """Return a scale of numbers of classes; raise DataError if no value is finite."""
    _range_of(values, label)
    k = len(names)
    ticks = tuple(map(float, range(k)))
    return Scale(label, palette, -0.5, k - 0.5, logarithmic=False, ticks=ticks, names=names)


def kernel_scale(values: NDArray[np.floating], *, label: str) -> Scale:
    """Return one scale for kernel slices, symmetric about 0 if some values are clearly negative.

    If values are not negative, the scale starts at 0. But if all values are above half the largest
    value, the scale starts at a round number near the lowest value, because a scale from 0 would
    show nearly one colour. The scale includes the largest value, k(x_ref, x_ref), because readers
    compare other values with it. Raises DataError if no value is finite.
    """
    _range_of(values, label)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < -0.02 * max(high, 0.0):
        reach = max(high, -low)
        return _linear(-reach, reach, label, DIVERGING_KERNEL_PALETTE)
    return _linear(low if low > high / 2 else 0.0, high, label, SEQUENTIAL_KERNEL_PALETTE)


def round_ladder(ladder: tuple[float, ...], low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`, each an element of `ladder` times a power of 10.

    Examples
    --------
    >>> round_ladder((1, 2, 5), 3.0, 40.0)
    [2.0, 5.0, 10.0, 20.0, 50.0]
    """
    values = _ladder_values(ladder, low / 10, high)
    first = values[values <= low * (1 + 1e-9)][-1]
    last = values[values >= high * (1 - 1e-9)][0]
    return list(map(float, values[(values >= first) & (values <= last)]))


def format_tick(value: float) -> str:
    """Return the text of a tick, with commas between thousands and a minus sign.

    Examples
    --------
    >>> [format_tick(v) for v in (0.30000000000000004, 1000.0, 2.0, -0.5)]
    ['0.3', '1,000', '2', '\u22120.5']
    """
    return f"{value:,.6g}".replace("-", "\N{MINUS SIGN}")


def paletted_png(indices: Bytes, colours: Bytes) -> bytes:
    """Return a PNG image of 8-bit palette indices (height, width), row 0 at the top.

    `colours` (k, 4) has the RGBA colour of each index. Raises DataError if there are more than 256
    colours, or an index has no colour.
    """
    if len(colours) > 256 or (indices.size and int(indices.max()) >= len(colours)):
        raise DataError(
            "expected at most 256 colours, and indices below the number of colours; found "
            f"{len(colours)} colours and indices up to {int(indices.max(initial=0))}."
        )
    image = Image.fromarray(indices)
    image.putpalette(colours[:, :3].tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True, transparency=colours[:, 3].tobytes())
    return stream.getvalue()


def _range_of(values: NDArray[np.floating], label: str) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        raise DataError(f"expected finite values to draw for {label}, found none.")
    low, high = np.percentile(finite, [_CLIPPED_PERCENT, 100 - _CLIPPED_PERCENT])
    return float(low), float(high)


def _ladder_values(ladder: tuple[float, ...], low: float, high: float) -> NDArray[np.float64]:
    decades = range(int(np.floor(np.log10(low))), int(np.floor(np.log10(high))) + 2)
    return np.array([float(f"{step}e{decade}") for decade in decades for step in ladder])


def _linear(low: float, high: float, label: str, palette: str) -> Scale:
    if high - low <= 1e-6 * max(abs(low), abs(high), 1e-300):
        spread = max(abs(high), 1e-12) * 0.1
        low, high = (low - spread, high + spread) if low != 0 else (0.0, spread)
    steps = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    ticks = tuple(float(f"{step:.9g}") for step in steps)
    return Scale(label, palette, ticks[0], ticks[-1], logarithmic=False, ticks=ticks)
