"""Tables in Markdown, and texts of figures."""

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike


def table(
    header: Sequence[str], lines: Sequence[Sequence[object]], left: Collection[int] = (0,)
) -> str:
    """Return a Markdown table; columns in `left` are left-aligned, all others right-aligned."""
    rule = ["---" if k in left else "---:" for k in range(len(header))]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (header, rule, *lines))


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Return mean and standard error; the error of a single value is NaN."""
    found = np.asarray(values, np.float64)
    error = found.std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return float(found.mean()), float(error)


def plus_minus(mean: float, error: float, digits: int = 3) -> str:
    """Return mean ± error, or the mean alone if the error is NaN."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")


def with_error(values: ArrayLike, digits: int = 3) -> str:
    """Return mean ± standard error, or only the mean of a single value."""
    return plus_minus(*mean_and_error(values), digits)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean ± standard deviation, or only the mean of a single value."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return plus_minus(float(np.mean(values)), sd, digits)


def percent(share: float | None, unit: str = " %") -> str:
    """Return a share in percent with one decimal, or an empty text for None."""
    return "" if share is None else f"{100 * share:.1f}{unit}"
