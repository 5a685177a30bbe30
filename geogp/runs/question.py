"""The predicted quantity and the quarter of a map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geogp.choices import AVERAGE, CLASS, COUNT
from geogp.errors import RequestError
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.names import ModelName
from geogp.records.record_names import LEVEL
from geogp.reports.words import sample_words


@dataclass(frozen=True)
class Question:
    """The predicted quantity and the quarter of a map.

    `name` is ``tile-mean``, ``single-test``, ``level``, ``count`` or ``class``. `quarter` is the
    index of the map's quarter, and `latest` the index of the latest quarter with data. The map
    predicts averages of `tests` tests from `devices` devices, of `provider`; each is None if
    predictions do not depend on it. `shares`: whether the level is a probability of success.
    """

    name: str
    quarter: int
    latest: int
    tests: int | None
    devices: int | None = None
    provider: str | None = None
    shares: bool = False

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

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of a table of places to predict, by name, each with one value for all rows."""
        return {"tests": self.tests, "devices": self.devices, "provider": self.provider}

    def words(self) -> str:
        """Return the predicted quantity in the plural, for notes and legends."""
        return self._words() + ("" if self.provider is None else f" ({self.provider})")

    def _words(self) -> str:
        if self.name == COUNT:
            return "numbers of tests of a tile in a quarter"
        if self.name == CLASS:
            return "tiers of measured tiles"
        if self.name == LEVEL:
            scattered = "levels around which measurements scatter"
            return "probabilities that a test succeeds" if self.shares else scattered
        if self.tests is None:
            return "new measurements, with as many tests as in the data"
        if self.tests == 1:
            return "single tests"
        return f"tile averages over {sample_words(self.tests, self.devices)}"

    def label(self) -> str:
        """Return the quarter as text; if it is after the data, add the last quarter with data.

        The text ends with the provider, if there is one.
        """
        end = f" (data end in {quarter_label(self.latest)})" if self.beyond else ""
        return f"{self.at}{end}" + ("" if self.provider is None else f", {self.provider}")

    @property
    def at(self) -> str:
        """The quarter as text, such as ``2023Q4``."""
        return quarter_label(self.quarter)


def check_quarter(
    quarter: int, quarters: Sequence[int], about: ModelName, *, timeless: bool, option: str = "--at"
) -> None:
    """Raise RequestError if a model cannot predict a quarter.

    `quarters` are the quarters with data, in order. `timeless` means that the model has only the
    place as an input. `option` is the option with which the user chose the quarter.
    """
    first, *later = quarters
    last = quarter_label(quarters[-1])
    request = f"{option} {quarter_label(quarter)}"
    if quarter != quarters[-1] and timeless:
        raise RequestError(
            f"{request} needs the quarter as an input, but the model has only the place as an "
            f"input; the data are of {last}{' and earlier quarters' if later else ''}."
        )
    if quarter < first:
        raise RequestError(
            f"{request} lies before the data, which start in {quarter_label(first)}."
        )
    if quarter > quarters[-1] and not about.has_tiles:
        reason = (
            "numbers of tests and tiers can be mapped only for quarters within the data."
            if about.kind != AVERAGE
            else "only the model field states the uncertainty of later quarters."
        )
        raise RequestError(f"{request} lies beyond the data, which end in {last}; {reason}")
