"""The ways of splitting rows, in words: which question a figure of each answers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """A way of splitting, in words for a reader.

    `name` is used on the command line and in files, `title` in a heading; `question` is what a
    figure of this split answers. `flatters` tells whether test rows have training rows nearby: then
    figures are better than for locations without measurements.
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
    "degrees, nor within some kilometres of it in the blocks around?",
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
    "How well is the next quarter predicted, mostly at places measured before, from the quarters "
    "before it alone?",
    flatters=True,
)

SPLITS = {split.name: split for split in (RANDOM, BLOCKS, BUFFER, COUNTY, LATEST)}

BUFFER_KM = 5.0
"""Default distance that the split with a buffer keeps between training and test rows.

The correlation of neighbouring tiles starts at a range of 3 km (`tile_process.py`); less than a
fifth of it is left at 5 km. A test row is then informed by the smooth field.
"""

MAX_FOLDS = 5
"""Folds of a split by blocks: each tests a fifth of the blocks."""
