"""What a report says where a model states another function variance than its closed form."""

from msgspec import UNSET

from geogp.errors import DataError
from geogp.records.record_names import FIELD, NOISE_IN_SPREAD, POINT, STEPS
from geogp.records.run_record import VarianceCheck
from geogp.reports.words import number

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


def variances(check: VarianceCheck | None) -> list[str]:
    """Return what variance_check of run.json says, in words; nothing where the two are one.

    Raises
    ------
    DataError
        A function variance is stated where there is none, or the other way round.
    """
    if check is None:
        return []
    # Runs of earlier versions compared only where the spread carries noise.
    why = NOISE_IN_SPREAD if check.differ_by is UNSET else check.differ_by
    closed, stated = check.closed_form, check.stated
    if (stated == 0) != (why == POINT):
        raise DataError(
            "expected a standard deviation above 0 under stated in variance_check of run.json, and "
            f"0 where differ_by is {POINT}, found {stated} of {why}. Run `geogp map` again with "
            "--fresh."
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
