"""What a conformal repair guarantees, and what it does not, in words for a reader."""

import math

from scipy import stats

from geogp.evaluation.splits.split_names import BLOCKS, RANDOM

_METHODS = {
    "marginal": "One repair serves all places and all numbers of tests.",
    "strata": (
        "Strata and classes of tests per tile have their own repair where they have enough "
        "calibration rows: {cells}. Classes with fewer are pooled with the next one; a stratum "
        "with fewer is not told apart."
    ),
    "local": (
        "Each place has its own repair, from the 200 calibration rows nearest to it, weighted by "
        "nearness. The guarantee holds for weights that are right, which is not known here: it is "
        "approximate, and no bound for finite numbers of rows is stated."
    ),
}

EXCHANGEABLE = {
    RANDOM.name: (
        "Calibration and test rows are drawn alike, each row at random: the guarantee holds for "
        "test rows."
    ),
    BLOCKS.name: (
        "Calibration rows, like test rows, are whole blocks: blocks, not rows, are exchangeable, "
        "and rows of a block err alike. The guarantee holds approximately, for many blocks; "
        "coverage scatters more than with as many independent rows."
    ),
    "buffer": (
        "Training rows near test rows were removed. Test rows may lie farther from training rows "
        "than calibration rows do, and then intervals repaired for nearer rows are too narrow for "
        "them. Nothing is guaranteed."
    ),
    "county": (
        "Calibration rows, like test rows, are whole counties without training rows. Counties are "
        "few and differ: those that calibrate say little of those that test. Nothing is "
        "guaranteed."
    ),
    "latest": (
        "Calibration rows are drawn at random from quarters before the one that tests, which the "
        "model has seen: the two are not exchangeable. Nothing is guaranteed."
    ),
}
"""What the repair promises for test rows, by name of the split."""

LEVEL_NOTE = (
    "The map shows the level without measurement noise. The conformal repair is of measurements, "
    "noise included, and says nothing of the level: this map is not repaired."
)

APPROXIMATE = (
    "Each test row has a repair of its own, from the calibration rows near it: nothing is "
    "guaranteed for finite numbers of rows, under any split."
)
"""What a local repair promises for test rows."""

SIDES = (
    "The repair is of central intervals. It moves both ends alike in probability: one end by "
    "itself, and the probability of passing a threshold, have no guarantee."
)

WHERE = (
    "Tiles that were measured are not drawn at random from all tiles. For tiles that nobody "
    "measures, as for any single place, nothing is guaranteed."
)


def statements(method: str, n: int, cells: list[tuple[str, int]]) -> list[str]:
    """Return what a repair is and guarantees, sentence by sentence.

    Parameters
    ----------
    method
        One of `conformal.METHODS`.
    n
        Calibration rows.
    cells
        Name and calibration rows of each cell.
    """
    if method == "none":
        return ["Intervals and probabilities are those of the model; they were not repaired."]
    first = (
        f"The map was repaired by split conformal prediction on {n:,} calibration rows that were "
        "used for nothing else; the test rows of each split by calibration rows of its own, drawn "
        "alike. The median is the model's. What follows is of the map."
    )
    ladder = (
        "Between the levels of the ladder intervals are interpolated; beyond the last one the "
        "model's tails go on, stretched, without a guarantee."
    )
    named = "; ".join(f"{name} ({rows:,} rows)" for name, rows in cells)
    guarantee = _guarantee(cells) if cells else []
    return [first, _METHODS[method].format(cells=named), *guarantee, ladder, SIDES, WHERE]


def _guarantee(cells: list[tuple[str, int]]) -> list[str]:
    """Return what holds in each cell, and how far it scatters in the smallest one."""
    name, m = min(cells, key=lambda cell: cell[1])
    k = math.ceil((m + 1) * 0.95 - 1e-9)
    low, high = (float(stats.beta.ppf(tail, k, m + 1 - k)) for tail in (0.025, 0.975))
    each = (
        "For a new measurement exchangeable with the calibration rows of its cell (drawn as they "
        "were), the central interval of a level p of the ladder holds it with probability p or "
        "more, and less than p + 1/(m + 1) with m calibration rows in the cell (but for ties), "
        "whatever the model."
    )
    scatter = (
        "This probability is an average over draws of the calibration rows. Given those at hand, "
        f"the share held by 95 % intervals is, in 95 of 100 draws, {100 * low:.1f} to "
        f"{100 * high:.1f} % in the "
        f"smallest cell ({name}, {m:,} rows)."
    )
    return [each, scatter]
