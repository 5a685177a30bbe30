"""Small pictures of finished maps, with one colour scale for all pictures of a kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from geogp.errors import DataError, RequestError
from geogp.files import sha256_of
from geogp.maps.figures.figure_layout import extend_of
from geogp.maps.figures.map_figures import VEIL
from geogp.maps.scales import LEVELS, Bytes, Scale, paletted_png
from geogp.maps.views import View, veiled, views_of

MAX_PIXELS = 320
"""Largest length of the longer side of a thumbnail, in pixels."""


_DAMAGE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    RuntimeError,  # errors of HDF5
    AttributeError,
    RequestError,
)
"""Errors that a damaged file can cause, depending on which byte is damaged."""


@dataclass(frozen=True)
class Picture:
    """The main view of a map at a lower resolution.

    `values` (height, width) have row 0 in the north and NaN outside the region. `veiled`, with the
    same shape, is true for pixels whose tiles are mostly far from any measurement. `scale` is the
    colour scale of the map in its page and figure, and `ends` are the least and the largest value
    of the map.
    """

    view: View
    values: NDArray[np.float64]
    veiled: NDArray[np.bool_]
    scale: Scale
    ends: tuple[float, float]


@dataclass(frozen=True)
class Thumbnails:
    """Pictures of the same view with one colour scale.

    `images` are PNG files in the order of the pictures; `label` names the values and the unit.
    `bar` is the scale as a PNG file one pixel high, with low values on the left. Each tick is a
    position on the bar, in percent of the bar's length from the left, and a text. `arrows` are the
    colours of the two ends of the bar, or None if no value lies beyond the end.
    """

    images: tuple[bytes, ...]
    label: str
    bar: bytes
    ticks: tuple[tuple[float, str], ...]
    arrows: tuple[str | None, str | None]


def read_picture(path: Path, *, most: int = MAX_PIXELS, sha256: str | None = None) -> Picture:
    """Read the main view of ``grid.nc`` (median, expected number or class) at a lower resolution.

    Each block of k by k tiles becomes one pixel with the median of the block. k is the smallest
    number for which neither side has more than `most` pixels. If `sha256` is given, it is compared
    with the hash of the file first, because HDF5 can run for ever on a damaged file. Raises
    DataError if the hash differs, or if the file is missing, is damaged, is not a map of geogp, or
    has no value.
    """
    if sha256 is not None and path.is_file() and sha256_of(path) != sha256:
        raise DataError(
            f"{path} is not the map that the run wrote. Run `geogp map` again with --fresh."
        )
    try:
        with xr.open_dataset(path, engine="h5netcdf") as grid:
            view = views_of(grid)[0]
            values = view.values(grid)
            far = veiled(grid) & np.isfinite(values)
            scale = view.make_scale(values, label=view.label, palette=view.palette)
    except _DAMAGE as error:
        raise DataError(
            f"expected a map in {path}, but the file cannot be read ({error})."
        ) from error
    if values.ndim != 2 or not np.isfinite(values).any():
        raise DataError(f"expected a map in {path}, but its variable {view.variable} has no value.")
    step = -(-max(values.shape) // most)
    reduced = _medians(values, step)
    shares = _sums(far, step) / np.maximum(_sums(np.isfinite(values), step), 1)
    ends = float(np.nanmin(values)), float(np.nanmax(values))
    return Picture(view, reduced, shares > 0.5, scale, ends)


def draw_thumbnails(pictures: Sequence[Picture]) -> Thumbnails:
    """Draw pictures of the same view with one colour scale.

    The scale is that of the maps; if their scales differ, it is from the lowest to the highest of
    their ends. Raises DataError if there is no picture, or the pictures have different views.
    """
    labels = {picture.view.label for picture in pictures}
    if len(labels) != 1:
        raise DataError(
            f"expected pictures of one view, found {', '.join(sorted(labels)) or 'none'}."
        )
    scale = _scale_of(pictures)
    colours = _colours(scale)
    beyond = extend_of(np.array([picture.ends for picture in pictures]), scale)
    first, last = (to_hex(colour) for colour in scale.colours()[[1, -1], :3] / 255)
    return Thumbnails(
        tuple(_draw(picture, scale, colours) for picture in pictures),
        pictures[0].view.label,
        paletted_png(np.arange(1, LEVELS + 1, dtype=np.uint8)[None], scale.colours()),
        tuple(
            (100 * float(scale.fraction(tick)), text)
            for tick, text in zip(scale.ticks, scale.labels, strict=True)
        ),
        (
            first if beyond in {"min", "both"} else None,
            last if beyond in {"max", "both"} else None,
        ),
    )


def _scale_of(pictures: Sequence[Picture]) -> Scale:
    scales = {picture.scale for picture in pictures}
    if len(scales) == 1:
        return scales.pop()
    view = pictures[0].view
    ends = min(scale.low for scale in scales), max(scale.high for scale in scales)
    # Many copies, because the ends of a scale are percentiles.
    return view.make_scale(np.repeat(ends, 100), label=view.label, palette=view.palette)


def _draw(picture: Picture, scale: Scale, colours: Bytes) -> bytes:
    indices = scale.indices(picture.values)
    behind = picture.veiled & (indices > 0)
    return paletted_png(np.where(behind, indices + LEVELS, indices).astype(np.uint8), colours)


def _colours(scale: Scale) -> Bytes:
    """Return the colours of a scale, then the same colours covered with grey."""
    plain = scale.colours()
    shade, opacity = np.array(VEIL[:3]) * 255, VEIL[3]
    behind = plain[1:].copy()
    behind[:, :3] = np.rint(opacity * shade + (1 - opacity) * behind[:, :3]).astype(np.uint8)
    return np.vstack([plain, behind])


def _medians(values: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    blocks = np.sort(_blocks(values, step, np.nan), axis=2)  # NaN last
    count = np.isfinite(blocks).sum(2)
    middle = np.maximum(count - 1, 0) // 2
    return np.take_along_axis(blocks, middle[:, :, None], axis=2)[:, :, 0]


def _sums(mask: NDArray[np.bool_], step: int) -> NDArray[np.int64]:
    return np.asarray(_blocks(mask, step, fill=False).sum(2), np.int64)


def _blocks(values: NDArray, step: int, fill: float) -> NDArray:  # type: ignore[type-arg]
    """Return blocks of step by step cells, shape (rows, columns, step²), padded with `fill`."""
    room = [(0, -size % step) for size in values.shape]
    padded = np.pad(values, room, constant_values=fill)
    rows, columns = (size // step for size in padded.shape)
    parts = padded.reshape(rows, step, columns, step).swapaxes(1, 2)
    return parts.reshape(rows, columns, step * step)
