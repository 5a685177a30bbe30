"""The base class of all estimators: predict, score, joint distributions, grids and files."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import checked_arguments
from geogp.choices import MAX_TESTS, check_sample, whole_number
from geogp.distributions.joint_prediction import target_number
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.estimators.fit_plot import fit_plot, last_time
from geogp.estimators.fit_rows import (
    data_of,
    target_of,
    warn_of_absent_devices,
)
from geogp.estimators.labelled_cells import labelled, table_of, target_of_cells
from geogp.estimators.point_columns import Points, crs_text
from geogp.estimators.point_scale import Bounds
from geogp.estimators.spatial_fit import SpatialFit
from geogp.models.catalogue.storage import save_model, save_models
from geogp.models.joint.level import check_rows, joint_level
from geogp.models.names import find_model
from geogp.models.several.joint_targets import joint_targets
from geogp.models.several.one_target import OneTarget

if TYPE_CHECKING:
    import xarray as xr

    from geogp.geodata.places.region import Region

Floats = NDArray[np.float64]


class SpatialGP(SpatialFit):
    """A Gaussian process over points in space, and in time if the points have times.

    Each subclass fits one family of models.
    """

    @overload
    def predict(
        self, X: "xr.Dataset | xr.DataArray", return_std: Literal[False] = False
    ) -> "xr.DataArray": ...
    @overload
    def predict(
        self, X: "xr.Dataset | xr.DataArray", return_std: Literal[True]
    ) -> "tuple[xr.DataArray, xr.DataArray]": ...
    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    @checked_arguments
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the medians of the predictive distributions at points, in the unit of y.

        Parameters
        ----------
        X
            As in `predict_distribution`.
        return_std
            Return also the standard deviations of a new measurement, with its noise, each (n,):
            ``predict_distribution(X).sd``. They belong to the mean, from which the median differs
            if a distribution is skewed; intervals of distributions with heavy tails do not follow
            from them. ``predict_distribution(X).interval(0.95)`` has the intervals.

        Returns
        -------
        An array, (n,). If X is of xarray, a DataArray with the dimensions and coordinates of X.
        After a fit of t targets, an array, (n, t).
        """
        law = self.predict_distribution(X)
        if law.targets > 1:
            return (law.median, law.sd) if return_std else law.median
        median = labelled(X, law.median, "median")
        return (median, labelled(X, law.sd, "sd")) if return_std else median

    @checked_arguments
    def predict_distribution(self, X: Any, *, level: bool = False) -> Any:
        """Return the predictive distributions at points, in the unit of y.

        The result is a `Prediction`; after a fit of several targets, a `JointPrediction`.

        Parameters
        ----------
        X
            As for `fit`. The noise depends on the number of tests of each row (by default 1) and on
            the number of devices (by default the typical number for these tests). Known error
            variances are added to it.
        level
            Predict the level, without the noise of measurements.

        Raises
        ------
        RequestError
            The estimator is not fitted, a column is missing, or the model does not state the
            uncertainty of its level.
        DataError
            A value is missing or out of range, or a row has more devices than tests.

        Warns
        -----
        UserWarning
            The table has the column of tests, but lacks the column of devices.
        """
        self.check_fitted()
        X = table_of(X, self.columns())
        points = self._read(X)
        if isinstance(X, pd.DataFrame) and not level:
            warn_of_absent_devices(self.columns(), points)
        tests = 1.0 if points.tests is None else points.tests
        if level and not find_model(self.model).has_spread:
            raise RequestError(f"{self.model} does not state the uncertainty of its level.")
        inputs = self.scale_.inputs(points)
        if hasattr(self, "several_"):
            return self.several_.predict(inputs, tests, points.devices, level=level)
        law = self.predicted(inputs, tests, points.devices, level=level)
        if not level and points.error_variance is not None:
            law = replace(law, noise_variance=law.noise_variance + points.error_variance)
        return law

    @checked_arguments
    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the mean log density of measurements; higher is better.

        After a fit of several targets it is the density of all targets of a row together.

        Raises
        ------
        RequestError, DataError
            As in `predict_distribution`. Also DataError if the lengths of X and y differ.
        """
        law = self.predict_distribution(X)
        if law.targets > 1:
            return -float(law.joint_log_score(y).mean())
        return -float(law.log_score(target_of(target_of_cells(X, y), len(law))).mean())

    @checked_arguments
    def of_target(self, target: int | str) -> Self:
        """Return the estimator of one target, after a fit of several.

        It shares the fitted model. Its predictions are the marginals of this estimator, and it has
        maps, figures, kernels and joint levels. `save` writes all targets, so it needs this
        estimator.

        Parameters
        ----------
        target
            The name of the target, or its number from 0.

        Raises
        ------
        RequestError
            The estimator is not fitted or has one target, or there is no such target.
        """
        self.check_fitted()
        if not hasattr(self, "several_"):
            raise RequestError("expected an estimator of several targets, found one of one target.")
        number = target_number(self.several_.names, target)
        one, shown = copy(self), getattr(self, "_shown", None)
        if shown is not None:
            y = shown[1][:, number]
            shown = shown[0].at(~np.isnan(y)), y[~np.isnan(y)]
        vars(one).update(network_=OneTarget(self.several_, number), _shown=shown)
        del one.several_
        return one

    @checked_arguments
    def joint(
        self,
        points: Any,
        *,
        seed: int = 0,
        columns: int = 0,
        rows: tuple[Any, ArrayLike] | None = None,
        calibrated: bool = True,
    ) -> Any:
        """Return the joint distribution of the level at points.

        The result is a `JointLevel`; after a fit of several targets, a `JointTargets`.

        Parameters
        ----------
        points
            As X in `predict_distribution`, but each place only once at each time.
        seed
            Seed of the random order in which places are conditioned on earlier places.
        columns
            Number of sums or paths that will be computed together, to check if memory is enough.
        rows
            Points and measurements of the training rows. Needed after `load_model`, unless the
            model contains these rows.
        calibrated
            Whether single points get the mean and the variance of `predict_distribution` with
            ``level=True``; otherwise, everything comes from the Gaussian process alone.

        Returns
        -------
        JointLevel or JointTargets
            A `JointLevel` has `mean`, `single_variances`, `weighted_sums` and `sample`. A
            `JointTargets` has `sample` of all targets, and `of_target` with the level of one.

        Raises
        ------
        RequestError
            The model has no level, `rows` is needed but not given, or there is not enough memory.
        DataError
            Two points are at one place and time, or `rows` are not the training rows.
        """
        inputs = self.inputs(points)
        how: dict[str, Any] = {"calibrated": calibrated, "seed": seed, "columns": columns}
        if hasattr(self, "several_"):
            if rows is not None:
                raise RequestError("the fit of several targets contains its rows; leave out rows=.")
            return joint_targets(self.several_, inputs, **how)
        network = self._fitted()
        if self.normal_scores_ is not None:
            raise RequestError(
                f"with law={self.normal_scores_.law!r}, the joint distribution of the level is "
                "that of normal scores, whose sums mean nothing; predict_distribution gives that "
                "of each point."
            )
        training = getattr(self, "_train", None)
        if rows is not None:
            row_points = self._read(rows[0])
            training = row_points, target_of(target_of_cells(*rows), len(row_points))
            check_rows(network, training[1])
        if training is None and network.has_level and not network.holds_rows:
            raise RequestError(
                f"{self.model} was loaded from a file, which does not contain the rows that the "
                "joint distribution needs: give these rows with rows=, or fit the estimator "
                "again."
            )
        train = None if training is None else data_of(self.scale_, *training)
        return joint_level(network, train, inputs, **how)

    @checked_arguments
    def inputs(self, X: Any) -> Floats:
        """Return the model inputs of points, (n, d); the box of the fit is mapped to [-1, 1]².

        Raises
        ------
        RequestError, DataError
            As in `predict_distribution`.
        """
        self.check_fitted()
        return self.scale_.inputs(self._read(X))

    @checked_arguments
    def features(self, X: Any) -> Floats:
        """Return the basis phi at points, (n, r), in the unit of y; `kernel` is phi(x) phi(x2)'.

        With a law of amounts, the unit is that of normal scores.

        Raises
        ------
        RequestError
            The estimator is not fitted, or is an exact process, which has no basis.
        """
        return self._fitted().features(self.inputs(X))

    @checked_arguments
    def kernel(self, X: Any, X2: Any) -> Floats:
        """Return prior covariances of the smooth function, (n, n2), in the squared unit of y.

        With a law of amounts, they are those of normal scores.
        """
        return self._fitted().kernel(self.inputs(X), self.inputs(X2))

    @checked_arguments
    def grid(
        self,
        region: "Region | Bounds | xr.Dataset | xr.DataArray",
        *,
        time: Any = None,
        tests: float = 1,
        devices: float | None = None,
        zoom: int = 14,
        resolution: float | None = None,
        level: bool = False,
        covariates: Mapping[str, Callable[[Floats, Floats], ArrayLike]] | None = None,
        provider: str | None = None,
    ) -> "xr.Dataset":
        """Return a map: predictions on a raster.

        Parameters
        ----------
        region
            A region from `read_region`, for a raster of its tiles; or a box (west, south, east,
            north) in the coordinates of the estimator; or a Dataset or DataArray of xarray, for the
            raster of its coordinates, which have the names of the columns x and y.
        time
            Text such as ``2023Q4``, a date, a period, or a number in `time_unit`. Needed if the
            model was fitted to rows at several times.
        tests
            Number of tests that each predicted measurement averages.
        devices
            Number of devices that made these tests; by default the typical number.
        zoom
            Zoom of the tiles of a region: tiles of zoom 14 are about 2.4 km wide at the equator,
            tiles of zoom 16 about 600 m.
        resolution
            Side of the cells of a box, in the unit of the coordinates. Defaults to a hundredth of
            the longer side of the box.
        level
            Predict the level, without the noise of measurements.
        covariates
            A function for each covariate, by name. The function receives coordinates x and y in the
            crs of the estimator, each (n,), and returns values of the covariate, (n,). The
            variables of a Dataset that have the names of covariates need no functions.
        provider
            The provider of the map. Needed if the model was fitted to rows of several providers.

        Returns
        -------
        xarray.Dataset
            A raster with the dimensions y and x, and the variables ``median``, ``mean``,
            ``lower_95``, ``upper_95``, ``sd`` and ``function_sd``. Values are in the unit of the
            measurements, and NaN outside the region. Coordinates are in EPSG:3857 for a region, and
            in the crs of the estimator for a box. The raster of a Dataset or DataArray has its
            coordinates and dimensions. ``.rio.to_raster`` writes the raster to a file.

        Raises
        ------
        RequestError
            The estimator is not fitted, a time or a covariate is needed but not given, there are
            more devices than tests, or the box is invalid.
        DataError
            The values of a covariate are not finite.
        """
        from geogp.estimators import point_grid  # noqa: PLC0415 - slow

        self._fitted()
        columns = self.columns()
        functions = {**point_grid.own_covariates(region, columns), **(covariates or {})}
        point_grid.check_grid(columns, functions, provider)
        when = point_grid.grid_time(self.scale_, time, self.time_unit)
        whole_number("tests", tests, 1, MAX_TESTS)
        if devices is not None:
            whole_number("devices", devices, 1, MAX_TESTS)
            check_sample(tests, devices)

        def predict(x: Floats, y: Floats) -> Prediction:
            values = pd.DataFrame({name: function(x, y) for name, function in functions.items()})
            names = None if provider is None else np.full(len(x), provider, object)
            points = Points(x, y, covariates=columns.covariates_of(values), provider=names)
            if when is not None:
                quarters = np.full(len(x), when.quarters[0])
                points = replace(points, time=quarters, time_kind=when.kind)
            inputs = self.scale_.inputs(columns.checked(points))
            return self.predicted(inputs, tests, devices, level=level)

        return point_grid.predicted_grid(predict, region, columns, zoom=zoom, resolution=resolution)

    @checked_arguments
    def plot(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        time: Any = None,
        covariates: Mapping[str, Callable[[Floats, Floats], ArrayLike]] | None = None,
        provider: str | None = None,
    ) -> Any:
        """Return a figure: maps of the median and of the width of its 95 % interval, and errors.

        The maps have the box of the training rows. The errors are those of test rows, if these are
        given. Otherwise they are those of training rows, each predicted from others, by an exact
        process or by `FieldGP` of at most 5,000 rows. Other models know the training rows, so that
        their errors at new places are larger.

        Parameters
        ----------
        X, y
            Test rows, as for `fit`.
        time
            As in `grid`; by default the last time of the training rows.
        covariates, provider
            As in `grid`.

        Returns
        -------
        matplotlib.figure.Figure
            A figure of pyplot, so that a notebook or ``pyplot.show()`` shows it.

        Raises
        ------
        RequestError
            The estimator is not fitted, or was loaded from a file and X and y are not given; the
            model is one of counts or classes; or as in `grid`.
        """
        network = self._fitted()
        if (X is None) != (y is None):
            raise RequestError("expected both X and y, or none of them, found one.")
        given = None
        if X is not None:
            law = self.predict_distribution(X)
            given = self._read(X), target_of(target_of_cells(X, y), len(law)), law
        when = last_time(self.scale_) if time is None else time
        grid = partial(self.grid, time=when, covariates=covariates, provider=provider)
        known = getattr(self, "_shown", None)
        return fit_plot(network, self.scale_, grid, given, known, scores=self.normal_scores_)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """The coefficients of the covariates: columns ``mean`` and ``sd``, one row per covariate.

        A coefficient is the change of y, or with a law of amounts that of normal scores, per
        standard deviation of the covariate in the fit.
        Covariates that are constant in the fit are left out, and so are all covariates of classes,
        which are inputs of the basis.
        """
        network = self._fitted()
        sizes = network.architecture
        names = [name for name in sizes.covariates if name not in sizes.dropped]
        mean, sd = network.coefficients()
        return pd.DataFrame(
            {"mean": mean, "sd": sd}, index=pd.Index(names[: len(mean)], name="covariate")
        )

    @checked_arguments
    def save(self, path: Path | str, *, notes: dict[str, str] | None = None) -> None:
        """Write the fitted estimator to a safetensors file; `geogp.load_model` reads this file.

        Parameters
        ----------
        path
            The file.
        notes
            Further entries to store in the file, by name.

        Raises
        ------
        RequestError
            The estimator is not fitted, or the crs cannot be written as text.
        OutputError
            The file cannot be written.
        """
        self.check_fitted()
        described = self.described()
        described["params"]["crs"] = crs_text(self.crs)
        context = {
            **(notes or {}),
            **described,
            "inputs": self.scale_.described(),
            "best_epoch": self.history_.best_epoch,
            "validation_nll": self.history_.best_nll,
        }
        if self.normal_scores_ is not None:
            context["normal_scores"] = self.normal_scores_.described()
        if hasattr(self, "several_"):
            context["targets"] = self.several_.described()
            save_models(self.several_.models, path, context)
        else:
            save_model(self.network_, path, context)
