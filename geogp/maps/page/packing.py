"""Packs arrays into short texts for a page: by rounding, differences, deflate and base64.

A packed array is a dictionary that can be written as JSON:

- ``shape``: [h, w], or [m, h, w] for m planes;
- ``bits``: number of bits (8, 16 or 32) of each number n, which is whole and not negative;
- ``step``, ``offset``, ``none``: value = offset + step · n. If ``none`` is true, n = 0 is no data,
  and value = offset + step · (n - 1) for other n;
- ``data``: for each n, the difference n - n', modulo 2^bits, where n' is the n of the cell to the
  left (in the first column: of the cell above) in the same plane. The lowest bytes of all
  differences come first, the highest bytes last. The bytes are deflated with the header of RFC 1950
  and written in base64;
- ``along``: if true, each n of a plane was first replaced by its difference from the n of the same
  cell in the plane before, modulo 2^bits.
"""

import base64
import json
import math
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError

Floats = NDArray[np.float64]
Packed = dict[str, Any]

MAX_VALUES = 1 << 28
"""Largest number of values of a packed array, computed from its ``shape``."""

LARGE = 1 << 19
"""Number of bytes from which an array is deflated at a faster level."""

_TYPES: dict[int, type[np.uint8] | type[np.uint16] | type[np.uint32]] = {
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
}


def pack(
    values: NDArray[Any],
    step: float,
    bits: int,
    *,
    none: bool | None = None,
    offset: float | None = None,
    along: bool = False,
) -> Packed:
    """Return a packed array, with each value rounded to the nearest offset + step · n.

    `values` have shape (h, w) or (m, h, w); NaN means no data. Unpacked values differ from `values`
    by at most step/2. `none` is true by default if a value is NaN. `offset` is the least value that
    can be packed; by default, it is the multiple of `step` at or below the least value. `along`
    stores differences between planes, which is shorter for planes in the order of time. Raises
    DataError if the shape does not fit, or a value is infinite, is NaN although `none` is false, is
    below the offset, or is too large for the bits.
    """
    values = np.asarray(values, np.float64)
    if values.ndim not in {2, 3} or not values.size or bits not in _TYPES or not step > 0:
        raise DataError(
            "expected values of shape (h, w) or (m, h, w), a positive step and 8, 16 or 32 bits, "
            f"found shape {values.shape}, step {step} and {bits} bits."
        )
    absent = np.isnan(values)
    none = bool(absent.any()) if none is None else none
    if np.isinf(values).any() or (absent.any() and not none):
        raise DataError("expected finite values, or NaN with none=True, found infinity or NaN.")
    present = values[~absent]
    if offset is None:
        least = float(present.min()) if present.size else 0.0
        offset = float(np.floor(least / step) * step)
    rounded = np.round((present - offset) / step)
    most = (1 << bits) - 1 - none
    if rounded.size and (rounded.min() < 0 or rounded.max() > most):
        raise DataError(
            f"expected values from {offset:g} to {offset + step * most:g}, which {bits} bits hold "
            f"in steps of {step:g}, found {present.min():g} to {present.max():g}. Choose more bits "
            "or a larger step."
        )
    numbers = np.zeros(values.shape, _TYPES[bits])
    numbers[~absent] = (rounded + none).astype(_TYPES[bits])
    return {
        "shape": list(values.shape),
        "step": float(step),
        "offset": offset,
        "none": none,
        "bits": bits,
        "along": along,
        "data": _encoded(numbers, along=along),
    }


def unpack(packed: Packed) -> Floats:
    """Return the values of a packed array, float64, with NaN for no data.

    Raises DataError if `packed` does not have the form that `pack` returns.
    """
    _check_packed(packed)
    shape = tuple(packed["shape"])
    kind = np.dtype(_TYPES[packed["bits"]])
    size = math.prod(shape) * kind.itemsize
    raw = np.frombuffer(_inflated(packed["data"], size), np.uint8)
    if len(raw) != size:
        raise DataError(f"expected a packed array of shape {shape}, found {len(raw)} bytes.")
    planes = raw.reshape(kind.itemsize, *shape).astype(kind)
    numbers = planes[0]
    for place, plane in enumerate(planes[1:], start=1):
        numbers |= plane << kind.type(8 * place)
    numbers[..., 0] = np.cumsum(numbers[..., 0], axis=-1, dtype=kind)
    numbers = np.cumsum(numbers, axis=-1, dtype=kind)
    if packed["along"]:
        numbers = np.cumsum(numbers, axis=0, dtype=kind)
    none = packed["none"]
    values: Floats = packed["offset"] + packed["step"] * (numbers.astype(np.float64) - none)
    return np.where(numbers == 0, np.nan, values) if none else values


