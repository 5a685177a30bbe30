"""An exact Gaussian process as a model: fit, predictions and files."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.distributions.shapes import GAUSSIAN
from geogp.errors import DataError, RequestError
from geogp.models import options
from geogp.models.exact.covariance import DOUBLE, FORMS
from geogp.models.exact.kriging import ExactRows
from geogp.models.exact.limits import with_limits
from geogp.models.exact.mixture import NEAR_ROWS, KrigingMixture
from geogp.models.exact.passes import MOST_ROWS, Passes, passes_of
from geogp.models.exact.search import (
    WeightedKriging,
    conditioned,
    posterior,
    station_posterior,
)
from geogp.models.exact.stations import station_words
from geogp.models.field.predictive_law import (
    LAW_ARRAYS,
    Errors,
    PredictiveLaw,
    fit_law,
    no_law,
)
from geogp.models.fitting.loop import FitState
from geogp.models.numerics.arrays import as_inputs
from geogp.models.numerics.devices import WORD
from geogp.models.numerics.precision import precision
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.memory import refuse_above
from geogp.models.process.model import KnownPredictions, Model
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

FOLDS = 5
"""Number of folds that decide whether the law of the errors is used."""

MOST_COST = 0.002
"""The law is left out if it lowers the log density of errors by more than this for each row."""

SQUARES = 54
"""Largest number of arrays (n, n) of a fit: factors at the points of each form."""

CLOSEST = 1e-3
"""Distances below this share of the largest distance seen count as equal."""

COVARIATES = 1 + len(NEAR_ROWS)
"""Number of covariates of the law: the distance, and the errors of near rows."""

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactProcess(Model):
    """Kriging whose parameters are averaged over their posterior, and the law of its errors.

    A prediction has the mean and the variance of the mixture. Each row is also predicted from the
    other rows. Unless it predicts these errors worse, a law gives their scale and their tails; the
    scale depends on the distance to the nearest row, and on the errors of few and of many rows near
    by. Rows of a session are left out together; a row of the mixture is then a pass, and `within`
    is the variance of a measurement around the mean of its pass. Few sessions make all intervals
    wider. If rows are means of tests, a prediction has the noise of as many tests as asked for.
    """

    holds_rows = True
    level_in_closed_form = True
    validates = False
    path = "exact"

    name: str
    architecture: Architecture
    y_mean: Tensor
    y_sd: Tensor
    mixture: KrigingMixture
    law: PredictiveLaw
    within: float = 0.0

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return self.mixture.rows.y.device

    @property
    def intercept(self) -> float:
        """The constant of the trend."""
        return float(self.y_mean + self.y_sd * self.mixture.averaged(lambda law: law.beta)[0])

    @precision(options.DOUBLE)
    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,  # noqa: ARG002 - a session is one device
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs; see `Model.predict`. The noise is that of a measurement."""
        places, trend = self.placed(x)
        mean, field, noise = (part.cpu().numpy() for part in self.mixture.predict(places, trend))
        noise = noise + self.within + self.mixture.noise_of_test / (1.0 if tests is None else tests)
        spot = places[:, :2].cpu().numpy()
        law = self.law.parameters(self._covariates(spot)).faded(self._fade(spot))
        location, scale, shape = law.distribution()
        factor = np.square(scale * float(self.y_sd) * _width_of(len(self.mixture.rows.sessions)))
        mean = mean + location * np.sqrt(field + noise)
        return Prediction(
            float(self.y_mean) + float(self.y_sd) * mean,
            factor * field,
            np.zeros_like(field) if level else factor * noise,
            shape=GAUSSIAN if level else shape,
        )

    @precision(options.DOUBLE)
    def joint(self, x: Floats) -> tuple[Floats, Floats]:
        """Return mean (n,) and covariance (n, n) of the level, before the law of the errors.

        Raises DataError if two points are at one place and time.
        """
        places, trend = self.placed(x)
        mean, total = self.mixture.joint(places, trend)
        sd = float(self.y_sd)
        level = float(self.y_mean) + sd * mean.cpu().numpy()
        return level, sd**2 * total.cpu().numpy()

    def placed(self, x: Floats) -> tuple[Tensor, Tensor]:
        """Return places in km and quarters, and the trend, of inputs (n, d)."""
        return placed(self.architecture, x, self.device)

    @precision(options.DOUBLE)
    def kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of the field between inputs, (n, n2)."""
        first, second = self.placed(x)[0], self.placed(x2)[0]
        with torch.no_grad():
            total = self.mixture.averaged(lambda law: law.prior(first, second))
        return (total * self.y_sd.square()).cpu().numpy()

    @precision(options.DOUBLE)
    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and sds of the covariates' coefficients; see `Model.coefficients`."""
        mean = self.mixture.averaged(lambda law: law.beta)
        square = self.mixture.averaged(
            lambda law: (
                law.beta.square() + law.variance * torch.cholesky_inverse(law.inner).diagonal()
            )
        )
        sd = (square - mean.square()).clamp(min=0).sqrt()
        scale = float(self.y_sd)
        return scale * mean[1:].cpu().numpy(), scale * sd[1:].cpu().numpy()

    def conditioned(self, rows: Rows) -> NoReturn:  # noqa: ARG002
        """Raise RequestError: there are no weights."""
        self._no_basis()

    def as_rows(self, data: Data) -> NoReturn:  # noqa: ARG002
        """Raise RequestError: the process contains its rows."""
        self._no_basis()

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:  # noqa: ARG002
        """Raise RequestError: there is no basis."""
        self._no_basis()

    def function_variance(self, x: Floats, L: Tensor) -> NoReturn:  # noqa: ARG002
        """Raise RequestError: there are no weights."""
        self._no_basis()

    def widened(self, factor: float) -> Self:
        """Return the process with normal errors whose standard deviation is `factor`."""
        law = no_law(COVARIATES)
        law.coefficients[1, 0] = np.log(factor)
        return replace(self, law=law)

    def to(self, device: torch.device) -> Self:
        """Return the process on a device."""
        if device == self.device:
            return self
        tensors = {name: value.to(device) for name, value in self.state_dict().items()}
        return type(self).restored(self.name, self.architecture, tensors)

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Pickle the tensors of a file, without the factors that follow from them."""
        return self.restored, (self.name, self.architecture, self.state_dict())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of the saved process, by name."""
        rows, points = self.mixture.rows, self.mixture.points
        known = rows.error_variance
        errors: dict[str, Tensor] = {} if known is None else {"exact.error_variance": known}
        if rows.tests is not None:
            errors["exact.tests"] = rows.tests
        if rows.session is not None:
            within = torch.tensor(self.within, dtype=DOUBLE)
            errors |= {"exact.session": rows.session, "exact.within": within}
        laws = [point.kriging for point in points]
        return {
            "exact.points": rows.points,
            "exact.trend": rows.trend,
            "exact.y": rows.y,
            "exact.theta": torch.as_tensor(np.concatenate([law.theta for law in laws])),
            "exact.form": torch.tensor([FORMS.index(law.covariance.form) for law in laws]),
            "exact.weights": torch.tensor([point.weight for point in points], dtype=DOUBLE),
            "y_mean": self.y_mean,
            "y_sd": self.y_sd,
            "law_tail": torch.tensor(self.law.most_tail, dtype=DOUBLE),
            **{f"law_{name}": torch.as_tensor(getattr(self.law, name)) for name in LAW_ARRAYS},
            **errors,
        }

    @classmethod
    @precision(options.DOUBLE)
    def restored(cls, name: str, architecture: Architecture, tensors: Mapping[str, Tensor]) -> Self:
        """Return the process of the tensors of `state_dict`; ValueError if they do not fit."""
        points, trend, y = (tensors[f"exact.{part}"] for part in ("points", "trend", "y"))
        own = [tensors.get(f"exact.{part}") for part in ("error_variance", "session", "tests")]
        rows, session = ExactRows(points, trend, y, *own), own[1]
        theta, weights = (tensors[f"exact.{part}"].cpu().numpy() for part in ("theta", "weights"))
        forms = tensors["exact.form"].tolist()
        if not (len(weights) == len(forms) > 0 and (weights > 0).all()):
            raise ValueError("expected weights above 0, one for each form")
        if not set(forms) <= set(range(len(FORMS))):
            raise ValueError(f"expected forms from 0 to {len(FORMS) - 1}, found {forms}")
        laws = [rows.law(FORMS[k][0], nested=FORMS[k][1]) for k in forms]
        ends = np.cumsum([len(law.centre) for law in laws])
        if ends[-1] != len(theta):
            raise ValueError(f"expected {ends[-1]} parameters, found {len(theta)}")
        averaged = [
            WeightedKriging(float(weight), conditioned(law, own, rows))
            for weight, law, own in zip(weights, laws, np.split(theta, ends[:-1]), strict=True)
        ]
        arrays = {part: tensors[f"law_{part}"].cpu().numpy() for part in LAW_ARRAYS}
        if arrays["ranges"].shape[1] != COVARIATES:
            raise ValueError(
                f"expected a law of errors with {COVARIATES} covariates, found "
                f"{arrays['ranges'].shape[1]}: an older version wrote it; fit the model again"
            )
        law = PredictiveLaw(**arrays, most_tail=float(tensors["law_tail"]))
        return cls(
            name=name,
            architecture=architecture,
            y_mean=tensors["y_mean"],
            y_sd=tensors["y_sd"],
            mixture=KrigingMixture(rows, averaged),
            law=law,
            within=0.0 if session is None else float(tensors["exact.within"]),
        )

    def left_out(self, passes: Passes) -> tuple[Floats, Floats]:
        """Return mean and variance of each measurement from other rows or sessions, (n,) each."""
        mean, variance = self.mixture.left_out
        variance = variance + self.within * (1 - 1 / passes.rows)
        return mean[passes.number], variance[passes.number]

    @precision(options.DOUBLE)
    def left_out_rows(self) -> KnownPredictions:
        """Return predictions of the rows, each from the others; see `Model.left_out_rows`.

        Rows of which others tell nothing are left out.
        """
        mean, variance = self.mixture.left_out
        distance, reach = self.mixture.near(None)[0], self.mixture.reach
        fade = np.square(reach / np.maximum(distance, reach))
        law = self.law.parameters(self._covariates(None)).faded(fade)
        location, scale, shape = law.distribution()
        centre, sd = float(self.y_mean), float(self.y_sd)
        told, rows = self.mixture.foretold, self.mixture.rows
        noise = self.mixture.predict(rows.points[:1], rows.trend[:1])[2].cpu().numpy()
        noise = np.minimum(noise + self.within, variance)
        factor = np.square(scale * sd)
        predicted = Prediction(
            centre + sd * (mean + location * np.sqrt(variance)),
            factor * (variance - noise),
            factor * noise,
            shape=shape,
        )
        numbers = np.flatnonzero(told) if rows.session is None else None
        y = centre + sd * rows.y.cpu().numpy()
        alone = np.full(np.count_nonzero(told), rows.session is None)
        return KnownPredictions(predicted[told], y[told], numbers, alone)

    def learned(self, y: Floats, passes: Passes) -> Self:
        """Return the process with the law of the errors of measurements that are left out.

        The law widens intervals where errors near by are large, such as along borders. Fitted to
        four fifths of the errors, it must predict the other fifth no worse than normal errors, up
        to `MOST_COST`. Where the errors of rows are known, their scale is not learned. `y` are the
        standardised measurements, (n,).
        """
        session = self.mixture.rows.session
        if session is None and self.mixture.rows.error_variance is not None:
            return self
        mean, variance = self.left_out(passes)
        n, scale = len(y), range(COVARIATES)
        groups = np.arange(n) if session is None else session.cpu().numpy()[passes.number]
        alone = np.full(n, session is None)
        covariates = self._covariates(None)[passes.number]
        values = (y - mean) / np.sqrt(variance)
        errors = Errors(values, covariates, np.zeros(n, bool), alone, groups)
        errors = errors.at(self.mixture.foretold[passes.number])
        groups = errors.groups
        names, number = np.unique(groups, return_inverse=True)
        fold = (np.random.default_rng(0).permutation(len(names)) % FOLDS)[number]
        gains = np.zeros(len(groups))
        for k in np.unique(fold):
            known, other = errors.at(fold != k), errors.at(fold == k)
            laws = fit_law(known, scale=scale), no_law(COVARIATES)
            learned, normal = (
                law.parameters(other.covariates).log_density(other.errors) for law in laws
            )
            gains[fold == k] = learned - normal
        if np.average(gains, weights=errors.weights) < -MOST_COST:
            return self
        return replace(self, law=fit_law(errors, scale=scale))

    def _covariates(self, places: Floats | None) -> Floats:
        """Return covariates of the law at places (n, 2), or at the rows without their own errors.

        They are the logarithms of the distance and of the squared errors, (n, `COVARIATES`).
        """
        distance, squares = self.mixture.near(places)
        return np.log(np.column_stack([distance + CLOSEST * self.mixture.reach, squares]))

    def _fade(self, places: Floats) -> Floats:
        """Return the share of the law at places, as in `FieldErrors.fade`."""
        reach = self.mixture.reach
        return np.square(reach / np.maximum(self.mixture.distance(places), reach))

    def _no_basis(self) -> NoReturn:
        raise RequestError(
            f"a fit of {self.name} to at most a few thousand single measurements, or with group=, "
            "is an exact process, which has no basis. Without group=, epochs= fits a basis."
        )


