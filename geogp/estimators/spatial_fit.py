"""The fit of an estimator: checks, targets, scales and validation rows."""

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import checked_arguments
from geogp.distributions.amounts import AmountPrediction, NormalScores
from geogp.distributions.shares import BINOMIAL, SharePrediction
from geogp.errors import RequestError, named
from geogp.estimators.fit_plot import some_rows
from geogp.estimators.fit_rows import (
    AUTO,
    MOST_CHECKED,
    Targets,
    check_metres,
    check_width,
    chosen_law,
    data_of,
    scored_target,
    several_targets_of,
    target_of,
    validation_rows,
    warn_caller,
    warn_of_absent_counts,
    warn_of_amounts,
    with_binomial_errors,
)
from geogp.estimators.labelled_cells import table_of, target_of_cells
from geogp.estimators.parameters import SpatialParameters
from geogp.estimators.point_columns import Points, covariate_names
from geogp.estimators.point_scale import PointScale
from geogp.models.catalogue.fit_plan import Tell
from geogp.models.catalogue.fit_targets import fit_targets
from geogp.models.fitting.fit_progress import FitProgress
from geogp.models.fitting.loop import FitState
from geogp.models.process.model import Model
from geogp.models.several.several_targets import SeveralTargets

Floats = NDArray[np.float64]


