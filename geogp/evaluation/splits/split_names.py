"""The ways to split rows, and the question that the scores of each split answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """A way to split rows, and the question that the scores of this split answer.

    `flatters` is true if test rows have training rows nearby. Such scores are better than the
    scores of places far from measurements.
    """

    name: str
    title: str
    question: str
    flatters: bool

    def asked(self, block_degrees: float | None) -> str:
        """Return the question, with the side of the blocks if this side is given."""
        if block_degrees is None:
            return self.question
        size = f"own block of {block_degrees:g} by {block_degrees:g} degrees"
        return self.question.replace("own block", f"{size} (about {100 * block_degrees:.2g} km)")


RANDOM = Split(
    "random",
    "Random split",
    "How well is a tile predicted in one quarter when its other quarters and its neighbours may be "
    "measured?",
    flatters=True,
)

TILES = Split(
    "tiles",
    "Split by tiles",
    "How well are tiles predicted that were never measured, among measured neighbours?",
    flatters=True,
)

BLOCKS = Split(
    "blocks",
    "Split by blocks",
    "How well is a place predicted when nothing was measured in its own block?",
    flatters=False,
)

BUFFER = Split(
    "buffer",
    "Split by blocks with a buffer",
    "How well is a place predicted when nothing was measured in its own block, and nothing near "
    "the place in the blocks around?",
    flatters=False,
)

COUNTY = Split(
    "county",
    "Split by counties",
    "How well is a county predicted when nothing was measured in this county?",
    flatters=False,
)

LATEST = Split(
    "latest",
    "Split by the latest quarter",
    "How well is the next quarter predicted from earlier quarters, mostly at places that were "
    "measured earlier?",
    flatters=True,
)

SESSION = Split(
    "session",
    "Split by drives",
    "How well are the measurements of a new drive predicted from other drives?",
    flatters=False,
)

SPLITS = {split.name: split for split in (RANDOM, TILES, BLOCKS, BUFFER, COUNTY, LATEST, SESSION)}

CELL_DEGREES = 0.1
"""Side of a block, in degrees of longitude and of latitude."""

BUFFER_KM = 5.0
"""Default smallest distance between training and test rows in the split with a buffer.

The fit of the tile process starts with a range of 3 km, for which the correlation at 5 km is less
than a fifth. So at 5 km, predictions come mostly from the smooth field.
"""

NEAR_KM = 1.0
"""An unmeasured tile lies among measured ones if one of these is this near.

In the split by tiles, 96 to 100 % of the test rows are this near to other rows (the demo, Puerto
Rico and Guam); in the split by blocks, 13 to 16 %, and 60 % in Guam, whose blocks are smaller.
"""

MAX_FOLDS = 5
"""Number of folds of a split by blocks; in each fold, a fifth of the blocks are for tests."""