def _width_of(sessions: int) -> float:
    """Return the factor of the sd of predictions; 1 without sessions.

    The variance of what rows share is known from as many independent errors as there are sessions.
    So an interval has the width of Student's t distribution with one degree of freedom fewer.
    """
    degrees = sessions - 1
    return float(stdtrit(degrees, 0.975) / ndtri(0.975)) if sessions else 1.0


def placed(architecture: Architecture, x: Floats, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return places in km and quarters (n, 2 or 3), and the trend (n, 1 + c), of inputs (n, d)."""
    values = as_inputs(x, architecture.d)
    axes = architecture.d - len(architecture.covariates)
    points = values[:, :axes] * np.array(architecture.units[:axes])
    used = [k for k in architecture.used if k >= axes]
    trend = np.column_stack([np.ones(len(values)), values[:, used]])
    return torch.as_tensor(points).to(device), torch.as_tensor(trend).to(device)


@precision(options.DOUBLE)
def fit_exact(
    name: str,
    architecture: Architecture,
    data: Data,
    seed: int,
    device: torch.device,
    *,
    warn: Callable[[str], None] = warnings.warn,
    stage: Callable[[str], None] | None = None,
) -> tuple[ExactProcess, FitState]:
    """Fit an exact process to rows; the history has the mean log score of the rows, each left out.

    The rows of a session are pooled into passes, and left out together. They may be means of
    several tests; those of a pass count together. `warn` is told about rows that are not used, and
    `stage` of each part of the fit. Raises DataError if all targets are equal or all rows are of
    one session, RequestError if memory is short, and NumericalError if no covariance of the rows
    factorises.
    """
    start = monotonic()
    begin = stage if stage is not None else lambda _: None
    data, passes = _in_passes(architecture, data, seed, warn)
    n = len(passes.rows)
    stations = n > MOST_ROWS
    points = placed(architecture, data.x, CPU)[0].numpy()
    arrays = station_words(points) if stations else SQUARES * n**2
    refuse_above(WORD * arrays, f"an exact process of {n:,} rows", "Give fewer rows.", device)
    mean, sd = _unit(data)
    rows = _exact_rows(architecture, data, passes, (mean, sd), device)
    if data.side.any():
        begin(f"estimating {np.count_nonzero(data.side):,} rows at an end of the range")
        rows = with_limits(rows, data.side, seed)
    begin(f"averaging over covariances of {n:,} rows")
    process = ExactProcess(
        name=name,
        architecture=architecture,
        y_mean=torch.tensor(mean, dtype=DOUBLE),
        y_sd=torch.tensor(sd, dtype=DOUBLE),
        mixture=KrigingMixture(rows, (station_posterior if stations else posterior)(rows, seed)),
        law=no_law(COVARIATES),
        within=passes.within / sd**2,
    )
    begin("learning from the errors of rows that are left out")
    process = process.learned((data.y - mean) / sd, passes)
    own, variance = process.left_out(passes)
    scores = Prediction.of_moments(mean + sd * own, sd**2 * variance).log_score(data.y)
    scores = scores[process.mixture.foretold[passes.number] & (data.side == 0)]
    return process, FitState(best_nll=float(scores.mean()), seconds=monotonic() - start)


def _unit(data: Data) -> tuple[float, float]:
    """Return mean and standard deviation of targets, or those of normal scores with limits."""
    if data.side.any():
        return 0.0, 1.0
    # Rows with large known errors say little of the unit.
    clear = data.y[data.error_variance <= np.median(data.error_variance)]
    clear = clear if clear.std() > 0 else data.y
    return float(clear.mean()), float(clear.std())


def _exact_rows(
    architecture: Architecture,
    data: Data,
    passes: Passes,
    unit: tuple[float, float],
    device: torch.device,
) -> ExactRows:
    """Return the passes as rows; `unit` is the mean and the standard deviation of targets."""
    mean, sd = unit
    errors = (passes.mean(data.error_variance) + passes.within / passes.rows) / sd**2
    session = None if data.session is None else passes.mean(data.session.astype(np.float64))
    several = (data.tests > 1).any()
    tests = passes.rows / passes.mean(1 / data.tests) if several else None
    known = (errors if errors.any() else None, session, tests)
    return ExactRows(
        *placed(architecture, passes.mean(data.x), device),
        torch.as_tensor(passes.mean((data.y - mean) / sd)).to(device),
        *(None if part is None else torch.as_tensor(part).to(device) for part in known),
    )


def _in_passes(
    architecture: Architecture, data: Data, seed: int, warn: Callable[[str], None]
) -> tuple[Data, Passes]:
    """Return the rows that are used, and their passes.

    Raises DataError if passes are too few, all targets are equal, or all rows are of one session.
    """
    if data.y.min() == data.y.max():
        raise DataError(
            f"the target has the same value in all {len(data.y)} rows; there is nothing to learn."
        )
    if data.session is not None and data.session.min() == data.session.max():
        raise DataError("all rows are of one group; there is nothing to learn about others.")
    points, pool = placed(architecture, data.x, CPU)[0].numpy(), not architecture.used_covariates
    passes = passes_of(points, data.y, data.session, pool=pool, seed=seed)
    n = len(passes.rows)
    if n <= architecture.used_covariates + 2:
        raise DataError(f"the rows of all groups lie in only {n} cells; there is too little data.")
    if passes.kept.all():
        return data, passes
    what = "passes of groups through a cell" if pool else "rows, as there are covariates"
    warn(
        f"{len(passes.number):,} of {len(data.y):,} rows are used: an exact process takes {n:,} "
        f"{what}."
    )
    return data.at(passes.kept), passes
