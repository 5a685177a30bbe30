"""Predictive distributions, one per point; every model returns them."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import check_size, fits, rows_of, value_shown
from geogp.choices import MAX_DRAWS, MAX_SEED, above_zero, whole_number
from geogp.distributions.html_tables import SHOWN_ROWS, html_table
from geogp.distributions.quantity import Quantity, Variable
from geogp.distributions.shapes import GAUSSIAN, Floats, Shape
from geogp.errors import NumericalError, RequestError


def check_inside(what: str, found: float) -> None:
    """Raise RequestError unless a level or probability is a number strictly between 0 and 1.

    `what` names the value in the message.
    """
    if not (fits(found, float) and 0 < found < 1):
        raise RequestError(
            f"expected {what} between 0 and 1, found {value_shown(found)}. Give 95 % as 0.95."
        )


_LARGEST_FACTOR = 1e100  # a standard deviation times a larger factor has an infinite variance


@dataclass(frozen=True)
class Prediction:
    """Predictive distributions of the target at n points, Gaussian by default.

    The variance of a measurement is function_variance + noise_variance. The function variance is
    the variance of the field, which more data would remove, plus the tile variance.

    Attributes
    ----------
    mean, function_variance, noise_variance
        float64 arrays of shape (n,). The mean is in the unit of the target, and the variances are
        in the squared unit.
    tile_variance
        The variance of the process of single tiles, (n,); 0 for models without this process.
    shape
        Distribution of (y - mean) / sd. A conformal repair (`warped_shapes.py`) changes the mean
        and the variance of the distribution, but not the median. `mean` and the variances remain
        the values before the repair.
    discrete
        Whether measurements are whole numbers, so that intervals may contain more than their level.
    classes
        Number of classes; 0, because the target is a number.
    targets
        Number of targets; 1, see `JointPrediction`.

    Raises
    ------
    NumericalError
        The arrays have different shapes, a value is not finite, a variance is negative, a tile
        variance exceeds the function variance, or a predictive variance is not positive.
    """

    discrete: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    targets: ClassVar[int] = 1

    mean: Floats
    function_variance: Floats
    noise_variance: Floats
    tile_variance: Floats = None  # type: ignore[assignment]
    shape: Shape = GAUSSIAN

    def __post_init__(self) -> None:
        if self.tile_variance is None:
            object.__setattr__(self, "tile_variance", np.zeros_like(self.function_variance))
        parts = (self.mean, self.function_variance, self.noise_variance, self.tile_variance)
        shapes = {part.shape for part in parts}
        if len(shapes) != 1:
            raise NumericalError(f"expected arrays of one shape, found {sorted(shapes)}.")
        if not all(np.isfinite(part).all() for part in parts):
            raise NumericalError("the prediction contains values that are not finite.")
        if not self.mean.size:
            return
        if self.function_variance.min() < 0 or self.variance.min() <= 0:
            raise NumericalError(
                "expected function variances of 0 or more and positive predictive variances, "
                f"found {self.function_variance.min():.3g} and {self.variance.min():.3g}."
            )
        if self.tile_variance.min() < 0 or (self.tile_variance > self.function_variance).any():
            raise NumericalError(
                "expected tile variances from 0 to the function variance, found "
                f"{self.tile_variance.min():.3g} to {self.tile_variance.max():.3g}."
            )

    @classmethod
    def of_moments(cls, mean: Floats, variance: Floats) -> "Prediction":
        """Return predictions from means and noise variances, (n,), with function variance 0."""
        return Prediction(mean, np.zeros(len(mean)), variance)

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: "NDArray[np.bool_] | NDArray[np.intp] | slice") -> "Prediction":
        """Return the prediction at some of the points."""
        parts: dict[str, Any] = {name: part[rows] for name, part in vars(self).items()}
        return replace(self, **parts)

    def _repr_html_(self) -> str:
        """Return the first predictions as a table; notebooks show it."""
        first = self[:SHOWN_ROWS]
        lower, upper = first.interval(0.95) if len(first) else (first.mean, first.mean)
        values = {"median": first.median, "lower 95 %": lower, "upper 95 %": upper, "sd": first.sd}
        columns = {name: value.tolist() for name, value in values.items()}
        return html_table(f"{type(self).__name__} at {len(self):,} points", columns, rows=len(self))

    def widened(self, factor: float) -> "Prediction":
        """Return the prediction with its standard deviations multiplied by a factor."""
        above_zero("a factor", factor, _LARGEST_FACTOR, "for standard deviations")
        if factor == 1:
            return self
        names = ("function_variance", "noise_variance", "tile_variance")
        parts: dict[str, Any] = {name: factor**2 * getattr(self, name) for name in names}
        return replace(self, **parts)

    def pooled(self, pieces: int) -> "Prediction":
        """Return predictions for larger tiles, which consist of `pieces` equal tiles each.

        The average over a larger tile has the distribution of one tile. For counts, see
        `CountPrediction`.
        """
        whole_number("a number of tiles", pieces, 1, MAX_SEED)
        return self

    def of_tests_like(self, other: Any) -> "Prediction":  # noqa: ARG002
        """Return the prediction for as many tests as another; only shares depend on the number."""
        return self

    def columns(self) -> dict[str, Floats]:
        """Return the arrays (n,) that determine the distributions, by column name."""
        shape = {k: np.broadcast_to(v, self.mean.shape) for k, v in self.shape.columns.items()}
        return {
            "mean": self.mean,
            "function_variance": self.function_variance,
            "tile_variance": self.tile_variance,
            "noise_variance": self.noise_variance,
            **shape,
        }

    def variables(self, quantity: Quantity, level: float) -> dict[str, Variable]:
        """Return the variables of a map, by name: values, long name and CF unit.

        The prediction is of values on the scale of the quantity, such as log10. Bounds are the ends
        of the central interval of `level`. A mean that does not exist is NaN. Values that are too
        large for floating point are infinite.
        """
        lower, upper = self.interval(level)
        subject, unit, end, scale = (
            *(quantity.subject, quantity.cf_unit, quantity.suffix),
            quantity.scale,
        )
        modelled, interval = scale.named(subject, quantity.unit), f"{100 * level:g} % interval of"
        spread = {
            "function_sd": (self.function_variance, "field and tile"),
            "field_sd": (self.field_variance, "the smooth field"),
            "tile_sd": (self.tile_variance, "the deviations of single tiles"),
            "noise_sd": (self.noise_variance, "a measurement's noise"),
        }
        with np.errstate(over="ignore"):
            return {
                f"median_{end}": (
                    scale.values(self.median),
                    f"median of the predicted {subject}",
                    unit,
                ),
                f"mean_{end}": (*self._mean_value(quantity), unit),
                f"lower_{end}": (
                    scale.values(lower),
                    f"lower end of the {interval} {subject}",
                    unit,
                ),
                f"upper_{end}": (
                    scale.values(upper),
                    f"upper end of the {interval} {subject}",
                    unit,
                ),
                f"width_{scale.tag}": (
                    upper - lower,
                    f"width of the {interval} {modelled}",
                    scale.cf_unit,
                ),
            } | {
                f"{name}_{scale.tag}": (
                    np.sqrt(part),
                    f"standard deviation of {of}, {modelled}",
                    scale.cf_unit,
                )
                for name, (part, of) in spread.items()
            }

    def flags(self, quantity: Quantity) -> dict[str, tuple[NDArray[np.intp], str]]:  # noqa: ARG002
        """Return the variables of a map whose values are numbers of classes: none."""
        return {}

    @property
    def has_power_mean(self) -> bool:
        """Whether the mean of the value exists if the prediction is of its logarithm."""
        return self.shape.has_power_mean

    def _mean_value(self, quantity: Quantity) -> tuple[Floats, str]:
        """Return the mean value, such as E[10^y], and its long name; it is NaN if none exists."""
        label = f"mean of the predicted {quantity.subject}"
        if not quantity.scale.logarithmic:
            return self.mean, label
        if self.shape.has_power_mean:
            found = self.power_mean(10.0)
            return np.where(np.isinf(found), np.nan, found), label
        return np.full(len(self), np.nan), f"{label} (does not exist: the tails are too heavy)"

    @property
    def field_variance(self) -> Floats:
        """Variance of the field, which more data would remove, shape (n,)."""
        return self.function_variance - self.tile_variance

    @property
    def variance(self) -> Floats:
        """Predictive variance of a new measurement, shape (n,)."""
        return self.function_variance + self.noise_variance

    @property
    def sd(self) -> Floats:
        """Predictive standard deviation, shape (n,)."""
        return np.sqrt(self.variance)

    @property
    def median(self) -> Floats:
        """The predictive median, shape (n,)."""
        return self.quantile(0.5)

    def sample(self, size: int = 1, *, random_state: int = 0) -> Floats:
        """Draw measurements of shape (size, n), independent between points.

        For draws that are correlated between points, use `paths` of an estimator's `joint(points)`.

        Raises
        ------
        RequestError
            The size is not a whole number of 1 or more.
        """
        whole_number("a size", size, 1, MAX_DRAWS)
        whole_number("random_state", random_state, 0, MAX_SEED)
        return self._drawn(size, np.random.default_rng(random_state))

    def _drawn(self, size: int, random: np.random.Generator) -> Floats:
        """Draw measurements from the inverse distribution functions, (size, n)."""
        # The draws are multiples of 2^-53. With 2^-54 added, no value is exactly 0 or 1.
        uniform = random.random((size, len(self))) + 2.0**-54
        return np.stack([self.mean + self.sd * self.shape.quantile(p) for p in uniform])

    def quantile(self, probability: float) -> Floats:
        """Return the quantiles at one probability, shape (n,).

        Raises
        ------
        RequestError
            The probability does not lie strictly between 0 and 1.
        """
        check_inside("a probability", probability)
        standard = self.shape.quantile(np.full(len(self), probability))
        return self.mean + standard * self.sd

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the central interval of a level, each (n,).

        Raises
        ------
        RequestError
            The level does not lie strictly between 0 and 1.
        """
        check_inside("a level", level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def interval_mass(self, level: float) -> Floats:
        """Return the probability of the central interval of a level, with both ends included, (n,).

        The probability equals the level. For counts, the probability is the level or more, because
        the ends are whole numbers.

        Raises
        ------
        RequestError
            The level does not lie strictly between 0 and 1.
        """
        check_inside("a level", level)
        return np.full(len(self), level)

    def pit(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y) at the measurements `y`, (n,); right predictions give uniform values."""
        return self.cdf(self._checked_values(y))

    def cdf(self, value: ArrayLike) -> Floats:
        """Return P(y <= value) at each point, (n,)."""
        return self.shape.cdf(self._standard(value))

    def exceedance(self, threshold: ArrayLike) -> Floats:
        """Return P(y > threshold) at each point, shape (n,)."""
        return self.shape.survival(self._standard(threshold))

    def log_score(self, y: ArrayLike) -> Floats:
        """Return the negative log density at the observations `y`, shape (n,); lower is better."""
        return 0.5 * np.log(self.variance) - self.shape.log_density(
            self._standard(self._checked_values(y))
        )

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score at `y`, shape (n,); lower is better.

        The score is sd times the score of the standardised distribution at (y - mean) / sd.
        """
        return self.sd * self.shape.crps(self._standard(self._checked_values(y)))

    def power_mean(self, base: float) -> Floats:
        """Return E[base^y] at each point, (n,).

        If y is the log10 of a speed, base 10 gives the mean speed. If this mean does not exist
        because the tails are too heavy, the result is infinity; see `Shape.has_power_mean`.
        """
        above_zero("a base", base, np.inf, "of powers")
        rate = np.log(float(base))
        found: Floats = np.exp(rate * self.mean) * self.shape.exponential_mean(rate * self.sd)
        return found

    def _checked_values(self, y: ArrayLike) -> Floats:
        """Return the measurements as an array of float64.

        Raises DataError if the measurements do not have shape (n,) or are not finite.
        """
        found = rows_of(y, len(self), "measurements")
        check_size(found, "measurements")
        return found

    def _standard(self, y: ArrayLike) -> Floats:
        return (rows_of(y, len(self), "values", infinite=True) - self.mean) / self.sd
