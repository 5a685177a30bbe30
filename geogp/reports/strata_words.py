"""What a report says of strata: their names, how they are judged, and which are marked."""

from geogp.evaluation.assessment import TABLE_LEVELS
from geogp.evaluation.simultaneous_coverage import (
    FEW_BLOCKS,
    LEAST_BLOCKS,
    LEAST_SPLIT_BLOCKS,
    TOLERANCE,
)
from geogp.evaluation.splits.fold_spread import GAIN, Spread
from geogp.evaluation.strata import LAYER, LEAST_ROWS
from geogp.reports.split_report import SplitReport
from geogp.reports.stratum_reports import Coverage, StratumReport
from geogp.reports.words import MISSING, bare_percent, count, number, percent, signed

_KINDS = {
    "all": "all",
    "stratum": "stratum",
    "tests": "tests per tile and quarter",
    "expected": "expected tests per tile and quarter",
    "distance": "distance to the nearest measured tile",
    "speed": "predicted median",
    "quarter": "quarter",
    "county": "county",
}

SPREAD = (
    ("mae", "MAE"),
    ("rmse", "RMSE"),
    ("nll", "Log score"),
    (GAIN, "Gain over the baseline"),
    ("crps", "CRPS"),
    *((f"coverage_{level}", f"In {level} %, %") for level in TABLE_LEVELS),
    ("width_95", "Mean width"),
)
"""Figures whose spread over folds is shown, and their names."""

MANY = 12
"""Tables of more strata are folded away."""

_MOST_NAMED = 6
_POINTS = round(100 * TOLERANCE)

POOLING = (
    f"Classes of tests, distance, predicted median and quarter with fewer than {LEAST_ROWS} rows "
    f"are joined to the next of their kind; counties and areas of layers with fewer are put "
    f"together as others. With {LEAST_ROWS} rows the exact interval of a coverage of 95 % reaches "
    f"less than 5 points each way. A stratum that still has fewer than {LEAST_ROWS} rows, or lies "
    f"in fewer than {LEAST_BLOCKS} blocks of 0.1 degrees, is shown but not judged; nor is any of a "
    f"split that lies in fewer than {LEAST_SPLIT_BLOCKS} effective blocks (the square of the sum "
    "of their rows over the sum of squares)."
)
"""The rule by which strata are put together."""

MARKING = (
    f"A coverage is marked with * where it misses its level by more than {_POINTS} points and by "
    "more than chance allows. What chance allows is worked out for all strata and levels of a "
    "split together, so that with right intervals about one split in 20 has any mark, or fewer. "
    "Blocks of 0.1 degrees, not rows, are taken to be independent, as rows of one place err alike: "
    f"by a bootstrap over blocks for strata in {FEW_BLOCKS} or more effective ones; for strata in "
    "fewer by the exact binomial interval of as many rows as the correlation of rows within the "
    "blocks of the whole split leaves independent. Few or uneven blocks widen what chance allows. "
    "Where a third or more of a row's error is its block's, about one simulated split in 12 had a "
    "mark by chance, and up to one in 7 where blocks were very uneven and effectively 20 to 40."
)
"""The rule by which strata are marked."""


def kind_title(kind: str, split: SplitReport | None = None) -> str:
    """Return the name of a kind of strata; that of a split's own strata names them."""
    if kind == "stratum" and split is not None:
        return " or ".join(split.places)
    return _KINDS[kind] if kind in _KINDS else f"layer {kind.removeprefix(LAYER)}"


def kinds(split: SplitReport) -> dict[str, list[StratumReport]]:
    """Return the strata of a split by kind, in order."""
    found: dict[str, list[StratumReport]] = {}
    for stratum in split.strata:
        found.setdefault(stratum.kind, []).append(stratum)
    return found


def marks(split: SplitReport) -> str:
    """Say which strata of a split are marked, or that none is."""
    judged = [stratum for stratum in split.strata if stratum.judged]
    if not judged:
        return (
            "No stratum is judged: the test rows are too few, or lie in too few blocks, or nearly "
            "all of them lie in a few of the blocks."
        )
    off = [stratum for stratum in judged if stratum.off]
    if not off:
        return (
            f"None of the {len(judged)} strata that can be judged is marked: each holds its levels "
            f"within {_POINTS} points or within what chance allows."
        )
    named = "; ".join(_mark(stratum) for stratum in off[:_MOST_NAMED])
    rest = f"; and {len(off) - _MOST_NAMED} more (see the tables)" if len(off) > _MOST_NAMED else ""
    return (
        f"{len(off)} of {len(judged)} strata that can be judged miss a level by more than "
        f"{_POINTS} points and beyond chance: {named}{rest}."
    )


def _mark(stratum: StratumReport) -> str:
    said = ", ".join(
        f"{percent(each.observed)} in the {round(100 * each.level)} % interval"
        for each in stratum.off
    )
    alone = stratum.kind in {"all", "stratum"}
    where = stratum.name if alone else f"{kind_title(stratum.kind)} {stratum.name}"
    return f"{where}: {said}"


def is_marked(split: SplitReport, group: str) -> bool:
    """Tell whether all rows, or those of a stratum, are marked at 95 %."""
    name = "all rows" if group == "all" else group
    return any(
        one.coverage[-1].off
        for one in split.strata
        if one.kind in {"all", "stratum"} and one.name == name
    )


def range_95(strata: list[StratumReport]) -> str:
    """Write the least and the greatest coverage of the 95 % intervals."""
    shares = [one.coverage[-1].observed for one in strata]
    return f"{bare_percent(min(shares))} to {percent(max(shares))}"


def bars(stratum: StratumReport) -> list[float]:
    """Return the heights of its PIT histogram's bars, 10 where level and at most 20."""
    level = stratum.n / len(stratum.pit)
    return [min(10 * count / level, 20.0) for count in stratum.pit]


def exact(coverage: Coverage) -> str:
    """Write the exact binomial interval of a coverage in percent."""
    return f"{bare_percent(coverage.exact[0])} to {bare_percent(coverage.exact[1])}"


def allowed(stratum: StratumReport) -> str:
    """Write which coverages at 95 % would not be marked by chance, or that it is not judged."""
    band = stratum.coverage[-1].band
    if band is None:
        return "not judged"
    return f"{bare_percent(band[0])} to {bare_percent(band[1])}"


def pooled(strata: list[StratumReport]) -> str:
    """Say which places stand under others; empty where none do."""
    others = [one for one in strata if len(one.members) > 1 and one.name.startswith("others (")]
    return "; ".join(f"{one.name}: {', '.join(one.members)}" for one in others)


def spread(found: Spread | None, *, share: bool = False, sign: bool = False) -> str:
    """Write mean and standard deviation over folds, or a dash."""
    if found is None:
        return MISSING
    if share:
        sd = MISSING if found.sd is None else bare_percent(found.sd)
        return f"{bare_percent(found.mean)} ± {sd}"
    mean = signed(found.mean) if sign else number(found.mean)
    return f"{mean} ± {number(found.sd)}"


def folds_note(split: SplitReport) -> str:
    """Say over how many folds figures are pooled; empty of one fold."""
    if split.folds == 1:
        return ""
    return f"{count(split.folds)} folds, each predicted by a fit of its own; figures are pooled."
