"""Tables of numbers, and their split into training, validation and test rows."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.script import Figures, Floats
from geogp.errors import RequestError
from geogp.models.process.data import Data

TARGETS = {"wine": "x10"}
"""Columns with the target of the papers where it is not y: the score of wine, whose y is alcohol.

With the counts 10, 53, 681, 638, 199 and 18 of the scores 3 to 8, x10 is the quality of red wine.
"""


class Table:
    """Columns x0, x1, ... and y of a parquet, CSV or npz file; one is the target, y by default."""

    def __init__(self, path: Path, target: str = "y") -> None:
        frame = _read(path)
        names = sorted(
            (c for c in frame if c[1:].isdigit() and c[0] == "x"), key=lambda c: int(c[1:])
        )
        if not names or "y" not in frame:
            raise RequestError(
                f"expected columns x0, x1, ... and y in {path}, found {list(frame)}."
            )
        self.name = path.stem
        if target not in (*names, "y"):
            raise RequestError(f"expected the target {target} in {path}, found {list(frame)}.")
        self.columns = tuple(name for name in (*names, "y") if name != target)
        self.x = np.column_stack([np.asarray(frame[name], np.float64) for name in self.columns])
        self.y = np.asarray(frame[target], np.float64)
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    def split(self, seed: int, shares: tuple[float, float] = (0.8, 0.1)) -> dict[str, Data]:
        """Return training, validation and test rows, standardised by the training targets.

        `shares` are the shares of training and validation rows; the rest is tested.
        """
        order = np.random.default_rng(seed).permutation(len(self.y))
        first, second = (int(round(share, 9) * len(order)) for share in np.cumsum(shares))
        train = order[:first]
        centre, spread = self.y[train].mean(), self.y[train].std()
        if not spread:
            raise RequestError(f"the target of {self.name} has one value in all training rows.")
        parts = {"train": train, "validation": order[first:second], "test": order[second:]}
        return {
            k: Data(self.x[rows], (self.y[rows] - centre) / spread) for k, rows in parts.items()
        }


def column_scales(x: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each column, (d,); 1 instead of a deviation of 0."""
    spread = x.std(0)
    return x.mean(0), np.where(spread > 0, spread, 1.0)


def paper_table(folder: Path, name: str) -> Table:
    """Return the table NAME.parquet of a folder, with the target of the papers."""
    return Table(folder / f"{name}.parquet", TARGETS.get(name, "y"))


def _read(path: Path) -> Figures:
    if not path.is_file():
        raise RequestError(f"expected a parquet, CSV or npz file, found none at {path}.")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            return dict(held)
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    return {str(name): frame[name] for name in frame}
