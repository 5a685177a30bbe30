"""A finished run, with methods that answer questions about the map."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import geopandas as gpd
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from geogp.arguments import checked_arguments, places_of
from geogp.choices import CLASS, COUNT
from geogp.errors import DataError, RequestError
from geogp.estimators.spatial_gp import SpatialGP
from geogp.estimators.stored_estimators import load_with_notes
from geogp.models.names import find_model
from geogp.models.numerics.devices import pick_device
from geogp.models.numerics.precision import precision
from geogp.models.options import CANDIDATES, DOUBLE
from geogp.records.run_record import RunRecord
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.questions import question_types
from geogp.runs.questions.area_levels import area_levels
from geogp.runs.questions.level_changes import level_changes
from geogp.runs.questions.measurement_choice import next_tiles
from geogp.runs.questions.place_answers import place_answers
from geogp.runs.questions.provider_levels import provider_levels
from geogp.runs.questions.threshold_shares import threshold_shares
from geogp.runs.reopen import Reopened, reopen
from geogp.runs.run_folder import MODEL_FILE, read_predictions, read_run_record
from geogp.runs.run_places import PLACES_IN_RUN, RunPlaces

Asked = TypeVar("Asked")
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Run:
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
    _opened: dict[Any, Reopened] = field(default_factory=dict, init=False, repr=False)

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

    def reopen(
        self,
        *,
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        counts: bool = False,
    ) -> Reopened:
        """Read the run's data again, and return the run with these data.

        Parameters
        ----------
        tests
            Number of tests in a tile mean; None means the median of the region's rows.
        devices
            Number of devices that made these tests; None means the region's typical number.
        at
            The quarter; None means the quarter of the run's map.
        counts
            Whether to accept a run whose target is the number of tests.

        Raises
        ------
        RequestError
            The target is a class, or it is the number of tests and `counts` is false, or run.json
            names an address that the user has not given.
        DataError
            A file is damaged, contradicts another file, or has changed since the run was made.
        """
        kind = find_model(self.record.model).kind
        if kind == CLASS or (kind == COUNT and not counts):
            what = "the number of tests" if kind == COUNT else f"a class ({self.record.target})"
            raise RequestError(
                f"the target of {self.path} is {what}, which has no level. Run geogp map with "
                f"another --target."
            )
        asked = tests, devices, at
        if asked not in self._opened:
            self._opened[asked] = reopen(self, tests=tests, devices=devices, at=at)
        return self._opened[asked]

    def areas(
        self,
        by: str = question_types.BY_COUNTY,
        *,
        weights: str | None = None,
        question: str = "level",
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        draws: int = 400,
        seed: int = 0,
        crs: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the level of each area, one row per area; see `AreaQuestion` and `area_levels`.

        With `question` ``tile-mean``, the table has means of new measurements instead.
        """
        asked = question_types.AreaQuestion(
            by=by,
            weights=weights,
            question=question,
            tests=tests,
            devices=devices,
            at=at,
            draws=draws,
            seed=seed,
            crs=crs,
        )
        return self._answer(area_levels, asked).frame

    def providers(
        self,
        by: str = question_types.BY_COUNTY,
        *,
        at: str | None = None,
        seed: int = 0,
        crs: str | None = None,
    ) -> pd.DataFrame:
        """Return levels and differences of the providers of a run by provider in each area.

        The table has one row for each area and each pair of providers; see `provider_levels`.
        """
        asked = question_types.AreaQuestion(by=by, at=at, seed=seed, crs=crs, by_provider=True)
        return self._answer(provider_levels, asked).table

    def change(
        self,
        start: str,
        end: str | None = None,
        *,
        by: str = question_types.BY_COUNTY,
        at_least: float | None = None,
        draws: int = 400,
        seed: int = 0,
        crs: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the change of the level of each area between two quarters.

        The table has one row per area; see `ChangeQuestion` and `level_changes`.
        """
        asked = question_types.ChangeQuestion(
            start=start, end=end, by=by, at_least=at_least, draws=draws, seed=seed, crs=crs
        )
        return self._answer(level_changes, asked).frame

    def at(
        self,
        latitude: ArrayLike,
        longitude: ArrayLike,
        *,
        quarters: str | None = None,
        question: str | None = None,
        tests: int | None = None,
        devices: int | None = None,
        threshold: Sequence[float] | None = None,
        near_km: float = 2.0,
    ) -> pd.DataFrame:
        """Return predictions at places in degrees, one row per place and quarter.

        See `PlaceQuestion` for the arguments, and `place_answers` for the columns.
        """
        asked = question_types.PlaceQuestion(
            quarters=quarters,
            question=question,
            tests=tests,
            devices=devices,
            threshold=cast("tuple[float, ...] | None", threshold),
            near_km=near_km,
        )
        x, y = map(np.atleast_1d, places_of(longitude, latitude))
        if x.ndim != 1 or not (np.isfinite(x) & np.isfinite(y)).all():
            raise DataError("expected finite latitudes and longitudes, each (n,).")
        if not len(x):
            raise RequestError("expected one place or more, found none.")
        with arithmetic(precision=self.record.precision):
            run = self.path, self.record
            found = place_answers(run, self.loaded, (x, y), asked, lambda: self.reopen(counts=True))
        return found.table

    def exceedance(
        self,
        threshold: Sequence[float] | None = None,
        *,
        by: str | None = None,
        weights: str | None = None,
        at: str | None = None,
        draws: int = 500,
        seed: int = 0,
        crs: str | None = None,
    ) -> pd.DataFrame:
        """Return the share of each area where the level does not reach the threshold.

        Each row has one area and one threshold; see `ThresholdQuestion` and `threshold_shares`.
        """
        asked = question_types.ThresholdQuestion(
            threshold=cast("tuple[float, ...] | None", threshold),
            by=by,
            weights=weights,
            at=at,
            draws=draws,
            seed=seed,
            crs=crs,
        )
        found = self._answer(threshold_shares, asked)
        tables = [one.shares.assign(threshold=one.threshold.value) for one in found]
        return pd.concat(tables, ignore_index=True)

    def next(
        self,
        tiles: int = 50,
        *,
        among: str | None = None,
        within: str | None = None,
        by: str = question_types.BY_COUNTY,
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        candidates: int = CANDIDATES,
        seed: int = 0,
        crs: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the best tiles for new measurements; see `ChoiceQuestion` and `next_tiles`."""
        asked = question_types.ChoiceQuestion(
            tiles=tiles,
            among=among,
            within=within,
            by=by,
            tests=tests,
            devices=devices,
            at=at,
            candidates=candidates,
            seed=seed,
            crs=crs,
        )
        return self._answer(next_tiles, asked).frame

    def _answer(self, answer: Callable[[Reopened, Asked], Found], asked: Asked) -> Found:
        """Return the answer to a question about the run with its data read again."""
        how: dict[str, Any] = {
            name: getattr(asked, name, None) for name in ("tests", "devices", "at")
        }
        with arithmetic(precision=self.record.precision):
            return answer(self.reopen(**how), asked)


@checked_arguments
def open_run(
    path: Path | str,
    *,
    device: str = "auto",
    read_from: RunPlaces = PLACES_IN_RUN,
    listener: ProgressListener | None = None,
) -> Run:
    """Return a finished run.

    Parameters
    ----------
    path
        The run folder.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Folders or addresses of tiles and boundaries, if run.json has others.
    listener
        Called with stages and warnings.

    Raises
    ------
    RequestError
        The folder is not a finished run, or the device is unknown or not available.
    DataError
        run.json is damaged, or was written by a later version of geogp.
    """
    pick_device(device)
    folder = Path(path)
    content, record = read_run_record(folder)
    return Run(folder, content, record, device, read_from, listener or ProgressListener())
