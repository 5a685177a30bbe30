"""Calendar quarters, and their indices: year * 4 + (quarter - 1)."""

import re
from dataclasses import dataclass

from geogp.errors import RequestError, quoted

_QUARTER = re.compile(r"(\d{4})[Qq]([1-4])")


def quarter_index(label: str) -> int:
    """Return the index of a quarter such as ``2019Q1``; raise RequestError for other text."""
    match = _QUARTER.fullmatch(label.strip())
    if match is None:
        raise RequestError(f"expected a quarter like 2019Q1, found {quoted(label)}.")
    return int(match[1]) * 4 + int(match[2]) - 1


def quarter_label(index: int) -> str:
    """Return the label of a quarter, such as ``2019Q1``, for its index."""
    return f"{index // 4}Q{index % 4 + 1}"


@dataclass(frozen=True)
class QuarterRequest:
    """Quarters that a user requested.

    Quarters that the user named one by one (`named`) must exist. If the user gave a range
    (`ranged`), missing quarters of the range only cause a warning.
    """

    named: tuple[int, ...]
    ranged: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """All requested quarters, in order and without repetitions."""
        return tuple(sorted({*self.named, *self.ranged}))


def parse_quarters(text: str) -> QuarterRequest:
    """Return the quarters in ``2019Q1..2023Q4,2024Q2``; raise RequestError for other text."""
    named: list[int] = []
    ranged: list[int] = []
    for entry in text.split(","):
        first, dots, last = entry.partition("..")
        if not dots:
            named.append(quarter_index(entry))
            continue
        start, stop = quarter_index(first), quarter_index(last)
        if stop < start:
            raise RequestError(f"the range of quarters {quoted(entry)} ends before it starts.")
        ranged.extend(range(start, stop + 1))
    return QuarterRequest(tuple(named), tuple(ranged))
