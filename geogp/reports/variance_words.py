"""What a report says where a model states another function variance than its closed form."""

import math
from typing import Any

from geogp.errors import DataError
from geogp.reports.words import number

NOISE_IN_SPREAD, STEPS, POINT, FIELD = "noise in the spread", "steps", "point", "field"
"""Why the two differ: kept under variance_check, differ_by of run.json."""

_JOINT = "joint (areas, several tiles) uses the closed form"
_USED = f"Intervals of single rows are the stated ones; whatever is {_JOINT}"

_WHY = {
    NOISE_IN_SPREAD: "The model's objective lets its function variance carry noise too, which the "
    "closed form of its posterior does not",
    STEPS: "The posterior of the model's weights was learned by steps, and its closed form, given "
    "the same basis and noise, has another variance",
    FIELD: "The posterior of the field's weights was learned by steps, and its closed form, given "
    "the same basis, tile process and noise, has another variance",
}


def variances(run: dict[str, Any]) -> list[str]:
    """Return what variance_check of run.json says, in words; nothing where the two are one.

    Raises
    ------
    DataError
        It is not what the report reads.
    """
    check = run.get("variance_check")
    if check is None:
        return []
    held = check if isinstance(check, dict) else {}
    # Runs of earlier versions compared only where the spread carries noise.
    why = held.get("differ_by", NOISE_IN_SPREAD)
    closed, stated = (_sd(held.get(name)) for name in ("closed_form", "stated"))
    positive = closed > 0 and (stated == 0 if why == POINT else stated > 0)
    if not positive or not isinstance(why, str) or why not in {*_WHY, POINT}:
        raise DataError(
            "expected two standard deviations above 0 under variance_check of run.json, "
            f"closed_form and stated, and why they differ, found {check}. Run `geogp map` again "
            "with --fresh."
        )
    if why == POINT:
        said = (
            "The network states no variance of its function: its intervals are of measurements "
            "alone. The closed form of a Bayesian last layer on its features has a median "
            f"standard deviation of {number(closed)} over the test rows; whatever is {_JOINT}."
        )
        return [said]
    scaled = ", scaled so that each tile by itself has the stated one" if why == FIELD else ""
    said = (
        f"{_WHY[why]}: the median standard deviation of the level over the test rows is "
        f"{number(stated)} as stated and {number(closed)} in closed form "
        f"({number(stated / closed, 2)} times as much). {_USED}{scaled}."
    )
    return [said]


def _sd(value: Any) -> float:
    """Return a standard deviation; NaN where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        found = float(value)
    except OverflowError:  # an integer beyond every float
        return math.nan
    return found if math.isfinite(found) else math.nan
