"""The ways of splitting rows, and the question that the figures of each split answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """A way of splitting, and how reports describe it.

    `name` is used on the command line and in files, `title` in a heading; `question` is the
    question that figures of this split answer. `flatters` tells whether test rows have training
    rows nearby, which makes figures better than they would be for locations without measurements.
    """

    name: str
    title: str
    question: str
    flatters: bool


RANDOM = Split(
    "random",
    "Random split",
    "How well are unmeasured tiles and quarters predicted among measured neighbours?",
    flatters=True,
)

BLOCKS = Split(
    "blocks",
    "Split by blocks",
    "How well is a place predicted when nothing was measured in its own block of 0.1 by 0.1 "
    "degrees, about 10 km across?",
    flatters=False,
)

BUFFER = Split(
    "buffer",
    "Split by blocks with a buffer",
    "How well is a place predicted when nothing was measured in its own block of 0.1 by 0.1 "
    "degrees, nor in other blocks within some kilometres of that place?",
    flatters=False,
)

COUNTY = Split(
    "county",
    "Split by counties",
    "How well is a whole county predicted in which nothing was measured?",
    flatters=False,
)

LATEST = Split(
    "latest",
    "Split by the latest quarter",
    "How well is the next quarter predicted from earlier quarters alone, mostly at places that "
    "were measured in those quarters?",
    flatters=True,
)

SPLITS = {split.name: split for split in (RANDOM, BLOCKS, BUFFER, COUNTY, LATEST)}

BUFFER_KM = 5.0
"""Default least distance between training and test rows in the split with a buffer.

The fit of the tile process starts at a range of 3 km (`tile_process.py`), for which the correlation
at 5 km is less than a fifth. At that distance, a test row is predicted mostly from the smooth
field.
"""

MAX_FOLDS = 5
"""Number of folds of a split by blocks; in each fold, a fifth of the blocks have the test rows."""
