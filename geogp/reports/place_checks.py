"""How right the intervals of a run are in measured tiles, in unmeasured ones, and far from both.

Each kind of place is a question of its own, and each is the question of another split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from msgspec import UNSET

from geogp.arrays import Mask
from geogp.evaluation.score_groups import GroupReport, group_reports
from geogp.evaluation.splits.split_names import (
    BLOCKS,
    BUFFER,
    COUNTY,
    NEAR_KM,
    RANDOM,
    TILES,
)
from geogp.geodata.places.stratum_names import ALL
from geogp.geodata.tiles.targets import find_target
from geogp.records.run_record import RunMap, RunRecord, given

MEASURED, UNMEASURED, FAR = "measured", "unmeasured", "far"

KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    MEASURED: ((RANDOM.name, MEASURED),),
    UNMEASURED: ((TILES.name, UNMEASURED), (RANDOM.name, UNMEASURED)),
    FAR: tuple((split.name, FAR) for split in (BLOCKS, BUFFER, COUNTY)),
}
"""The splits, and their kinds of test rows, that tell about each kind of place; the best first."""


TITLES = {
    MEASURED: "Measured tiles",
    UNMEASURED: "Unmeasured tiles among measured ones",
    FAR: "Far from measurements",
}
"""The kinds of places in words."""


@dataclass(frozen=True)
class PlaceCheck:
    """The coverage of the 95 % intervals of the test rows of a split in one kind of place.

    `kind` is ``measured`` (tiles with other rows, of other quarters), ``unmeasured`` (tiles without
    other rows, among measured ones) or ``far`` (areas without other rows). `share` is the share of
    the test rows of the split that lie in such places, and `map_share` the share of the tiles of
    the map that are such places, or None if it is unknown. The other values are as in
    `GroupReport`, at the level 95 %.
    """

    kind: str
    split: str
    share: float
    map_share: float | None
    n: int
    coverage: float
    bounds: list[float]
    expected: float
    median_width: float
    median_factor: float | None

    @property
    def title(self) -> str:
        """The kind of places in words."""
        return TITLES[self.kind]


def checks_of_split(
    name: str, rows: pd.DataFrame, scored: pd.DataFrame, *, factors: bool
) -> dict[str, PlaceCheck]:
    """Return the checks of the test rows of one split by kind of place; see `group_reports`.

    A test row lies in a measured tile if its nearest row of the fit is at the same place, and far
    from measurements if this row is more than `NEAR_KM` away. Tables of geogp 0.1 lack distances:
    all rows of a split by areas then count as far, and those of other splits are of no known kind.
    """
    known = "distance_km" in rows
    distance = rows["distance_km"].to_numpy() if known else np.full(len(rows), np.inf)
    if any(name == split for split, _ in KINDS[FAR]):
        kinds: dict[str, Mask] = {FAR: distance > NEAR_KM}
    elif name in {RANDOM.name, TILES.name} and known:
        kinds = {MEASURED: distance == 0, UNMEASURED: (distance > 0) & (distance <= NEAR_KM)}
    else:
        return {}
    return {
        kind: _check(kind, name, chosen.mean(), found)
        for kind, chosen in kinds.items()
        if (found := group_reports(rows[chosen], scored[chosen], {}, factors=factors)[ALL]).n
    }


def _check(kind: str, split: str, share: float, group: GroupReport) -> PlaceCheck:
    name = "coverage_95"
    coverage, bounds = group.scores[name], group.coverage_bounds[name]
    expected, width = group.coverage_expected[name], group.median_width_95
    assert coverage is not None
    assert bounds is not None
    assert expected is not None
    assert width is not None
    factor = group.median_factor_95
    return PlaceCheck(
        kind, split, float(share), None, group.n, coverage, bounds, expected, width, factor
    )


def place_checks(
    run: RunRecord, splits: Mapping[str, Mapping[str, PlaceCheck]]
) -> list[PlaceCheck]:
    """Return one check for each kind of place that a run tested; `splits` has those of each split.

    Each check has its share of the map if run.json tells it. For counts it does not: a tile without
    tests is measured.
    """
    shares, found = _map_shares(given(run.map, RunMap())), []
    if find_target(run.target).counted:
        shares = {}
    for kind, ways in KINDS.items():
        known = [splits[name][of] for name, of in ways if of in splits.get(name, {})]
        found += [replace(known[0], map_share=shares.get(kind))] if known else []
    return found


def _map_shares(drawn: RunMap) -> dict[str, float]:
    """Return the share of the map's tiles in each kind of place; none if run.json lacks them."""
    tiles, measured, near = drawn.tiles, drawn.measured_tiles, drawn.near_tiles
    if tiles is UNSET or measured is UNSET or near is UNSET:
        return {}
    counts = {MEASURED: measured, UNMEASURED: near, FAR: tiles - measured - near}
    return {kind: count / tiles for kind, count in counts.items()}
