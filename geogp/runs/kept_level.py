"""The level of single tiles, which a map leaves in its run folder for later answers."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from geogp import __version__
from geogp.errors import DataError
from geogp.files import sha256_of
from geogp.geodata.places.region import Tiles
from geogp.models.catalogue.storage import read_tensors, write_tensors
from geogp.models.joint.joint_level import Single
from geogp.runs.run_folder import LEVEL_FILE, MODEL_FILE


@dataclass(frozen=True)
class KeptLevel:
    """The file with `LowRankGP.single` of a run's tiles in one quarter.

    `depends` is what these tensors depend on; a file made from something else does not count.
    """

    path: Path
    depends: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, quarter: str, tiles: Tiles, precision: str) -> Self:
        """Return the file in a folder that contains the model."""
        places = np.stack([tiles.column, tiles.row]).astype(np.int64)
        depends = {
            "geogp": __version__,
            "model": sha256_of(folder / MODEL_FILE),
            "precision": precision,
            "quarter": quarter,
            "zoom": tiles.zoom,
            "tiles": hashlib.sha256(places.tobytes()).hexdigest(),
        }
        return cls(folder / LEVEL_FILE.format(quarter), depends)

    def read(self) -> Single | None:
        """Return the tensors; None if the file is missing, damaged, or of something else."""
        try:
            tensors, found = read_tensors(self.path)
        except DataError:
            return None
        return tensors if found == self.depends else None

    def write(self, single: Single) -> None:
        """Write the tensors, if there are any; raise OutputError if the file cannot be written."""
        if single:
            write_tensors(self.path, single, self.depends)
