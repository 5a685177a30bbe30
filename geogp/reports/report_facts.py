"""The facts about a run and its splits that every report contains."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import UNSET, to_builtins

from geogp.evaluation.assessment import folds_of
from geogp.evaluation.splits.split_names import BLOCKS, BUFFER, SPLITS
from geogp.geodata.places.stratum_names import ALL, phrase
from geogp.geodata.tiles.targets import find_target
from geogp.records.input_records import EXTENT
from geogp.records.run_record import RunDrawing, RunMap, RunRecord, given
from geogp.reports.words import DEFAULT_ATTRIBUTION, own_measurements


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """The facts about a run, in values that can be written as JSON.

    Most values are the same as in run.json. `region` is the name of the region in words, and
    `geogp` is the version that made the run. Quarters are labels such as ``2019Q1``.
    `rows_left_out` is the number of rows of the source with impossible values; the warnings name
    the rows. Each input has `name`, `sha256` and `rows`. `attribution` names the source of the
    data.
    """

    geogp: str | None = None
    region: str
    service: str
    target: str
    model: str
    preset: str
    seed: int | None = None
    device: str | None = None
    quarters: list[str] = field(default_factory=list)
    quarters_missing: list[str] = field(default_factory=list)
    quarters_unreached: list[str] = field(default_factory=list)
    rows_left_out: int
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float]
    warnings: list[str] = field(default_factory=list)
    attribution: str


def report_facts(run: RunRecord) -> ReportFacts:
    """Return the facts about a run from its run.json."""
    names = {one.name for one in fields(ReportFacts)}
    facts = {name: value for name, value in to_builtins(run).items() if name in names}
    facts |= {
        "region": _what_and_where(run),
        "settings": run.settings.flat,
        "rows_left_out": sum(one.rows for one in given(run.rows_left_out, [])),
        # The time for writing is left out, because it is unknown when the report is first written.
        "seconds": {k: v for k, v in given(run.seconds, {}).items() if k != "write"},
        "attribution": given(run.attribution, "") or DEFAULT_ATTRIBUTION,
    }
    return ReportFacts(**facts)


def _what_and_where(run: RunRecord) -> str:
    """Return the region of a run in words, with the number of own measurements, if known."""
    file = None if run.settings.data.points is None else Path(run.settings.data.points).name
    used = [one.rows_used for one in given(run.inputs, []) if one.name == file and one.rows_used]
    return own_measurements(used[0], run.region_in_words) if used else run.region_in_words


@dataclass(frozen=True)
class SplitFacts:
    """The facts about a split; `name`, `title` and `question` are as in `splits.Split`.

    `block_degrees` is the side of the blocks of a split by blocks, or None if it is not known.
    `rows` is the number of rows in each part (train, validation, test), empty if run.json does not
    have the numbers. `folds` is the number of folds, 1 without folds. `groups` has reports on
    ``all`` rows and on both strata.
    """

    name: str
    title: str
    question: str
    block_degrees: float | None
    rows: dict[str, int]
    folds: int
    groups: dict[str, Any]

    @property
    def places(self) -> dict[str, str]:
        """The location of each stratum in words, such as ``in town``."""
        return {name: phrase(name) for name in self.groups if name != ALL}

    @property
    def shown(self) -> list[str]:
        """Strata with rows, or ``all`` if there are no such strata."""
        return [name for name in self.places if self.groups[name].n] or [ALL]


def split_facts(
    name: str, rows: pd.DataFrame, run: RunRecord, groups: dict[str, Any]
) -> SplitFacts:
    """Return the facts about a split from its test rows, from run.json, and from its groups."""
    return SplitFacts(
        name,
        SPLITS[name].title,
        SPLITS[name].asked(run.block_side),
        run.block_side if name in {BLOCKS.name, BUFFER.name} else None,
        to_builtins(given(run.n, {})).get(name, {}),
        len(np.unique(folds_of(rows))),
        groups,
    )


def far_from_data(run: RunRecord) -> dict[str, Any] | None:
    """Return the numbers of all tiles and of tiles far from data, and the distance in km.

    For a map of the places near a user's own tests, the entry ``extent`` says so. Returns None if
    run.json lacks the numbers, and for numbers of tests: a tile without tests is measured.
    """
    drawn, asked = given(run.map, RunMap()), given(run.drawing, RunDrawing())
    found = {"tiles": drawn.tiles, "far_tiles": drawn.far_tiles, "far_km": asked.far_km}
    known = {name: value for name, value in found.items() if value is not UNSET}
    if len(known) < len(found) or find_target(run.target).counted:
        return None
    extent = "" if run.points is UNSET else run.points.understood.get(EXTENT, "")
    return {**known, "extent": extent}
