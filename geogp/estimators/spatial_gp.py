"""What all estimators share: fit, predict, score, joint laws, grids, and files."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from geogp.choices import MOST_SEED, MOST_TESTS, whole_number
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.estimators.fit_rows import (
    VALIDATIONS,
    check_width,
    data_of,
    target_of,
    told_of_few,
    validation_mask,
    warn,
)
from geogp.estimators.gridding import plane_grid, region_grid
from geogp.estimators.parameters import Parameters
from geogp.estimators.point_columns import PointColumns, Points, crs_text
from geogp.estimators.point_scale import Bounds, PointScale
from geogp.estimators.point_times import Times, time_at
from geogp.geodata.places.region import Region
from geogp.models.catalogue.build_model import find_spec
from geogp.models.catalogue.model_names import find_model
from geogp.models.catalogue.presets import Preset, find_preset
from geogp.models.catalogue.storage import save_model
from geogp.models.core.devices import pick_device
from geogp.models.core.lowrank import LowRankGP
from geogp.models.core.options import NOISES, Weights
from geogp.models.joint.joint_level import JointLevel, joint_level
from geogp.models.training.fit_plan import FitPlan, FitResult
from geogp.models.training.training_loop import FitState, Progress

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class SpatialGP(Parameters):
    """A Gaussian process over points in space and, where they have times, in time.

    Subclasses say which models they fit. What was learned ends with an underscore.

    Attributes
    ----------
    network_
        The fitted model, a PyTorch module.
    scale_
        How points become its inputs.
    history_
        Losses, validation scores and the best epoch of the fit.
    validation_
        Which training rows chose the epoch, (n,).
    n_features_in_, feature_names_in_
        Columns of the training table or array; the names of a table's.
    """

    families: ClassVar[tuple[str, ...]] = ()
    """Families of the catalogue that the estimator fits."""

    model: str
    x: str
    y: str
    crs: Any
    time: str | None
    time_unit: str | None
    tests: str | None = None
    devices: str | None = None
    exposure: str | None = None
    noise: str = NOISES[0]
    validation: Any
    preset: str
    epochs: int | None
    rank: int | None
    batch: int | None
    alpha: float | None = None
    beta: float | None = None
    bounds: Bounds | None
    device: str
    random_state: int

    network_: LowRankGP
    feature_names_in_: NDArray[np.object_]
    scale_: PointScale
    history_: FitState
    validation_: Mask
    n_features_in_: int

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        checkpoint: Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fit the model to measurements.

        Parameters
        ----------
        X
            A table (pandas or geopandas) with the columns that the estimator names, or an array
            with the columns x, y and, where there are more, time, tests, devices. Other columns of
            a table are not looked at.
        y
            Measurements, (n,), in any unit.
        checkpoint
            A file that keeps an unfinished fit; the same call continues from it.
        progress
            Called after every epoch with the state and the number of epochs.

        Returns
        -------
        The estimator.

        Raises
        ------
        RequestError
            A parameter is out of range, a column is missing, or there is not enough memory.
        DataError
            A value is missing or not finite, lengths differ, or there are too few rows or places.
        NumericalError
            The fit diverges.

        Warns
        -----
        UserWarning
            A column has one value only, rows are fewer than weights, or so few that the width of
            intervals is taken from folds.
        """
        about = find_model(self.model)
        if about.family not in self.families:
            raise RequestError(
                f"{type(self).__name__} fits models of {', '.join(self.families)}, found "
                f"{self.model!r}. geogp.list_models() names the families."
            )
        about.check_noise(self.noise)
        whole_number("random_state", self.random_state, 0, MOST_SEED)
        for name in ("epochs", "rank", "batch"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), 1, MOST_SEED)
        points = self._columns().read(X)
        if isinstance(X, pd.DataFrame) and self.tests is not None and points.tests is None:
            warn(f"the table has no column {self.tests!r}: every measurement is of one test.")
        target = target_of(y, len(points))
        scale = PointScale.of_points(
            points,
            self.crs,
            counts=about.counts,
            names=(self.x, self.y, self.time or "time"),
            bounds=self.bounds,
        )
        if points.time is not None and scale.times is None:
            warn("all rows are of one time: the model is one of place alone.")
        held = validation_mask(self.validation, points, self.crs, self.random_state)
        told: list[str] = []
        result = self._plan(scale, int((~held).sum())).fit(
            data_of(scale, points.at(~held), target[~held]),
            data_of(scale, points.at(held), target[held]),
            checkpoint=checkpoint,
            progress=progress,
            warn=told.append,
        )
        for text in dict.fromkeys(told):
            warn(text)
        if result.width_factor is not None:
            warn(told_of_few(scale.inputs(points), result.width_factor))
        self._keep(X, scale, result)
        self.validation_ = held
        self._train = None if about.has_tiles else (points.at(~held), target[~held])
        return self

    def predict(self, X: Any) -> Floats:
        """Return the predictive medians at points, (n,), in the unit of y."""
        return self.predict_distribution(X).median

    def predict_distribution(self, X: Any, *, level: bool = False) -> Prediction:
        """Return the predictive distributions at points, in the unit of y.

        Parameters
        ----------
        X
            As for `fit`. A measurement is predicted of as many tests as its row says, of one where
            there is no such column.
        level
            Predict what measurements scatter around, without their noise.

        Raises
        ------
        RequestError
            The estimator is not fitted, a column is missing, or the model has no level.
        DataError
            A value is missing or out of range.
        """
        network = self._fitted()
        points = self._columns().read(X)
        check_width(X, self.n_features_in_, named=hasattr(self, "feature_names_in_"))
        tests = 1.0 if points.tests is None else points.tests
        if level and not find_model(self.model).has_spread:
            raise RequestError(f"{self.model} says nothing of how sure its level is.")
        return network.predict(self.scale_.inputs(points), tests, level=level)

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the mean log density of measurements; higher is better.

        Raises
        ------
        RequestError, DataError
            As `predict_distribution`; or lengths differ.
        """
        found = self.predict_distribution(X)
        return -float(found.log_score(target_of(y, len(found))).mean())

    def joint(self, points: Any, *, seed: int = 0) -> JointLevel:
        """Return the joint law of the level at points of one time.

        Parameters
        ----------
        points
            As for `predict_distribution`, each place once.
        seed
            Of the order in which places are conditioned on each other.

        Returns
        -------
        JointLevel
            `mean`, `single_variances`, `weighted_sums`, `paths`.

        Raises
        ------
        RequestError
            The model has no level, the estimator was loaded from a file and its model does not
            hold its rows, or there is not enough memory.
        DataError
            The points are at several times, or two at one place.
        """
        network = self._fitted()
        inputs = self.scale_.inputs(self._columns().read(points))
        train = getattr(self, "_train", None)
        about = find_model(self.model)
        if train is None and not about.has_tiles and not about.counts:
            raise RequestError(
                f"{self.model} was loaded from a file, which does not hold the rows that its joint "
                "law needs. Fit the estimator again."
            )
        rows = None if train is None else data_of(self.scale_, *train)
        return joint_level(network, rows, inputs, seed=seed)

    def kernel(self, X: Any, X2: Any) -> Floats:
        """Return the prior covariance of the smooth function between points, (n, n2), in unit²."""
        network, columns = self._fitted(), self._columns()
        one, two = (self.scale_.inputs(columns.read(part)) for part in (X, X2))
        return network.kernel(one, two)

    def grid(
        self,
        region: Region | Bounds,
        *,
        time: Any = None,
        tests: float = 1,
        zoom: int = 14,
        resolution: float | None = None,
        level: bool = False,
    ) -> xr.Dataset:
        """Return a map: predictions on a raster.

        Parameters
        ----------
        region
            A region of `read_region`, whose tiles are predicted; or west, south, east, north in
            the estimator's coordinates.
        time
            When: ``2023Q4``, a date, a period, or a number in `time_unit`. Needed where the model
            learned times.
        tests
            Tests behind each measurement that is predicted.
        zoom
            Zoom of the tiles of a region: 14 are about 2.4 km, 16 about 600 m at the equator.
        resolution
            Side of the cells of a box, in the unit of its coordinates; None takes a hundredth of
            its longer side.
        level
            Predict what measurements scatter around, without their noise.

        Returns
        -------
        xarray.Dataset
            Dimensions y and x, with ``median``, ``mean``, ``lower_95``, ``upper_95``, ``sd`` and
            ``function_sd`` in the unit of y, NaN outside the region. The raster of a region is in
            EPSG:3857, that of a box in the estimator's coordinates; ``.rio.to_raster`` writes it.

        Raises
        ------
        RequestError
            The estimator is not fitted, there is no time, or the box is none.
        """
        when = self._when(time)

        def predict(x: Floats, y: Floats) -> Prediction:
            return self._predict_places(x, y, when, tests, level)

        if isinstance(region, Region):
            return region_grid(region, zoom, self.crs, predict)
        return plane_grid(region, resolution, self.crs, predict)

    def save(self, path: Path | str) -> None:
        """Write the fitted estimator to a file of safetensors; see `geogp.load_model`.

        Raises
        ------
        RequestError
            It is not fitted, or its crs cannot be written as text.
        OutputError
            The file cannot be written.
        """
        network = self._fitted()
        params = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.get_params().items()
            if name in self.kind().parameter_names()
        }
        params["crs"] = crs_text(self.crs)
        if not isinstance(self.validation, str):
            params["validation"] = VALIDATIONS[0]  # a mask is of rows that the file does not hold
        if self.bounds is not None:
            params["bounds"] = [float(edge) for edge in self.bounds]
        context = {
            "estimator": self.kind().__name__,
            "params": params,
            "inputs": self.scale_.described(),
            "n_features_in": self.n_features_in_,
            "feature_names_in": [str(n) for n in getattr(self, "feature_names_in_", [])],
            "best_epoch": self.history_.best_epoch,
            "validation_nll": self.history_.best_nll,
        }
        save_model(network, path, context)

    @classmethod
    def kind(cls) -> type["SpatialGP"]:
        """Return the class of geogp's own that a file names: this one, or that it derives from."""
        return next(one for one in cls.__mro__ if "families" in vars(one))

    def _columns(self) -> PointColumns:
        return PointColumns(
            self.x,
            self.y,
            self.crs,
            self.time,
            self.time_unit,
            self.tests,
            self.devices,
            self.exposure,
        )

    def _plan(self, scale: PointScale, n: int) -> FitPlan:
        """Return what decides the fit: the preset, with what the parameters put in its place."""
        preset = self._preset()
        step = find_spec(self.model).step
        batch = step.rows(preset.batch_for(n) if self.batch is None else self.batch, n)
        return FitPlan(
            self.model,
            preset,
            scale.columns,
            scale.units,
            preset.epochs if self.epochs is None else self.epochs,
            batch,
            preset.weights,
            pick_device(self.device),
            scale.offsets,
            self.noise,
            self.random_state,
        )

    def _preset(self) -> Preset:
        found = find_preset(self.preset, self.model)
        weights = Weights(
            found.weights.alpha if self.alpha is None else self.alpha,
            found.weights.beta if self.beta is None else self.beta,
        )
        return replace(found, weights=weights, r=found.r if self.rank is None else self.rank)

    def _keep(self, X: Any, scale: PointScale, result: FitResult) -> None:
        self.network_, self.scale_, self.history_ = result.model, scale, result.state
        self.n_features_in_ = np.shape(X)[1]
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        if isinstance(X, pd.DataFrame):
            self.feature_names_in_ = np.asarray(X.columns, object)

    def _fitted(self) -> LowRankGP:
        if not hasattr(self, "network_"):
            raise RequestError(
                f"this {type(self).__name__} is not fitted yet; call fit with measurements first."
            )
        return self.network_

    def _when(self, time: Any) -> Times | None:
        self._fitted()
        if self.scale_.times is None:
            return None
        if time is None:
            raise RequestError("expected time=, as the model was fitted to rows of several times.")
        return time_at(time, self.time_unit)

    def _predict_places(
        self, x: Floats, y: Floats, when: Times | None, tests: float, level: bool
    ) -> Prediction:
        whole_number("tests", tests, 1, MOST_TESTS)
        points = Points(x, y)
        if when is not None:
            points = replace(points, time=np.full(len(x), when.quarters[0]), time_kind=when.kind)
        inputs = self.scale_.inputs(self._columns().checked(points))
        return self._fitted().predict(inputs, float(tests), level=level)