class SpatialFit(SpatialParameters):
    """A Gaussian process that is fitted to points; attributes set by `fit` end with an underscore.

    Attributes
    ----------
    network_
        The fitted model.
    scale_
        The map from points to inputs of the model.
    history_
        Losses, validation scores and the best epoch of the fit.
    normal_scores_
        With ``law``, the map between amounts and the normal scores that the model predicts.
    several_
        After a fit of several targets, their model; there is then no `network_`.
    validation_
        Mask of the validation rows, bool (n,); none if the model learns from all rows.
    n_features_in_, feature_names_in_
        Number of columns of the training table or array, and for a table the names of the columns.
    """

    network_: Model
    scale_: PointScale
    history_: FitState
    normal_scores_: NormalScores | None
    validation_: NDArray[np.bool_]
    several_: SeveralTargets

    @checked_arguments
    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model to measurements.

        Parameters
        ----------
        X
            A table (pandas or geopandas) with the columns that the estimator names, or an array
            with the columns x, y and then time, tests, devices. A table may have other columns too.
            Or a Dataset or DataArray of xarray: its cells are the rows, in the order of its
            dimensions, and the columns are coordinates and variables.
        y
            Measurements, (n,), in any unit. If X is of xarray, a DataArray of its cells, or (n,).
            For `FieldGP` also several targets of the same rows, (n, t): a table, whose columns name
            the targets, or an array. NaN marks a target that a row lacks.

        Returns
        -------
        The estimator.

        Raises
        ------
        RequestError
            A parameter is out of range, a column is missing, or there is not enough memory.
        DataError
            A value is missing or infinite, X and y differ in length, or rows or places are too few.
        NumericalError
            The fit diverges.

        Warns
        -----
        UserWarning
            A named column of tests or devices is missing; an input has the same value in all rows;
            a measurement is very far from the others; many measurements equal the smallest, or
            intervals of positive ones begin below 0, without a law of amounts; the model has more
            weights than rows; there are so few rows that cross-validation sets the width of the
            intervals; or a preset is given for an exact process.
        """
        self.check()
        if self.verbose:
            with FitProgress(type(self).__name__) as shown:
                self.fit_watched(X, y, progress=shown.epoch, stage=shown.stage)
        else:
            self.fit_watched(X, y)
        if self._fitted_path() == "exact" and self.preset != self.defaults()["preset"]:
            warn_caller(
                f"preset={self.preset!r} changes nothing: these rows are fitted by an exact "
                "process. epochs=, rank= or batch= ask for the model of three parts."
            )
        several = hasattr(self, "several_")
        amounts = self.law == BINOMIAL or self.normal_scores_ is not None
        if "law" in self.defaults() and not (amounts or several):
            self._check_law(X, target_of(target_of_cells(X, y), len(self.validation_)))
        return self

    def fit_watched(
        self,
        X: Any,
        y: ArrayLike,
        *,
        scale: PointScale | None = None,
        groups: NDArray[np.int64] | None = None,
        warn: Tell = warn_caller,
        **watch: Any,
    ) -> Self:
        """Fit the model like `fit`, with a given scale and with arguments of `FitPlan.fit`.

        `groups`, (n,), are as in `Data`; `warn` receives each warning.
        """
        self.check()
        X, y = table_of(X, self.columns()), target_of_cells(X, y)
        points = self._points_to_fit(X, warn)
        targets = several_targets_of(y, len(points), warn)
        if targets is not None:
            self._check_several()
            scale = self._scale_to_fit(points, scale, warn)
            return self._fit_several(X, points, targets, scale, groups=groups, warn=warn, **watch)
        target = target_of(y, len(points), warn)
        law = self.law
        if law == AUTO:
            ask = partial(self._log_density, X, target)
            law = chosen_law(target, ask, limits=points.group is None)
        scores, modelled, side = scored_target(law, target, points, warn)
        scale = self._scale_to_fit(points, scale, warn)
        held_out, cells = validation_rows(self.validation, points, self.crs, self.random_state)
        data = data_of(scale, points, modelled, cells if groups is None else groups, side)
        plan = self.plan(scale, int((~held_out).sum()))
        data = with_binomial_errors(data, plan) if law == BINOMIAL else data
        network, history = plan.fit(data.at(~held_out), data.at(held_out), warn=warn, **watch)
        vars(self).pop("several_", None)  # from an earlier fit
        self.network_ = network
        self._take_fit(X, scale, history, held_out & network.validates)
        self.normal_scores_ = scores
        self._shown: tuple[Points, Floats] | None = some_rows(points, target)
        self._train = None if network.holds_rows else (points.at(~held_out), target[~held_out])
        return self

    def _points_to_fit(self, X: Any, warn: Tell) -> Points:
        """Return the points of a table or an array, with all columns that a fit needs."""
        points = self.columns().read(X)
        if isinstance(X, pd.DataFrame):
            warn_of_absent_counts(self.columns(), points, warn)
        for name, values, what in (
            (self.error_variance, points.error_variance, "known error variances"),
            (self.group, points.group, "groups"),
        ):
            if name is not None and values is None:
                raise RequestError(
                    f"expected a table with the column {name!r} of {what}, found none."
                )
        return points

    def _scale_to_fit(self, points: Points, scale: PointScale | None, warn: Tell) -> PointScale:
        """Return the scale of the points of a fit, or the given one."""
        if scale is None:
            scale = PointScale.of_points(
                points,
                self.crs,
                counts=self.counts,
                names=(self.x, self.y, self.time or "time"),
                covariates=covariate_names(self.covariates),
            )
            if points.time is not None and scale.times is None:
                warn("all rows have the same time: the model depends only on the place.")
        check_metres(points, self.crs)
        return scale

    def _take_fit(
        self,
        X: Any,
        scale: PointScale,
        history: FitState,
        validation: NDArray[np.bool_],
    ) -> None:
        """Set the attributes that fits of one target and of several have."""
        self.scale_, self.history_, self.validation_ = scale, history, validation
        self.take_features(X, getattr(X, "columns", ()), np.shape(X)[1])

    def _check_several(self) -> None:
        """Raise RequestError unless the estimator takes several targets."""
        if self.families != ("field",):
            raise RequestError(
                f"expected one target, because {type(self).__name__} fits one; found several. "
                "FieldGP fits several together."
            )
        given = [name for name in ("law", "error_variance", "group") if getattr(self, name)]
        if given:
            raise RequestError(
                f"expected one target with {named(given)}, found several: fit each alone."
            )

    def _fit_several(
        self,
        X: Any,
        points: Points,
        targets: Targets,
        scale: PointScale,
        *,
        groups: NDArray[np.int64] | None,
        **watch: Any,
    ) -> Self:
        """Fit several targets together; arguments are those of `fit_watched`."""
        held_out, cells = validation_rows(self.validation, points, self.crs, self.random_state)
        unused = np.zeros(len(points))
        data = data_of(scale, points, unused, cells if groups is None else groups)
        plan = self.plan(scale, int((~held_out).sum()))
        y = np.concatenate([targets.y[~held_out], targets.y[held_out]])
        several, history = fit_targets(
            plan, targets.names, data.at(~held_out), data.at(held_out), y=y, **watch
        )
        held_out = held_out & several.models[0].validates
        vars(self).pop("network_", None)  # from an earlier fit
        self.several_ = several
        self._take_fit(X, scale, history, held_out)
        self.normal_scores_ = None
        self._shown, self._train = some_rows(points, targets.y), None
        return self

    def _read(self, X: Any) -> Points:
        X = table_of(X, self.columns())
        points = replace(self.columns(), group=None).read(X)  # points are of new groups
        check_metres(points, self.crs, self.scale_)
        check_width(X, self.n_features_in_, named=hasattr(self, "feature_names_in_"))
        return points

    def _log_density(
        self, X: Any, y: Floats, law: str | None, known: NDArray[np.bool_], rows: NDArray[np.bool_]
    ) -> Floats:
        """Return log densities of some rows, predicted by an exact process from known rows."""
        names = ("tests", "devices", "provider", "group", "epochs", "rank", "batch")
        plain = dict.fromkeys(names) | {"law": law, "validation": "random", "verbose": False}
        model: Any = type(self)(**self.get_params() | plain)
        table = (
            X if isinstance(X, pd.DataFrame) else np.asarray(X)[:, : 2 + (self.time is not None)]
        )
        model.fit_watched(table[known], y[known], warn=lambda _: None)
        return -np.asarray(model.predict_distribution(table[rows]).log_score(y[rows]))

    def _check_law(self, X: Any, y: Floats) -> None:
        """Warn if the predictive distributions of training rows are plainly wrong for amounts."""
        points, step = self._read(X), -(-len(y) // MOST_CHECKED)
        some = np.arange(len(y)) % step == 0
        tests = 1.0 if points.tests is None else points.tests[some]
        devices = None if points.devices is None else points.devices[some]
        law = self.network_.predict(self.scale_.inputs(points.at(some)), tests, devices)
        warn_of_amounts(y, law.interval(0.95)[0], warn_caller)

    def predicted(
        self,
        inputs: Floats,
        tests: Floats | float = 1.0,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Any:
        """Return predictions at model inputs, (n, d), in the unit of y; see `Model.predict`.

        After a fit of several targets, they are joint predictions.
        """
        if hasattr(self, "several_"):
            return self.several_.predict(inputs, tests, devices, level=level)
        network, scores = self.network_, self.normal_scores_
        if self.law == BINOMIAL:
            law = network.predict(inputs, level=True)
            if level:
                return SharePrediction.of(law)
            # The noise of an exact process is besides the known errors of the counts.
            exact = network.path == "exact"
            return SharePrediction.of(
                law, tests, network.predict(inputs).noise_variance if exact else 0.0
            )
        law = network.predict(inputs, tests, devices, level=level)
        return law if scores is None else AmountPrediction.of(law, scores)

    def _fitted(self) -> Model:
        """Return the model of one target; raise RequestError if there is none."""
        self.check_fitted()
        if hasattr(self, "several_"):
            raise RequestError(
                "expected an estimator of one target, found one of "
                f"{named(self.several_.names)}. of_target(name) is the estimator of one of them."
            )
        return self.network_

    def _fitted_path(self) -> str:
        """Return ``exact`` or ``basis``; see `Model`."""
        model = self.several_.models[0] if hasattr(self, "several_") else self.network_
        return model.path
