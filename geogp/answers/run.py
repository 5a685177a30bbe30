"""A finished run, with methods that answer questions about the map."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, TypeVar, cast

import geopandas as gpd
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from geogp.answers.areas import area_levels
from geogp.answers.at import place_answers
from geogp.answers.at_model import PlaceModel
from geogp.answers.change import level_changes
from geogp.answers.exceedance import threshold_shares
from geogp.answers.make import check_level, sample_of
from geogp.answers.next import next_tiles
from geogp.answers.providers import provider_levels
from geogp.answers.requests import (
    AreasRequest,
    ChangeRequest,
    ExceedanceRequest,
    NextRequest,
    PlaceQuestion,
    RunRequest,
    VerifyRequest,
)
from geogp.answers.verify import check_forecast, later_scores
from geogp.arguments import checked_arguments, places_of
from geogp.distributions.html_tables import html_table
from geogp.errors import DataError, RequestError
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.pipeline.write import PAGE_FILE, REPORT_FILES
from geogp.runs.progress import ProgressListener
from geogp.runs.reopen import Reopened, reopen
from geogp.runs.run_folder import read_run_record
from geogp.runs.run_places import PLACES_IN_RUN, RunPlaces
from geogp.runs.stored_run import StoredRun

Request = TypeVar("Request", bound=RunRequest)
Computed = TypeVar("Computed")


@dataclass(frozen=True, eq=False)
class Run(StoredRun):
    """A finished run with methods that answer questions about its map; see `StoredRun`."""

    _opened: dict[Any, Reopened] = field(default_factory=dict, init=False, repr=False)

    def _repr_html_(self) -> str:
        """Return what the run is, links to its pages, and the coverage of its intervals."""
        record = self.record
        title = (
            f"Run {self.path.name}: {record.target}, {record.service}, {record.region_in_words}, "
            f"by {record.model}"
        )
        pages = (self.path.resolve() / name for name in (PAGE_FILE, REPORT_FILES[-1]))
        links = [
            f'<a href="{escape(page.as_uri())}">{page.name}</a>' for page in pages if page.is_file()
        ]
        shown = {"coverage_95": "in their 95 % interval", "accuracy": "of the predicted class"}
        scores = [
            {"split": split, "stratum": stratum, "test rows": found.n}
            | {told: getattr(found, name) for name, told in shown.items() if hasattr(found, name)}
            for split, strata in record.metrics.items()
            for stratum, found in strata.items()
        ]
        columns = {name: [row[name] for row in scores] for name in scores[0]}
        return f"{html_table(title, columns)}<p>{' '.join(links)}</p>"

    def reopen(
        self,
        *,
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        target: str | None = None,
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
        target
            One target of a run of several; None means the first.
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
        check_level(self, counts=counts)
        sample = tests, devices, at, target
        if sample not in self._opened:
            self._opened[sample] = reopen(self, tests=tests, devices=devices, at=at, target=target)
        return self._opened[sample]

    def areas(
        self,
        by: str = AreasRequest.by,
        *,
        weights: str | None = None,
        question: str = AreasRequest.question,
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        draws: int = AreasRequest.draws,
        seed: int = AreasRequest.seed,
        crs: str | None = None,
        target: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the level of each area, one row per area; see `AreasRequest` and `area_levels`.

        With `question` ``tile-mean``, the table has means of new measurements instead.
        """
        request = AreasRequest(
            self.path,
            by=by,
            weights=weights,
            question=question,
            tests=tests,
            devices=devices,
            at=at,
            draws=draws,
            seed=seed,
            crs=crs,
            target=target,
        )
        return self._answer(area_levels, request).frame

    def providers(
        self,
        by: str = AreasRequest.by,
        *,
        at: str | None = None,
        seed: int = AreasRequest.seed,
        crs: str | None = None,
    ) -> pd.DataFrame:
        """Return levels and differences of the providers of a run by provider in each area.

        The table has one row for each area and each pair of providers; see `provider_levels`.
        """
        request = AreasRequest(self.path, by=by, at=at, seed=seed, crs=crs, by_provider=True)
        return self._answer(provider_levels, request).table

    def change(
        self,
        start: str,
        end: str | None = None,
        *,
        by: str = ChangeRequest.by,
        at_least: float | None = None,
        draws: int = ChangeRequest.draws,
        seed: int = ChangeRequest.seed,
        crs: str | None = None,
        target: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the change of the level of each area between two quarters.

        The table has one row per area; see `ChangeRequest` and `level_changes`.
        """
        request = ChangeRequest(
            self.path,
            start=start,
            end=end,
            by=by,
            at_least=at_least,
            draws=draws,
            seed=seed,
            crs=crs,
            target=target,
        )
        return self._answer(level_changes, request).frame

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
        tier: Sequence[str] | None = None,
        near_km: float = PlaceQuestion.near_km,
        target: str | None = None,
    ) -> pd.DataFrame:
        """Return predictions at places in degrees, one row per place and quarter.

        See `PlaceQuestion` for the arguments, and `place_answers` for the columns.
        """
        request = PlaceQuestion(
            quarters=quarters,
            question=question,
            tests=tests,
            devices=devices,
            threshold=cast("tuple[float, ...] | None", threshold),
            tier=cast("tuple[str, ...] | None", tier),
            near_km=near_km,
        )
        x, y = map(np.atleast_1d, places_of(longitude, latitude))
        if x.ndim != 1 or not (np.isfinite(x) & np.isfinite(y)).all():
            raise DataError("expected finite latitudes and longitudes, each (n,).")
        if not len(x):
            raise RequestError("expected one place or more, found none.")

        def model() -> PlaceModel:
            reopen = partial(self.reopen, counts=True)
            return PlaceModel(self.path, self.record, *self.loaded, reopen)

        run = self.path, self.record
        return place_answers(run, (x, y), request, model, target=target).table

    def exceedance(
        self,
        threshold: Sequence[float] | None = None,
        *,
        tier: Sequence[str] | None = None,
        by: str | None = None,
        weights: str | None = None,
        at: str | None = None,
        draws: int = ExceedanceRequest.draws,
        seed: int = ExceedanceRequest.seed,
        crs: str | None = None,
        target: str | None = None,
    ) -> pd.DataFrame:
        """Return the share of each area where the level does not reach the threshold.

        Each row has one area and one threshold, or one tier of a run of several targets; see
        `ExceedanceRequest` and `threshold_shares`.
        """
        request = ExceedanceRequest(
            self.path,
            threshold=cast("tuple[float, ...] | None", threshold),
            tier=cast("tuple[str, ...] | None", tier),
            by=by,
            weights=weights,
            at=at,
            draws=draws,
            seed=seed,
            crs=crs,
            target=target,
        )
        answers = self._answer(threshold_shares, request)
        tables = [answer.shares.assign(threshold=answer.threshold.value) for answer in answers]
        return pd.concat(tables, ignore_index=True)

    def next(
        self,
        tiles: int = NextRequest.tiles,
        *,
        among: str | None = None,
        within: str | None = None,
        by: str = NextRequest.by,
        tests: int | None = None,
        devices: int | None = None,
        at: str | None = None,
        candidates: int = NextRequest.candidates,
        seed: int = NextRequest.seed,
        crs: str | None = None,
        target: str | None = None,
    ) -> gpd.GeoDataFrame:
        """Return the best tiles for new measurements; see `NextRequest` and `next_tiles`."""
        request = NextRequest(
            self.path,
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
            target=target,
        )
        return self._answer(next_tiles, request).frame

    def verify(
        self, quarters: str, *, points: str | None = None, target: str | None = None
    ) -> pd.DataFrame:
        """Return the scores of the run on quarters after those to which it was fitted.

        The table has one row for all rows, each stratum, each quarter, and tiles with and without
        rows in the run; see `VerifyRequest` and `later_scores`.
        """
        request = VerifyRequest(self.path, quarters=quarters, points=points, target=target)
        # Since the run was opened, another command may have written its report again.
        check_forecast(request, read_run_record(self.path)[1])
        return self._answer(later_scores, request).scores

    def _answer(
        self, answer: Callable[[Reopened, Request], Computed], request: Request
    ) -> Computed:
        """Return the answer to a request about the run with its data read again."""
        with arithmetic(precision=self.record.precision):
            opened = self.reopen(**sample_of(request))
            # Warnings of one answer are not those of the next.
            return answer(replace(opened, listener=opened.listener.copy()), request)


@checked_arguments
def open_run(
    path: Path | str,
    *,
    device: str = RunRequest.device,
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
    return Run.read(Path(path), device, read_from, listener)
