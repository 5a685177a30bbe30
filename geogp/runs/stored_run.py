"""A finished run as its folder holds it: the record, the test predictions and the model."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.models.numerics.devices import pick_device
from geogp.models.numerics.precision import precision
from geogp.models.options import DOUBLE
from geogp.records.run_record import RunRecord
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import MODEL_FILE, read_run_record
from geogp.runs.run_places import PLACES_IN_RUN, RunPlaces
from geogp.runs.stored_predictions import read_predictions


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run. geogp reads run.json first, and other files only when they are needed.

    Attributes
    ----------
    path
        The run folder.
    content
        Content of run.json, including keys that geogp does not know.
    record
        The keys of run.json that geogp knows, as typed fields.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Folders or addresses from which the run's tiles and boundaries are read.
    listener
        Called with stages and warnings.
    """

    path: Path
    content: dict[str, Any] = field(repr=False)
    record: RunRecord = field(repr=False)
    device: str = "auto"
    read_from: RunPlaces = PLACES_IN_RUN
    listener: ProgressListener = field(default_factory=ProgressListener, repr=False)

    @classmethod
    def read(
        cls, path: Path, device: str, read_from: RunPlaces, listener: ProgressListener | None
    ) -> Self:
        """Return the run in a folder.

        Raises the errors of `pick_device` and `read_run_record`.
        """
        pick_device(device)
        content, record = read_run_record(path)
        return cls(path, content, record, device, read_from, listener or ProgressListener())

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Predictions of the test rows of every split; see `read_predictions`."""
        return read_predictions(self.path, self.record)

    @property
    def model(self) -> SpatialGP:
        """The fitted estimator of the map, on `device`; see `geogp.load_model`."""
        return self.loaded[0]

    @cached_property
    def loaded(self) -> tuple[SpatialGP, dict[str, Any]]:
        """The fitted estimator, and all entries of the model's file by name."""
        with precision(DOUBLE):  # so that the user can use the model in double precision
            return load_with_notes(self.path / MODEL_FILE, device=self.device)
