"""What a report says in sentences, and how it writes numbers."""

import json
from typing import Any

from geogp.evaluation.score_groups import GroupReport
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, COUNTY, LATEST, RANDOM
from geogp.records.run_record import CalibrationRecord, RunRecord, RunSettings, given
from geogp.reports.split_report import SplitReport

MISSING = "\N{EN DASH}"
"""Stands where there is no figure."""

DEFAULT_ATTRIBUTION = (
    "Speedtest by Ookla Global Fixed and Mobile Network Performance Maps, CC BY-NC-SA 4.0"
)

UNITS = {
    "download": ("log10 Mbps", "Mbps"),
    "upload": ("log10 Mbps", "Mbps"),
    "latency": ("log10 ms", "ms"),
    "tests": ("tests per tile and quarter", ""),
}
"""Unit of the modelled target, and of the quantity itself where that is its logarithm."""

_JUDGED = {
    BLOCKS.name: "Where nothing was measured in the same block of 0.1 degrees",
    RANDOM.name: "Among measured neighbours",
    BUFFER.name: "Where nothing was measured in the same block nor within a buffer around it",
    COUNTY.name: "In counties where nothing was measured",
    LATEST.name: "In a quarter after those that were learned from",
}
_PLACES_HELD_OUT = {BLOCKS.name, BUFFER.name, COUNTY.name}

_REPAIRS = {
    "marginal": "one correction for all rows",
    "strata": "a correction for each cell of stratum and number of tests",
    "local": "a correction weighted by nearness",
}

INDEPENDENCE = (
    "The binomial intervals take test rows to be independent; rows of the same tile in several "
    "quarters, and of neighbouring tiles, are not, so the true uncertainty of each coverage is "
    "larger than its interval says."
)

WHOLE_NUMBERS = (
    "Tests are counted in all tiles of the region, also where there were none, and counts are "
    "whole: an interval between two of them holds 95 % or more, hardly ever just 95 %. The share "
    "of test rows inside is therefore compared with what right predictions would hold. "
    "Reliability, PIT histograms and the tables by stratum (with expected tests per tile and "
    "quarter in the place of counted ones) spread each count at random over its own probability, "
    "so that right predictions hold every level exactly. The MAE is that of the median; the log "
    "score is that of the probability of the count."
)

MATERIAL = 0.01
"""Coverage within one percentage point of the stated level counts as kept, however many rows."""

_VAGUE = 0.10
"""An exact interval wider than this around a kept level says little."""


def verdict(group: GroupReport) -> str:
    """Say in a verb phrase whether the stated 95 % intervals hold 95 %.

    They hold where 95 % lies within the exact binomial interval of the observed coverage, or
    the observed coverage within one percentage point of 95 %. For counts, what right predictions
    would hold takes the place of 95 %.
    """
    coverage, bounds = group.scores["coverage_95"], group.coverage_bounds["coverage_95"]
    expected = group.coverage_expected["coverage_95"]
    if coverage is None or bounds is None or expected is None:
        return "cannot be judged"
    if abs(coverage - expected) > MATERIAL and not bounds[0] <= expected <= bounds[1]:
        return "are too narrow" if coverage < expected else "are wider than needed"
    return "hold as far as so few rows can tell" if bounds[1] - bounds[0] > _VAGUE else "hold"


def headline(split: SplitReport) -> str:
    """Say in a sentence whether the 95 % intervals hold in both strata: in town, in the country."""
    (first, here), (second, there) = split.places.items()
    own, other = verdict(split.groups[first]), verdict(split.groups[second])
    if split.groups[first].n == split.groups[second].n == 0:
        held = (
            f"{verdict(split.groups['all'])} overall; town and country cannot be told apart, "
            "for no urban areas are at hand"
        )
    elif own == other:
        held = f"{own} {here} and {there}"
    else:
        held = f"{own} {here} and {other} {there}"
    return f"{_JUDGED.get(split.name, split.title)}, the stated 95 % intervals {held}."


