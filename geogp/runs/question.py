"""The question that a map answers."""

from dataclasses import dataclass
from typing import Any

from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.record_names import COUNT, LEVEL


@dataclass(frozen=True)
class Question:
    """The question that a map answers.

    `name` is ``tile-mean``, ``single-test``, ``level`` or ``count``. `quarter` and `latest` are the
    indices of the quarter shown and of the latest quarter with data. The predicted value is an
    average of `tests` tests from `devices` devices; None if the answer does not depend on them.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None
    devices: int | None = None

    @property
    def beyond(self) -> int:
        """Number of quarters by which the map lies after the latest data; 0 within the data."""
        return max(0, self.quarter - self.latest)

    @property
    def record(self) -> dict[str, Any]:
        """The entries of run.json for the question."""
        return {
            "question": self.name,
            "tests": self.tests,
            "devices": self.devices,
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
            return "new measurements, with as many tests as in the data"
        if self.tests == 1:
            return "single tests"
        return f"tile averages over {sample_words(self.tests, self.devices)}"

    def label(self) -> str:
        """Return the quarter; for a quarter after the data, add the last quarter with data."""
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{self.at}{end}"

    @property
    def at(self) -> str:
        """Label of the quarter."""
        return quarter_label(self.quarter)


def sample_words(tests: int, devices: int | None) -> str:
    """Return how many tests a measurement averages, and from how many devices if that matters."""
    if devices is None:
        return f"{tests} tests"
    return f"{tests} tests from {devices} {'devices' if devices > 1 else 'device'}"
