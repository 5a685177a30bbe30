"""The plan of one fit, and functions that build and train its model."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np
import torch

from geogp.choices import AVERAGE
from geogp.errors import RequestError
from geogp.models.catalogue.build import Scaling, build, without_constants
from geogp.models.exact.exact_process import fit_exact
from geogp.models.exact.passes import MOST_PASSES, MOST_ROWS
from geogp.models.exact.stations import are_stations
from geogp.models.fitting.few_rows import (
    FOLDS,
    MIN_PLACES,
    are_few,
    check_places,
    count_places,
    fold_residuals,
    width_factor,
)
from geogp.models.fitting.fit_progress import duration
from geogp.models.fitting.limit_draws import with_drawn_targets
from geogp.models.fitting.loop import FitState, Progress, fit
from geogp.models.names import find_model
from geogp.models.presets import Preset
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.memory import check_memory
from geogp.models.process.model import Model
from geogp.models.process.process import Process

Tell = Callable[[str], None]
"""Receives a message."""

FEW_GROUPS = 8
"""With fewer groups of rows, a fit warns that little is known about other groups."""

STATIONS = 4
"""Smallest number of places of an exact process, such as stations with many times each."""


@dataclass(frozen=True)
class FitPlan:
    """All choices of a fit except its rows.

    The preset has the values of this fit; rank and width are those of `sizes`. `scaling` is that of
    `build`. If `exact` is true and there are at most `MOST_ROWS` rows, each of a single test,
    or rows of sessions or with known errors, which may be means of tests, the model is an exact
    process.
    """

    model: str
    preset: Preset
    sizes: Architecture
    device: torch.device
    scaling: Scaling = "none"
    exact: bool = False

    def build(self, rows: Data, warn: Tell | None = None) -> Process:
        """Return the untrained model on `device`; `warn` is called with warnings about the rows.

        Raises the errors of `build.build`, and RequestError if there is not enough memory.
        """
        preset = self.preset
        check_memory(self.sizes, len(rows.y), min(preset.batch, len(rows.y)), self.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            model = build(
                self.model,
                self.sizes,
                torch.as_tensor(rows.x),
                placement=preset.placement,
                scaling=self.scaling,
                noise_start=preset.noise_start,
                seed=preset.seed,
            )
        if warn is not None:
            for warning in caught:
                warn(str(warning.message))
        return model.to(self.device)

    def fit(
        self,
        train: Data,
        validation: Data,
        *,
        checkpoint: Path | None = None,
        progress: Progress | None = None,
        warn: Tell | None = None,
        stage: Tell | None = None,
        name: str = "",
    ) -> tuple[Model, FitState]:
        """Build and train a model; with few rows, cross-validation sets the width of intervals.

        `train`, `validation`: rows to learn from, and rows that choose the epoch.
        `warn`: called with warnings about the rows. `stage`: called when a long part begins.
        `name`: name of the fit in messages.

        Raises the errors of `build` and `loop.fit`, and DataError if there are too few
        places.
        """
        averages = find_model(self.model).kind == AVERAGE
        known = train.joined(validation) if averages else train
        if self._is_exact(known):
            return self._fit_exact(known, warn, stage)
        if known.side.any():
            train, validation = with_drawn_targets(
                partial(self._fit_half, progress), train, validation, self.preset.seed, stage
            )
            known = train.joined(validation)
        few = averages and are_few(known)
        if few:
            check_places(known)
        settings = self.preset.settings
        fitted, state = fit(
            self.build(train, warn),
            train,
            validation,
            settings,
            checkpoint=checkpoint,
            progress=progress,
        )
        if few:
            named = f" ({name})" if name else ""
            if stage is not None:
                told = f"{FOLDS} fits, about {duration(FOLDS * state.seconds)}"
                stage(f"estimating the width of intervals by cross-validation{named}: {told}")
            start = monotonic()
            factor = width_factor(fold_residuals(self.build, known, settings))
            fitted = fitted.widened(factor)
            state.seconds += monotonic() - start
            if warn is not None:
                warn(
                    f"{len(known.y)} rows at {count_places(known)} places are few, so the width of "
                    f"the intervals{named} is estimated by cross-validation; this width is "
                    f"{factor:.2f} times the width that the model gives."
                )
        return fitted, state

    def _fit_half(self, progress: Progress | None, train: Data, validation: Data) -> Model:
        """Fit a model from which targets are drawn; its width is that of the model itself."""
        known = train.joined(validation)
        if self._is_exact(known):
            return self._fit_exact(known, None, None)[0]
        model, settings = self.build(train), self.preset.settings
        return fit(model, train, validation, settings, progress=progress)[0]

    def takes_exact(self, rows: Data) -> bool:
        """Return whether an exact process can be fitted to rows."""
        single, known = (rows.counts == 1).all(), rows.error_variance.any()
        spare = len(rows.y) - len(self.sizes.covariates)
        sessions = rows.session is not None
        if not (self.exact and (single or sessions or known) and spare >= MIN_PLACES):
            return False
        axes = self.sizes.d - len(self.sizes.covariates)
        stations = not rows.side.any() and are_stations(np.asarray(rows.x[..., :axes]))
        return sessions or len(rows.y) <= MOST_ROWS or stations

    def _is_exact(self, rows: Data) -> bool:
        """Return whether an exact process is fitted; raise RequestError if only it could be."""
        sessions = 0 if rows.session is None else len(np.unique(rows.session))
        exact = self.takes_exact(rows)
        if sessions:
            self._check_groups(sessions, len(rows.y) - len(self.sizes.covariates))
        if rows.error_variance.any() and not exact:
            raise RequestError(
                f"known error variances need an exact process, for {MIN_PLACES:,} rows more than "
                f"covariates up to {MOST_ROWS:,} rows, found {len(rows.y):,} rows. It is not "
                f"fitted with epochs=, rank=, batch=, devices= or provider=."
            )
        return exact

    def _check_groups(self, groups: int, spare: int) -> None:
        """Raise RequestError with the reason if no exact process can be fitted to groups of rows.

        `spare` is the number of rows less that of covariates.
        """
        need = "group needs an exact process, "
        if groups > MOST_PASSES:
            raise RequestError(
                f"{need}for at most {MOST_PASSES:,} groups, found {groups:,}: give larger groups, "
                "or fewer rows."
            )
        if spare < MIN_PLACES:
            raise RequestError(
                f"{need}for at least {MIN_PLACES:,} rows more than covariates, found {spare:,}: "
                "give more rows, or fewer covariates."
            )

    def _fit_exact(
        self, rows: Data, warn: Tell | None, stage: Tell | None
    ) -> tuple[Model, FitState]:
        """Fit an exact process to all rows; raise the errors of `fit`."""
        check_places(rows, STATIONS)
        tell = warn if warn is not None else lambda _: None
        groups = 0 if rows.session is None else len(np.unique(rows.session))
        if 1 < groups < FEW_GROUPS:
            tell(
                f"{groups} groups say little about others: the intervals are too narrow for new "
                "groups."
            )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            sizes = without_constants(rows.x, self.sizes)
        for warning in caught:
            tell(str(warning.message))
        seed = self.preset.seed
        return fit_exact(self.model, sizes, rows, seed, self.device, warn=tell, stage=stage)