def finding(split: SplitReport) -> str:
    """Give the coverage of the 95 % intervals of one split, with counts and bounds."""
    present = [name for name in split.places if split.groups[name].n] or ["all"]
    shares = []
    for name in present:
        group = split.groups[name]
        bounds = group.coverage_bounds["coverage_95"]
        assert bounds is not None
        where = split.places.get(name, "overall")
        right = f"; {right_share(group, 95)}" if right_share(group, 95) else ""
        shares.append(
            f"{percent(group.scores['coverage_95'])} {where} "
            f"({percent(bounds[0])} to {percent(bounds[1])}; {count(group.n)} rows{right})"
        )
    return f"{split.title}: the 95 % intervals hold {' and '.join(shares)} of what was measured."


def right_share(group: GroupReport, level: int) -> str:
    """Say how much right intervals would hold, where that is not their level in percent."""
    expected = group.coverage_expected[f"coverage_{level}"]
    if expected is None or abs(expected - level / 100) < 1e-9:
        return ""
    return f"right ones would hold {percent(expected)}"


def gain(group: GroupReport) -> float | None:
    """Return the baseline's log score minus the model's; None where either is missing."""
    difference = group.difference["nll"]
    return None if difference is None else -difference


def statements(splits: dict[str, SplitReport], *, counts: bool = False) -> list[str]:
    """Return what a reader must know before trusting the figures."""
    said: list[str] = [WHOLE_NUMBERS] if counts else []
    if not _PLACES_HELD_OUT & splits.keys():
        said.append(
            "No split that holds out whole places was run. Random splits flatter a spatial model: "
            "most test rows have the same or a neighbouring tile among the training rows. How well "
            "places without measurements are predicted is not known from this run; run it again "
            "with --split blocks."
        )
    elif RANDOM.name not in splits:
        said.append("The random split was not run; every figure is of places or times held out.")
    if all(split.groups[name].n == 0 for split in splits.values() for name in split.places):
        said.append(
            "No urban areas are at hand for this region, so its test rows are of unknown "
            "stratum: the urban and rural figures have n 0 and are missing."
        )
    else:
        said += [
            f"{split.title}: no test row lies {place}, so its figures are missing."
            for split in splits.values()
            for name, place in split.places.items()
            if split.groups[name].n == 0
        ]
    said.append(INDEPENDENCE)
    return said


def repairs(run: RunRecord) -> list[str]:
    """Return what run.json says of a repair of the intervals."""
    kind = given(given(run.settings, RunSettings()).conformal, "none")
    if kind == "none":
        return []
    said = (
        f"The intervals are repaired by split conformal calibration ({_REPAIRS[kind]}); every "
        "figure here is of repaired intervals."
    )
    return [said, *given(given(run.calibration, CalibrationRecord()).statements, [])]


def number(value: float | None, digits: int = 3) -> str:
    """Write a figure with fixed decimals, or a dash."""
    return MISSING if value is None else _minus(f"{value:,.{digits}f}")


def signed(value: float | None, digits: int = 3) -> str:
    """Write a difference with its sign, or a dash."""
    if value is None:
        return MISSING
    return _minus(f"{round(value, digits) + 0.0:+.{digits}f}")


def percent(share: float | None) -> str:
    """Write a share in percent with one decimal, or a dash."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def bare_percent(share: float) -> str:
    """Write a share in percent without the sign, as one end of a range."""
    return f"{100 * share:.1f}"


def points(share: float | None) -> str:
    """Write a difference of shares in percentage points, or a dash."""
    return MISSING if share is None else f"{signed(100 * share, 1)} pt"


def count(n: int | None) -> str:
    """Write a whole number with separators, or a dash."""
    return MISSING if n is None else f"{n:,}"


def plain(value: Any) -> str:
    """Write a setting: text as it is, anything else as JSON."""
    if value is None or value in ([], {}):
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")
