"""The estimators: one class for each family of models."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from geogp.distributions.shares import BINOMIAL
from geogp.errors import RequestError
from geogp.estimators.labelled_cells import labelled
from geogp.estimators.spatial_gp import SpatialGP


@dataclass(eq=False, repr=False, kw_only=True)
class FieldGP(SpatialGP):
    """A model of three parts: a smooth field, a process of short range, and noise.

    y = f(place, time) + g(place, time) + noise. f is a Gaussian process with a learned deep basis.
    g is a process with short range in space, and is correlated in time. The variance of the noise
    varies over space, and is smaller if a measurement averages more tests and devices. The width,
    the skewness and the tails of the predictive distribution are estimated from prediction errors
    at training rows and validation rows. A training row is predicted from the other rows, or from
    the rows outside its cell (see `validation`). With 2,000 training rows or more, if the
    errors depend on more than distance and errors near by, the predictive distribution is averaged
    with that of five networks, which predict a measurement from averages of the measurements near
    it. Far from all rows, f returns to its mean, or to a linear trend, and its variance grows, also
    because the range of g is uncertain.

    At most 3,000 rows without columns of tests (unless errors are known), devices or providers are
    fitted by an exact Gaussian process instead: universal kriging with a constant trend and the
    covariates, a Matérn correlation (with one range or two) that may differ between directions, and
    a nugget. Its form is averaged over its posterior, and up to 1,500 rows so are its parameters.
    `epochs`, `rank` or `batch` ask for the model of three parts. So are up to 50,000 rows at up to
    60 places with many times, such as stations, and any number of rows with `group`. The covariance
    of stations is learned from 2,000 of their rows, eight runs of successive times; predictions
    know all rows.

    Several targets of the same rows are linear in as many independent factors, each with a model as
    above; `predict_distribution` then returns a `JointPrediction`. A fit takes about as long as a
    fit of each target. It cannot be given with `law`, `group` or `error_variance`.

    Parameters
    ----------
    x, y
        Columns of coordinates.
    crs
        Coordinate reference system of the columns; None for plane coordinates in any unit.
    time
        Column of times: quarters (``Period[Q]``), dates (UTC unless they have a time zone), or
        numbers. By default times are not used.
    time_unit
        Unit of times that are numbers: ``year``, ``quarter``, ``month``, ``week``, ``day``,
        ``hour``, ``minute`` or ``second``.
    tests, devices
        Columns with the numbers of tests and devices that each measurement averages. Without
        columns of tests and devices, `fit` assumes one test per measurement and one device per
        test; `predict` assumes one test, and the typical number of devices for each number of
        tests.
    covariates
        Columns of a table with a linear effect on the measurements, such as the elevation; `fit`
        and all predictions need these columns. Values more than four standard deviations from the
        mean are clipped to four. Do not compute a covariate from the measurements themselves.
        `geogp.read_covariate` reads a covariate from a file.
    provider
        Column with the name of the provider of each measurement. All providers share one fit: f and
        g have a part that all providers share, and a part of each provider. `joint` knows the
        covariances between providers.
    error_variance
        Column with the known variance of the error of each measurement, in the squared unit of the
        measurements, for instruments of known precision. `fit` estimates further noise that all
        measurements have. `predict_distribution` adds the known variance if a table has this
        column; it predicts a measurement without a known error otherwise. Only an exact process
        takes known variances; for the model of three parts, `fit` raises RequestError. With
        `tests`, a part of the further noise falls with their number. Known variances are not the
        `sample_weight` of other libraries, which has no unit.
    group
        Column with the drive, session, device or day of each measurement. The measurements of a
        group share a part of their noise, some of which decays with time, or with distance without
        `time`. So many rows of one drive count for less, and intervals hold for new groups; fewer
        than eight groups say little about new ones, and `fit` warns. Of more than 3,000 rows, those
        of one group in one cell of space and time count as one row, their mean; the cells are as
        small as 1,500 means allow. If cells would be wider than a 32nd of the data, or there are
        covariates, 1,500 of the means or rows are drawn, and `fit` warns. With `tests`, a row is a
        mean of so many tests of its group, and a part of the noise falls with their number. `fit`
        raises RequestError for over 1,500 groups, with `error_variance`, or where no exact process
        is fitted: with `devices`, `provider`, `epochs`, `rank` or `batch`. Predictions are for new
        groups, and ignore the column.
    law
        ``positive`` for amounts of 0 or more, such as rain; ``proportion`` for shares from 0 to 1,
        such as lost packets; ``binomial`` for the percentage of `tests` that succeeded, from 0 to
        100; by default, measurements have no bounds. With ``binomial``, the model is linear in
        the percentage, an exact process knows the variance p (100 - p) / tests of its error, where
        p is that of all tests, and `predict_distribution` returns a `SharePrediction`; `group` and
        `devices` are not possible. ``auto`` compares the other laws whose range has all
        measurements: if many measurements are 0 or 1, only those that give this value a
        probability, otherwise by the log density of half of at most 500 rows, predicted from the
        other half. With a law of amounts, the model predicts normal scores, and
        `predict_distribution` returns an `AmountPrediction`, which never leaves the range. If some
        measurements are exactly 0 (of proportions also 1), this value has a probability; more than
        3,000 rows, and rows with `tests`, are then fitted five times in all, on halves and the
        whole. The level is the median of the measurements at a place. There is no `joint`
        distribution, and `kernel` and `coefficients_` are those of normal scores. It cannot be
        given with `error_variance`, nor with `group` if measurements are at an end of the range.
    validation
        Rows on which the best epoch and the shape of the predictive distribution are chosen:
        ``blocks`` (all rows in a tenth of the square cells of the map), ``random`` (a tenth of the
        rows), or a mask of the rows, (n,). Predictions also depend on the validation rows. An exact
        process learns from all rows.
    preset
        Sizes and training schedule: ``quick``, ``standard`` or ``paper``. An exact process has
        neither: `fit` warns if another preset than ``quick`` is given.
    epochs, rank, batch
        If given, these replace the values of the preset.
    device
        ``auto``, ``cpu`` or ``cuda``.
    random_state
        Seed for the choice of validation rows and for the fit.
    verbose
        Whether `fit` prints its progress to standard error: for each epoch the validation score and
        the time that the other epochs take at most, and for an exact process its parts.

    Attributes
    ----------
    path_
        ``exact`` or ``basis``: which of the two models was fitted.
    law_
        ``positive``, ``proportion``, ``binomial`` or None: the law of the fit.

    Examples
    --------
    >>> import numpy as np, geogp
    >>> rng = np.random.default_rng(0)
    >>> places = rng.uniform(0, 1, (1200, 2))
    >>> values = np.sin(6 * places[:, 0]) + 0.1 * rng.standard_normal(1200)
    >>> model = geogp.FieldGP(crs=None, epochs=2).fit(places, values)
    >>> law = model.predict_distribution(places[:3])
    >>> law.mean.shape, law.interval(0.95)[0].shape
    ((3,), (3,))
    """

    families: ClassVar[tuple[str, ...]] = ("field",)
    model: str = field(default="field", init=False)
    tests: str | None = None
    devices: str | None = None
    covariates: Sequence[str] | None = None
    provider: str | None = None
    error_variance: str | None = None
    group: str | None = None
    law: str | None = None

    @property
    def path_(self) -> str:
        """Which model was fitted: ``exact`` or ``basis``."""
        if not hasattr(self, "history_"):
            raise AttributeError("path_ is known after fit.")
        return self._fitted_path()

    @property
    def law_(self) -> str | None:
        """The law of the fit: ``positive``, ``proportion``, ``binomial`` or None."""
        if not hasattr(self, "normal_scores_"):
            raise AttributeError("law_ is known after fit.")
        if self.law == BINOMIAL:
            return self.law
        return None if self.normal_scores_ is None else self.normal_scores_.law


@dataclass(eq=False, repr=False, kw_only=True)
class DeepBasisGP(SpatialGP):
    """A Gaussian process whose basis functions a neural network learns.

    The available models are dPPGP, PPGP, models trained with the ELBO, and networks with a Bayesian
    last layer. The noise variance is the same everywhere.

    Parameters
    ----------
    model
        One of ``geogp.list_models("deep")``.
    x, y, crs, time, time_unit, validation, device, random_state
        As in `FieldGP`.
    preset, epochs, rank, batch, verbose
        As in `FieldGP`.
    alpha, beta
        Weights in the objective of dPPGP and PPGP; by default those of the preset.
    noise
        ``gaussian``, or ``student-t`` for models that allow it; with ``student-t``, outliers have
        less effect.
    """

    families: ClassVar[tuple[str, ...]] = ("deep",)
    model: str = field(default="dbk-rbf", kw_only=False)
    alpha: float | None = None
    beta: float | None = None
    noise: str = "gaussian"


@dataclass(eq=False, repr=False, kw_only=True)
class KernelGP(SpatialGP):
    """A Gaussian process with a kernel of few parameters, approximated by Nyström features.

    The fit maximises the marginal likelihood of all rows, or the posterior density of the
    parameters, with L-BFGS.

    Parameters
    ----------
    model
        One of ``geogp.list_models("kernel")``.
    x, y, crs, time, time_unit, validation, device, random_state
        As in `FieldGP`.
    preset, epochs, rank, batch, verbose
        As in `FieldGP`.
    """

    families: ClassVar[tuple[str, ...]] = ("kernel",)
    model: str = field(default="nystrom-mixed", kw_only=False)


@dataclass(eq=False, repr=False, kw_only=True)
class CountGP(SpatialGP):
    """A Cox process: counts whose log rate is a Gaussian process.

    y has a Poisson or a negative binomial distribution with the mean exposure * rate. The targets y
    are whole numbers of 0 or more.

    Parameters
    ----------
    model
        One of ``geogp.list_models("count")``.
    x, y, crs, time, time_unit, validation, device, random_state
        As in `FieldGP`.
    preset, epochs, rank, batch, verbose
        As in `FieldGP`.
    exposure
        Column with the size of the area or time span in which the events of a row were counted. By
        default, all rows have the same exposure.
    """

    families: ClassVar[tuple[str, ...]] = ("count",)
    counts: ClassVar[bool] = True
    model: str = field(default="cox-nb", kw_only=False)
    exposure: str | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class PlaceClassGP(SpatialGP):
    """Gaussian processes of the classes of places, such as tiers of speed; runs use it.

    The targets y are numbers of classes, from 0. `predict_distribution` returns a
    `ClassPrediction`. For other tables, and for ensembles, use `ClassGP`.

    Parameters
    ----------
    model
        One of ``geogp.list_models("class")``.
    x, y, crs, time, time_unit, validation, device, random_state
        As in `FieldGP`.
    preset, epochs, rank, batch, verbose
        As in `FieldGP`.
    covariates
        Columns of a table that are further inputs of the basis, scaled as in `FieldGP`.
    classes
        Number of classes.
    """

    families: ClassVar[tuple[str, ...]] = ("class",)
    model: str = field(default="class-dbk", kw_only=False)
    covariates: Sequence[str] | None = None
    classes: int = 2

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the number of the most probable class at points, (n,), as in `FieldGP`.

        Raises
        ------
        RequestError
            `return_std` is true: classes have no standard deviation.
        """
        if return_std:
            raise RequestError(
                "expected return_std=False, because classes have no standard deviation. Use "
                "predict_distribution(X).probabilities."
            )
        law: Any = self.predict_distribution(X)
        return labelled(X, np.asarray(law.codes), "class")

    def grid(self, *args: Any, **options: Any) -> Any:  # noqa: ARG002
        """Raise RequestError, because this raster would have quantiles of numbers."""
        raise RequestError(
            "expected a model of numbers for a grid, found classes. Use the files p_*.tif of a "
            "run, or predict_distribution at the centres of cells."
        )
