"""What is understood of a file of points, its open questions, and the rows that are left out."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.points.point_options import MOST_LEFT_OUT
from geogp.geodata.points.point_table import PointTable

Mask = NDArray[np.bool_]


@dataclass
class RowReview:
    """Notes, questions and left-out rows of a table, collected while its columns are read.

    `notes` are pairs of a subject and what was understood of it. `questions` are messages about
    what has two meanings. `bad` are the masks of rows with a fault, by reason; `apart` are those of
    rows that are left out for what they are, such as tests without the target. A row counts for its
    first reason.
    """

    table: PointTable
    notes: list[tuple[str, str]]
    questions: list[str] = field(default_factory=list)
    bad: dict[str, Mask] = field(default_factory=dict)
    apart: dict[str, Mask] = field(default_factory=dict)

    @classmethod
    def of(cls, table: PointTable) -> "RowReview":
        """Return the review of a table, in which rows with too many values are bad."""
        review = cls(table, list(table.notes))
        if table.ragged is not None:
            review.mark(table.ragged, "more values than the header has names")
        return review

    @property
    def kept(self) -> Mask:
        """Mask of the rows that are not left out, (n,)."""
        kept = np.ones(len(self.table), np.bool_)
        for rows in (*self.bad.values(), *self.apart.values()):
            kept &= ~rows
        return kept

    def mark(self, rows: Mask, reason: str, *, apart: bool = False) -> None:
        """Leave out rows, (n,), that are not left out yet."""
        rows = np.asarray(rows, np.bool_) & self.kept
        if rows.any():
            (self.apart if apart else self.bad)[reason] = rows

    def ask(self, column: str, sample: str, readings: str, cure: str) -> None:
        """Add a question about a column of which a text, `sample`, has several readings."""
        line = self.table.number[int((self.table.values(column) == sample).argmax())]
        self.questions.append(
            f"column {column}, {self.table.unit} {line}: {sample} may be {readings}. {cure}"
        )

    def check(self, most: float = MOST_LEFT_OUT) -> None:
        """Raise DataError if there are questions, or more than `most` per cent of bad rows."""
        path, n = self.table.path, len(self.table)
        if self.questions:
            asked = "\n  - ".join(self.questions)
            raise DataError(f"{path} has more than one meaning:\n  - {asked}")
        count = sum(int(rows.sum()) for rows in self.bad.values())
        if count > most / 100 * n:
            told = "\n  - ".join(
                f"{self.table.where(rows)}: {why}" for why, rows in self.bad.items()
            )
            raise DataError(
                f"{path} has {count:,} bad rows of {n:,}, more than the {most:g} % that geogp "
                f"leaves out:\n  - {told}\nCorrect or remove them, or allow more with "
                "--most-left-out."
            )
        if not self.kept.any():
            reasons = "; ".join(self.reasons())
            raise DataError(f"{path} has no row that can be used: {reasons}.")

    def reasons(self) -> list[str]:
        """Return each reason with its rows, such as ``no time: lines 3, 9 (2 of 40)``."""
        parts = {**self.bad, **self.apart}
        return [f"{why}: {self.table.where(rows)}" for why, rows in parts.items()]

    def counts(self) -> dict[str, int]:
        """Return the number of rows that are left out for each reason."""
        return {why: int(rows.sum()) for why, rows in {**self.bad, **self.apart}.items()}

    def left_out(self, columns: dict[str, str]) -> pd.DataFrame:
        """Return a table of the left-out rows: line, whether it is bad, reason, and `columns`."""
        parts = [
            pd.DataFrame({"place": np.flatnonzero(rows), "kind": kind, "reason": why})
            for kind, found in (("bad", self.bad), ("apart", self.apart))
            for why, rows in found.items()
        ]
        empty = pd.DataFrame({"place": [], "kind": [], "reason": []}).astype({"place": np.int64})
        found = pd.concat([empty, *parts]).sort_values("place", kind="stable")
        place = found.pop("place").to_numpy(np.int64)
        found.insert(0, self.table.unit, self.table.number[place])
        cells = {role: self.table.texts(name)[place] for role, name in columns.items()}
        return found.reset_index(drop=True).assign(**cells)
