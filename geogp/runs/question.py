"""The predicted quantity and the quarter of a map."""

from dataclasses import dataclass
from typing import Any

from geogp.choices import CLASS, COUNT
from geogp.geodata.tiles.quarters import quarter_label
from geogp.records.record_names import LEVEL


@dataclass(frozen=True)
class Question:
    """The predicted quantity and the quarter of a map.

    `name` is ``tile-mean``, ``single-test``, ``level``, ``count`` or ``class``. `quarter` is the
    index of the map's quarter, and `latest` the index of the latest quarter with data. The map
    predicts averages of `tests` tests from `devices` devices; each is None if predictions do not
    depend on it.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None
    devices: int | None = None

    @property
    def beyond(self) -> int:
        """Number of quarters between the latest data and the map; 0 if the map is not later."""
        return max(0, self.quarter - self.latest)

    @property
    def record(self) -> dict[str, Any]:
        """The entries of run.json that describe the predicted quantity and the quarter."""
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
        if self.name == CLASS:
            return "tiers of measured tiles"
        if self.name == LEVEL:
            return "levels around which measurements scatter"
        if self.tests is None:
            return "new measurements, with as many tests as in the data"
        if self.tests == 1:
            return "single tests"
        return f"tile averages over {sample_words(self.tests, self.devices)}"

    def label(self) -> str:
        """Return the quarter as text; if it is after the data, add the last quarter with data."""
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{self.at}{end}"

    @property
    def at(self) -> str:
        """The quarter as text, such as ``2023Q4``."""
        return quarter_label(self.quarter)


def sample_words(tests: int, devices: int | None) -> str:
    """Return a number of tests in words, with the number of devices if it is not None."""
    if devices is None:
        return f"{tests} tests"
    return f"{tests} tests from {devices} {'devices' if devices > 1 else 'device'}"
