"""Coverage of the level far from data: whole parts of a region are held out.

    python -m benchmarks answers.far_from_data PR --source ookla-open-data --boundaries census \
        --quarters 2022Q3..2023Q4 --targets download,upload,latency --beyond VI

Each fold holds out one part of the region, a third or a half by longitude, and fits the estimator
of ``field`` to the other rows. With ``--beyond VI``, one more fold is fitted to the whole region
and tested on another region. The means of test rows over blocks (0.1 degrees) of one quarter, and
over the whole part in one quarter, are compared with their intervals in the joint distribution of
`geogp areas`, `exceedance` and `next`, which include the noise of each row. Changes of blocks
between the first and the last quarter are compared with the distribution of `geogp change`.

Writes JSON of each fold in the folder ``--out``, and a table of all folds. A fold that is there
already is not made again.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import geogp
from benchmarks.markdown import percent, table
from benchmarks.script import Figures, all_kept, kept, options_of, say, write_results
from geogp.answers.areas import REACH
from geogp.evaluation.splits.split_names import CELL_DEGREES
from geogp.evaluation.splits.split_rows import cell_indices
from geogp.geodata.places.distances import nearest_km
from geogp.models.joint.area_means import LEAST_ROWS, blocks_in_quarters
from geogp.runs.pipeline.arithmetic import arithmetic

PARTS = ((0, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 1), (0, 1 / 2), (1 / 2, 1))
"""Held-out parts of a region, as quantiles of the longitude of its rows."""

BINS = (0, 2, 5, 10, 20, 40, 80, 1000)
"""Ends of the classes of distance in km."""

MOST_IN_AREA = 12
"""Largest number of rows of a block in one quarter."""


def rows_of(options: Any, code: str, target: str) -> pd.DataFrame:
    """Return the rows of a region as a plain table."""
    region = geogp.read_region(code, boundaries=options.boundaries)
    found = geogp.read_tiles(
        region, target=target, quarters=options.quarters, source=options.source
    )
    return pd.DataFrame(found.drop(columns="geometry"))


def chosen(held: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MOST_IN_AREA` rows of each block and quarter, with columns of both."""
    place = held["longitude"].to_numpy(), held["latitude"].to_numpy()
    held = held.assign(when=pd.PeriodIndex(held["quarter"]).asi8)
    cells = cell_indices(*place, CELL_DEGREES)
    held["block"] = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
    rows = held.groupby(["block", "when"])
    few = (rows.cumcount() < MOST_IN_AREA) & (rows["y"].transform("size") >= LEAST_ROWS)
    return held[few]


def fold(rows: pd.DataFrame, test: Any, options: Any) -> Figures:
    """Fit to the rows outside `test`; return errors and variances of means over test rows."""
    train, held = rows[~test], chosen(rows[test].sample(frac=1, random_state=0))
    with arithmetic():
        model = geogp.FieldGP(
            x="longitude", y="latitude", time="quarter", tests="tests", devices="devices",
            preset="quick", epochs=options.epochs, random_state=0,
        ).fit(train.drop(columns="y"), train["y"])  # fmt: skip
        x, counts = held.drop(columns="y"), held[["tests", "devices"]].to_numpy(np.float64).T
        level, process = (
            model.joint(x, calibrated=calibrated).measured(*counts) for calibrated in (True, False)
        )
    places = [
        [each[name].to_numpy() for name in ("longitude", "latitude")] for each in (held, train)
    ]
    km, y = nearest_km(*places[0], *places[1]), held["y"].to_numpy()
    block, when = held["block"].to_numpy(), held["when"].to_numpy()
    area = blocks_in_quarters(block, when)
    means, whole = (
        sparse.csc_array((1 / np.bincount(of)[of], (np.arange(len(of)), of)))
        for of in (area, np.unique(when, return_inverse=True)[1])
    )
    ends = [set(block[when == at]) for at in (when.min(), when.max())]
    first, last = (
        [area[(block == k) & (when == at)][0] for k in sorted(ends[0] & ends[1])]
        for at in (when.min(), when.max())
    )
    weights = {"level": means, "whole": whole, "change": means[:, last] - means[:, first]}
    found: Figures = {}
    for name, w in weights.items():
        law = process if name == "change" else level
        size = abs(w)
        found[name] = {
            "error": (w.T @ y - law.sum_means(w)).tolist(),
            "variance": law.sum_variances(w, noise=True).tolist(),
            "km": ((size.T @ km) / size.sum(0)).tolist(),
        }
    return found


def coverages(trials: list[Figures], name: str) -> list[tuple[str, ...]]:
    """Return the lines of a table: coverage of 95 % intervals by distance."""
    rows, lines = pd.concat([pd.DataFrame(one[name]) for one in trials], ignore_index=True), []
    classes = ((0, np.inf),) if name == "whole" else pairwise(BINS)
    for low, high in classes:
        part = rows[(rows["km"] >= low) & (rows["km"] < high)]
        if len(part):
            covered = (part["error"].abs() <= REACH * np.sqrt(part["variance"])).mean()
            end = "all" if name == "whole" else f"{low} to {high}" if high < BINS[-1] else f"{low}+"
            sizes = (np.sqrt(values.mean()) for values in (part["variance"], part["error"] ** 2))
            lines.append(
                (end, f"{len(part):,}", percent(covered), *(f"{size:.3f}" for size in sizes))
            )
    return lines


def page(trials: list[Figures]) -> str:
    """Return the Markdown page of all folds."""
    header = "distance, km", "means", "coverage", "sd", "RMSE"
    changes = ("distance, km", "changes", *header[2:])
    return f"""# The level far from data

Made by `benchmarks/answers/far_from_data.py`: {len(trials)} folds, each of which holds out a third
or a half of the region, or another region. A mean is the mean of
{LEAST_ROWS} to {MOST_IN_AREA} test rows of a block in one quarter.
Its interval comes from the joint distribution of the level, plus
the noise of each row. The distance is the mean distance of these rows to the nearest training row.
sd and RMSE are root mean squares of the stated standard deviation, with noise, and of the error, in
log10.

{table(header, coverages(trials, "level"))}
Means over a whole held-out part, in one quarter:

{table(header, coverages(trials, "whole"))}
Changes of the means over blocks from the first to the last quarter:

{table(changes, coverages(trials, "change"))}"""


def main() -> None:
    """Make all folds, and write JSON and table."""
    options = options_of(
        __doc__, out="far", table="far", region=True, epochs=2, beyond="", targets="download"
    )
    targets = options.targets.split(",")
    for target in targets:
        rows = rows_of(options, options.region, target)
        east = rows["longitude"].rank(pct=True).to_numpy()
        for low, high in PARTS:
            path = options.out / f"{target}-{low:.2f}-{high:.2f}.json"
            kept(path, partial(fold, rows, (east > low) & (east <= high), options))
            say(path.name)
        if options.beyond:
            more = rows_of(options, options.beyond, target)
            both = pd.concat([rows, more], ignore_index=True)
            test = np.arange(len(both)) >= len(rows)
            path = options.out / f"{target}-{options.beyond}.json"
            kept(path, partial(fold, both, test, options))
    trials = [one for target in targets for one in all_kept(options.out, f"{target}-*.json")]
    told = {name: coverages(trials, name) for name in ("level", "whole", "change")}
    write_results(options.table, page(trials), told)
    print(page(trials))
