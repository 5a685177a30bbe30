"""The question that a map answers."""

from dataclasses import dataclass

from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.record_names import COUNT, LEVEL


@dataclass(frozen=True)
class Question:
    """What a map predicts.

    Attributes
    ----------
    name
        ``tile-mean``, ``single-test`` or ``level``; ``count`` where tests are counted.
    quarter, latest
        Indices of the quarter shown and of the latest one with data.
    tests
        Tests that the predicted value averages; None for the level, and for models whose noise
        does not depend on them, unless a repair by number of tests makes it.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None

    @property
    def beyond(self) -> int:
        """Quarters that the map lies after the latest data; 0 within them."""
        return max(0, self.quarter - self.latest)

    def words(self) -> str:
        """Return what is predicted, many of them, for notes and legends."""
        if self.name == COUNT:
            return "numbers of tests of a tile in a quarter"
        if self.name == LEVEL:
            return "levels that measurements scatter around"
        if self.tests is None:
            return "new measurements, of as many tests as the data happen to hold"
        return f"tile averages over {self.tests} tests" if self.tests > 1 else "single tests"

    def label(self) -> str:
        """Return the quarter, with that in which the data end where it lies beyond."""
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{self.at}{end}"

    @property
    def at(self) -> str:
        """Label of the quarter."""
        return quarter_label(self.quarter)
