"""The question that a map answers."""

from dataclasses import dataclass
from typing import Any

from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.record_names import COUNT, LEVEL


@dataclass(frozen=True)
class Question:
    """The question that a map answers.

    `name` is ``tile-mean``, ``single-test``, ``level`` or ``count``; `quarter` and `latest` are
    indices of the quarter shown and of the latest with data. The predicted value averages `tests`
    tests; None for the level, and for models whose noise does not depend on them without a repair
    by tests.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None

    @property
    def beyond(self) -> int:
        """Quarters between the latest data and the map; 0 within the data."""
        return max(0, self.quarter - self.latest)

    @property
    def record(self) -> dict[str, Any]:
        """The entries of run.json for the question."""
        return {
            "question": self.name,
            "tests": self.tests,
            "at": self.at,
            "quarters_beyond_data": self.beyond,
        }

    def words(self) -> str:
        """Return the predicted quantity in the plural, for notes and legends."""
        if self.name == COUNT:
            return "numbers of tests of a tile in a quarter"
        if self.name == LEVEL:
            return "levels around which measurements scatter"
        if self.tests is None:
            return "new measurements, with as many tests as measurements in the data have"
        return f"tile averages over {self.tests} tests" if self.tests > 1 else "single tests"

    def label(self) -> str:
        """Return the quarter, with the last quarter of data where the map lies beyond it."""
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{self.at}{end}"

    @property
    def at(self) -> str:
        """Label of the quarter."""
        return quarter_label(self.quarter)