def _check_packed(packed: Packed) -> None:
    """Raise DataError unless an array has the form that `pack` returns."""
    fields = packed if isinstance(packed, dict) else {}
    shape, bits = fields.get("shape"), fields.get("bits")
    sides = (
        [side for side in shape if type(side) is int and side > 0] if type(shape) is list else []
    )
    numbers = [fields.get("step", ""), fields.get("offset", "")]
    if not (
        len(sides) in {2, 3}
        and sides == shape
        and math.prod(sides) <= MAX_VALUES
        and type(bits) is int
        and bits in _TYPES
        and all(
            type(number) in {int, float} and abs(number) <= sys.float_info.max for number in numbers
        )
        and type(fields.get("none")) is bool
        and type(fields.get("along")) is bool
        and len(sides) >= 2 + fields["along"]
        and type(fields.get("data")) is str
    ):
        raise DataError(
            "expected a packed array with shape, step, offset, none, bits, along and data, found "
            f"{str(packed)[:80]!r}."
        )


def _inflated(text: str, size: int) -> bytes:
    """Return `size` inflated bytes, or size + 1 bytes if the text contains more than `size`."""
    try:
        inflater = zlib.decompressobj()
        content = inflater.decompress(base64.b64decode(text, validate=True), size + 1)
        if len(content) <= size and not inflater.eof:
            raise DataError("expected a complete packed array, found data that end too early.")
    except (ValueError, zlib.error) as error:
        raise DataError(f"expected a packed array in base64, found none ({error}).") from error
    return content


def text_bytes(packed: Packed | Sequence[Packed]) -> int:
    """Return the number of base64 bytes of a packed array, or of several packed arrays."""
    several = [packed] if isinstance(packed, dict) else packed
    return sum(len(array["data"]) for array in several)


def filled(values: Floats) -> Floats:
    """Return values in which each NaN is replaced by a value that needs few bytes when packed.

    The replacement is the nearest value to the left, else the first value of the row. A row without
    values gets the first value of the nearest row above with values, or 0. The result does not show
    where the NaNs were; another array must store this.
    """
    height, width = values.shape
    known = ~np.isnan(values)
    column = np.where(known, np.arange(width), -1)
    before = np.maximum.accumulate(column, axis=1)
    first = np.where(known.any(axis=1), known.argmax(axis=1), 0)
    result: Floats = np.take_along_axis(
        values, np.where(before < 0, first[:, None], before), axis=1
    )
    rows = np.maximum.accumulate(np.where(known.any(axis=1), np.arange(height), -1))
    empty = ~known.any(axis=1)
    result[empty] = np.where(rows[empty] < 0, 0.0, result[rows[empty], 0])[:, None]
    return result


def _encoded(numbers: NDArray[Any], *, along: bool) -> str:
    if along:
        numbers = np.diff(numbers, axis=0, prepend=numbers[:1] * 0)
    change = numbers.copy()
    change[..., 1:] -= numbers[..., :-1]
    change[..., 1:, 0] -= numbers[..., :-1, 0]
    shifts = [numbers.dtype.type(8 * place) for place in range(numbers.itemsize)]
    raw = b"".join((change >> shift & 0xFF).astype(np.uint8).tobytes() for shift in shifts)
    # Planes in time are many and noisy; level 9 takes ten times as long for equally many bytes. For
    # large arrays, it takes four times as long for 1 to 5 % fewer bytes.
    level = 7 if along or len(raw) >= LARGE else 9
    strategy = zlib.Z_FILTERED if along else zlib.Z_DEFAULT_STRATEGY
    deflater = zlib.compressobj(level, strategy=strategy)
    return base64.b64encode(deflater.compress(raw) + deflater.flush()).decode()


def json_text(content: object) -> str:
    """Return JSON for a script element of a page, without ``<``, which could end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # JSON allows these two line ends, but older JavaScript did not.
    for character in ("<", "\N{LINE SEPARATOR}", "\N{PARAGRAPH SEPARATOR}"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
