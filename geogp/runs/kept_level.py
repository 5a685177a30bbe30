"""The level of single tiles, which a map leaves in its run folder for later answers."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

from geogp import __version__
from geogp.errors import DataError
from geogp.geodata.places.region import Tiles
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.runs.run_folder import LEVEL_FILE

FORMAT = 3
"""Number of the contents of a file; 3 has the field far from the rows."""


@dataclass(frozen=True)
class KeptLevel:
    """The file with the level of a run's tiles, as `Model.remembering` yields it, in one quarter.

    `depends` is what these tensors depend on; a file made from something else does not count.
    """

    path: Path
    depends: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, model: str, quarter: str, tiles: Tiles) -> Self:
        """Return the file in the folder of a run; `model` is the SHA-256 of the model's file."""
        places = np.stack([tiles.column, tiles.row]).astype(np.int64)
        depends = {
            "geogp": __version__,
            "format": FORMAT,
            "model": model,
            "quarter": quarter,
            "zoom": tiles.zoom,
            "tiles": hashlib.sha256(places.tobytes()).hexdigest(),
        }
        return cls(folder / LEVEL_FILE.format(quarter), depends)

    def read(self) -> dict[str, Tensor] | None:
        """Return the tensors; None if the file is missing, damaged, or of something else."""
        try:
            tensors, depends = read_tensors(self.path)
        except DataError:
            return None
        return tensors if depends == self.depends else None

    def write(self, level: Mapping[str, Tensor]) -> None:
        """Write the tensors, if there are any; raise OutputError if this is impossible."""
        if level:
            write_tensors(self.path, dict(level), self.depends)
