"""The tiers in a page: the probability that thresholds of several targets hold together.

The page has quantiles of each target, and the correlation of the normal scores of each two targets,
for each tile of the shown quarter. From these, the browser computes the probability of any
thresholds by the Gaussian copula of `JointPrediction`. The key ``tiers`` of the page's data has:

- ``targets``: each target, with ``name``, ``subject``, ``unit``, ``linear``, ``most``,
  ``threshold`` (the ``values`` of its slider, with null for no threshold last, if a tier need not
  have one, and ``at_most``), and ``levels`` and ``quantiles`` as those of the page, which are null
  for the first target: these are the page's own;
- ``correlations``: the packed correlation of each pair of targets: 0 and 1, 0 and 2, 1 and 2;
- ``choices``: the ``name`` of each tier of the run, and its ``values`` by target, null for none;
- ``shown``: the index of the tier that the page shows first, whose mean probability is nearest to
  one half.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, named
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles.thresholds import Threshold
from geogp.geodata.tiles.tiers import Tier
from geogp.maps.frame import Floats, Frame
from geogp.maps.page.packing import Packed, filled, pack
from geogp.maps.page.page_quantiles import (
    PackedLaw,
    QuarterMap,
    evenly_spaced,
    normal_scores,
    packed_law,
)
from geogp.maps.target_quantities import quantity_of

FURTHER_TEXT = 2_800_000
"""Largest number of base64 bytes for the quantiles of all targets after the first."""

SAMPLE = 2_000
"""Errors are computed for at most this number of tiles, evenly spaced among all tiles."""

STEP = 0.01
"""Rounding step of correlations: at 0.9, half of it changes a probability by at most 0.002."""

WEAKEST = 1e-3
"""Least eigenvalue of a rounded correlation matrix, so that it stays positive definite."""

_MOST_TARGETS = 3


def check_joint(
    joint: JointPrediction | None, tiers: Sequence[Tier], target: str, tiles: Tiles
) -> None:
    """Raise DataError unless joint predictions and tiers fit each other, the target and tiles."""
    if joint is None and not tiers:
        return
    if joint is None or not tiers:
        raise DataError(
            "expected joint predictions with tiers, or neither, found "
            f"{'tiers' if tiers else 'joint predictions'} alone."
        )
    if not 2 <= joint.targets <= _MOST_TARGETS or joint.names[0] != target:
        raise DataError(
            f"expected joint predictions of 2 or {_MOST_TARGETS} targets, {target} first, found "
            f"{named(joint.names)}."
        )
    if len(joint) != len(tiles):
        raise DataError(f"expected joint predictions of {len(tiles)} tiles, found {len(joint)}.")


def pack_tiers(
    shown: QuarterMap, joint: JointPrediction, tiers: Sequence[Tier], first: PackedLaw
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the data of the tiers, as described at the top of this module, and their steps.

    `first` are the packed predictions of the first target. The steps also have the largest error of
    the probability of a tier, found on some tiles, and the number of these tiles.
    """
    limits = {
        name: [one for tier in tiers for one in tier.thresholds if one.target == name]
        for name in joint.names
    }
    most = FURTHER_TEXT // (joint.targets - 1)
    laws = [first] + [
        packed_law(QuarterMap(shown.label, shown.tiles, marginal), name, limits[name], most)
        for name, marginal in zip(joint.names[1:], joint.marginals[1:], strict=True)
    ]
    numbers = rounded_correlations(joint.correlation)
    rows = evenly_spaced(len(joint), SAMPLE)
    exact = [tier.probability(joint[rows]) for tier in tiers]
    found = tier_probabilities(tiers, joint.names, laws, numbers, rows)
    steps: dict[str, float] = {"correlation": STEP}
    for name, law in zip(joint.names[1:], laws[1:], strict=True):
        steps[f"{name}_quantile_{quantity_of(name).scale.tag}"] = law.packed[0]["step"]
    steps["tier_probability"] = float(np.abs(np.subtract(found, exact)).max())
    steps["tier_probability_tiles"] = len(rows)
    packed = {
        "targets": [
            _target(name, law, limits[name], own=law is first)
            for name, law in zip(joint.names, laws, strict=True)
        ],
        "correlations": pack_correlations(shown.tiles, numbers),
        "choices": [
            {"name": tier.name, "values": [_value(tier, name) for name in joint.names]}
            for tier in tiers
        ],
        "shown": int(np.abs(np.mean(exact, axis=1) - 0.5).argmin()),
    }
    return packed, steps


def _target(name: str, law: PackedLaw, limits: Sequence[Threshold], *, own: bool) -> dict[str, Any]:
    quantity = quantity_of(name)
    values: list[float | None] = [*sorted({*law.values, *(one.value for one in limits)})]
    at_most = quantity.bound == "upper"
    return {
        "name": name,
        "subject": quantity.subject,
        "unit": quantity.unit,
        "linear": not quantity.scale.logarithmic,
        "most": quantity.scale.most,
        # A tier has a threshold of each speed, but need not have one of the latency.
        "threshold": {"values": [*values, None] if at_most else values, "at_most": at_most},
        "levels": None if own else list(law.levels),
        "quantiles": None if own else law.packed,
    }


def _value(tier: Tier, name: str) -> float | None:
    return next((one.value for one in tier.thresholds if one.target == name), None)


def rounded_correlations(correlation: Floats) -> Floats:
    """Return correlation matrices (n, t, t) in whole steps that are positive definite.

    Where rounding makes a matrix singular, all its correlations are drawn to 0, step by step.
    """
    numbers = np.round(correlation / STEP)
    weak = np.arange(len(numbers))
    unit = np.round(np.eye(correlation.shape[1]) / STEP)
    while True:
        weak = weak[np.linalg.eigvalsh(numbers[weak] * STEP)[:, 0] < WEAKEST]
        if not len(weak):
            return np.asarray(numbers * STEP)
        nearer = np.sign(numbers[weak]) * np.maximum(np.abs(numbers[weak]) - 1, 0)
        numbers[weak] = np.where(unit > 0, unit, nearer)


def pack_correlations(tiles: Tiles, correlation: Floats) -> list[Packed]:
    """Return the packed correlation of each pair of targets, from matrices (n, t, t)."""
    frame = Frame.of_tiles(tiles)
    return [
        pack(
            filled(frame.place(tiles, correlation[:, one, other], np.nan)),
            STEP,
            8,
            none=False,
            offset=-1.0,
        )
        for one, other in zip(*np.triu_indices(correlation.shape[1], 1), strict=True)
    ]


def tier_probabilities(
    tiers: Sequence[Tier],
    names: tuple[str, ...],
    laws: Sequence[PackedLaw],
    correlation: Floats,
    rows: NDArray[np.intp],
) -> list[Floats]:
    """Return the probability of each tier at some tiles, (r,) each, as the browser computes it.

    The normal scores of a tier's thresholds come from the decoded quantiles. Given these scores,
    the targets have standard normal distributions with the rounded correlations.
    """
    ones = np.ones(len(rows))
    normal = Prediction(0 * ones, ones / 2, ones / 2)
    scores = JointPrediction(names, (normal,) * len(names), correlation[rows])
    found = []
    for tier in tiers:
        limits: dict[str, dict[str, Floats]] = {"at_least": {}, "at_most": {}}
        for one in tier.thresholds:
            law = laws[names.index(one.target)]
            at = normal_scores(law.decoded[:, rows], law.levels, np.array([[one.modelled]]))[0]
            limits["at_most" if one.at_most else "at_least"][one.target] = at
        found.append(scores.probability(**limits))
    return found
