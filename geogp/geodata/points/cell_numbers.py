"""Numbers in texts: missing marks, decimal signs, signs between thousands, and units in cells."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Texts = NDArray[np.object_]

MISSING = frozenset(
    {
        *("", "-", "--", "---", "\N{EN DASH}", "\N{EM DASH}", ".", "?", "na", "n/a", "n.a.", "nan"),
        *("null", "none", "nil", "missing", "\\n", "#n/a", "#na", "#null!", "#div/0!", "#value!"),
        *("#ref!", "#name?", "#num!", "<na>", "<null>"),
    }
)
"""How a missing value may be written, in small letters."""

_CELL = re.compile(
    r"(?P<number>[+\-]?(?:\d[\d.,'\N{RIGHT SINGLE QUOTATION MARK}\s]*|[.,]\d+)(?:[eE][+\-]?\d+)?)"
    r"\s*(?P<unit>[^\d\s].*)?"
)
_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?P<sign>[.,])\d{3})+")
_SPACES = re.compile(r"[\s'\N{RIGHT SINGLE QUOTATION MARK}]")
_SPACED = re.compile(r"[+-]?\d{1,3}(?:[\s'\N{RIGHT SINGLE QUOTATION MARK}]\d{3})+(?:[.,]\d*)?")
DECIDING, LONGEST = 0.05, 60
"""Share of numbers that decides a sign, and most characters of a cell that may be a number."""

_OTHER = {",": ".", ".": ","}


@dataclass(frozen=True)
class CellNumbers:
    """The numbers in a column of n texts.

    `numbers` are NaN in missing and unreadable cells; `wrong` marks unreadable ones. `units` are
    the texts after the numbers. `note` says which signs were assumed. If `question` is not empty,
    the column has two meanings, as the text `sample` shows, and `numbers` are not to be used.
    """

    numbers: Floats
    wrong: NDArray[np.bool_]
    units: Texts
    note: str = ""
    question: str = ""
    sample: str = ""


def is_missing(texts: Texts) -> NDArray[np.bool_]:
    """Return a mask of texts that stand for a missing value, (n,)."""
    return np.asarray(pd.Series(texts, dtype=object).str.lower().isin(MISSING), np.bool_)


def decimal_sign(texts: Texts) -> str | None:
    """Return the decimal sign of coordinates, which have no thousands; None without any sign."""
    joined = pd.Series(texts, dtype=object)
    count = {sign: int(joined.str.contains(sign, regex=False).sum()) for sign in ".,"}
    return max(count, key=lambda sign: count[sign]) if any(count.values()) else None


def read_numbers(
    texts: Texts,
    *,
    decimal: str | None,
    thousands: str | None,
    file_decimal: str | None,
    plausible: Callable[[Floats], bool],
    usual: Callable[[Floats], bool] = lambda _: True,
) -> CellNumbers:
    """Return the numbers in texts, (n,).

    `decimal` and `thousands` are what the user says. `file_decimal` is the sign that the
    coordinates of the file have. `plausible` says whether values are possible; a reading with
    impossible values is no reading. `usual` says whether values are as measured ones usually are:
    only then does the sign of the coordinates decide.

    Signs are decided by the whole column. A sign that occurs twice in a number, or before another
    sign, stands between thousands; one that is not followed by three digits is decimal. If all
    numbers with a sign are like 70.800, both readings are possible, and there is a question.
    """
    inverse, unique = pd.factorize(texts)  # in their order, so that examples are from first rows
    missing = is_missing(unique)
    cells = [
        _CELL.fullmatch(text.replace("\N{MINUS SIGN}", "-")) if len(text) <= LONGEST else None
        for text in unique.tolist()
    ]
    raw = [
        ("" if gone or cell is None else cell["number"].strip())
        for cell, gone in zip(cells, missing, strict=True)
    ]
    units = [
        "" if gone or cell is None else (cell["unit"] or "").strip()
        for cell, gone in zip(cells, missing, strict=True)
    ]
    spaced = [text for text in raw if _SPACED.fullmatch(text)]
    raw = [_SPACES.sub("", text) if _SPACED.fullmatch(text) else text for text in raw]
    question = ""
    if thousands in _OTHER:
        sign, note = _OTHER[thousands], f"thousands sign {thousands!r} (--thousands)"
    elif decimal is not None:
        sign, note = decimal, f"decimal sign {decimal!r} (--decimal)"
    else:
        sign, note, question = _decimal_of(raw, file_decimal, plausible, usual)
    values = _converted(raw, sign)
    wrong = np.isnan(values) & ~missing
    if spaced and not note:
        note = f"thousands apart by spaces or apostrophes, as in {spaced[0]!r}"
    whole = np.array(units, object)[inverse]
    sample, note = (note, "") if question else ("", note)
    return CellNumbers(values[inverse], wrong[inverse], whole, note, question, sample)


def _converted(raw: Sequence[str], decimal: str) -> Floats:
    """Return numbers with this decimal sign; the other sign must stand between thousands."""
    other = re.escape(_OTHER[decimal])
    whole = rf"[+-]?(?:\d{{1,3}}(?:{other}\d{{3}})+|\d+|(?=\{decimal}\d))"
    form = re.compile(rf"{whole}(?:\{decimal}\d*)?(?:[eE][+-]?\d+)?")
    plain = [
        text.replace(_OTHER[decimal], "").replace(decimal, ".") if form.fullmatch(text) else "nan"
        for text in raw
    ]
    values = np.array(plain, object).astype(np.float64) if plain else np.zeros(0)
    return np.where(np.isinf(values), np.nan, values)


@dataclass(frozen=True)
class _Signs:
    """What the numbers of a column say about a sign: examples of each use, in their order."""

    decimal: list[str]
    thousands: list[str]
    either: list[str]

    @classmethod
    def of(cls, raw: Sequence[str], sign: str) -> "_Signs":
        """Return the uses of a sign."""
        uses = cls([], [], [])
        other = _OTHER[sign]
        for text in raw:
            if sign not in text:
                continue
            if _GROUPS.fullmatch(text):
                (uses.thousands if text.count(sign) > 1 else uses.either).append(text)
            elif re.fullmatch(rf"[+-]?\d{{1,3}}(?:\{sign}\d{{3}})+\{other}\d+", text):
                uses.thousands.append(text)
            elif re.fullmatch(rf"[+-]?(?:\d*|\d{{1,3}}(?:\{other}\d{{3}})+)\{sign}\d+", text):
                uses.decimal.append(text)
        return uses

    @property
    def is_decimal(self) -> bool:
        """Whether enough numbers show that the sign is decimal; a few may be mistyped."""
        return len(self.decimal) > DECIDING * len(self.either)


def _decimal_of(
    raw: Sequence[str],
    file_decimal: str | None,
    plausible: Callable[[Floats], bool],
    usual: Callable[[Floats], bool],
) -> tuple[str, str, str]:
    """Return the decimal sign of numbers, a note, and a question if there are two readings.

    With a question, the note is the number with two readings.
    """
    signs = {sign: _Signs.of(raw, sign) for sign in ".,"}
    certain = [
        sign for sign, uses in signs.items() if uses.is_decimal or signs[_OTHER[sign]].thousands
    ]
    unclear = [sign for sign, uses in signs.items() if uses.either]
    if not certain and len(unclear) == 1:
        sign, example = unclear[0], signs[unclear[0]].either[0]
        readings = {decimal: _converted(raw, decimal) for decimal in (sign, _OTHER[sign])}
        able = [decimal for decimal, values in readings.items() if plausible(values)]
        if len(able) == 2 and file_decimal == _OTHER[sign] and usual(readings[file_decimal]):
            able = [file_decimal]
        if len(able) != 1:
            values = [f"{_converted([example], decimal)[0]:,g}" for decimal in readings]
            return sign, example, " or ".join(values)
        certain = able
    sign = certain[0] if certain else file_decimal or "."
    other = signs[_OTHER[sign]]
    if other.thousands or other.either:
        example = (other.thousands + other.either)[0]
        return (
            sign,
            f"thousands sign {_OTHER[sign]!r}: {example} is {_converted([example], sign)[0]:,g}",
            "",
        )
    note = f"decimal sign {sign!r}"
    if signs[sign].either and not signs[sign].decimal:
        example = signs[sign].either[0]
        note += f": {example} is {_converted([example], sign)[0]:g}"
    return sign, note if sign == "," or ":" in note else "", ""
