"""The distribution of prediction errors, whose location, scale and shape depend on covariates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.distributions.shapes import Floats, Shape
from geogp.distributions.sinh_arcsinh import (
    MAX_SKEWNESS,
    MAX_TAILWEIGHT,
    MIN_TAILWEIGHT,
    moments,
    shape_of,
)
from geogp.errors import NumericalError
from geogp.models.fitting.optimisers import LBFGS

COVARIATES = (
    "log tests",
    "log devices",
    "log distance",
    "log noise share",
    "log sd",
    "mean",
    "own scatter",
    "near scatter",
    "own rows",
    "own mean",
    "popularity",
)
"""Covariates of a prediction; see `PredictiveLaw`."""

SIMPLE = [COVARIATES.index(name) for name in ("log distance", "near scatter")]
"""Columns of the covariates of a simple law."""

LOG_SD = COVARIATES.index("log sd")
"""Column of the log standard deviation of the prediction."""

MEAN = COVARIATES.index("mean")
"""Column of the mean of the prediction."""

LAW_ARRAYS = ("coefficients", "ranges", "hidden", "outputs")
"""Arrays of a `PredictiveLaw`; files store them under names that end with these."""

PARAMETERS = 4
"""The parameters: location a, log scale log b, skewness ε, log tail weight log δ."""

PRIOR_ROWS = 30.0
"""Weight of the prior, in rows. The prior is centred at the standard normal distribution."""

OFFSET_GROUPS = 16.0
"""Smallest prior weight of the difference between training and held-out rows, in groups of rows."""

GROUP_ROWS = 15
"""A larger group counts as this many rows, because its errors depend on each other. If all groups
together would count for less than the rows left out alone, each counts for more.
"""

FOLDS = 5
"""Number of folds that decide which covariates the errors depend on."""

MOST_TRIED = 10_000
"""Largest number of errors in these folds; of more, some are drawn."""

LEAST_GAIN = 0.003
"""Smallest gain in the log density per row for which errors depend on all covariates."""

ROWS_OF_LIGHT_TAILS = 5000
"""With fewer errors, the fitted tails are at least as heavy as normal tails."""

SHAPE_STEP = 0.04
"""ε and log δ are rounded to multiples of this step, so that a map has few different shapes."""

MAX_LOG_SCALE = 30.0
"""Bound of |log b| in the fit, so that a long step of the optimiser does not overflow."""

NETWORKS = 2
"""Number of networks that correct the linear parameters."""

HIDDEN = 16
"""Number of hidden units in each of these networks."""

ITERATIONS = 100
"""Largest number of iterations in the fit of a network."""

MIN_SPREAD = 1e-4
"""Covariates with a smaller standard deviation than this are divided by `NO_EFFECT`."""

NO_EFFECT = 1e30
"""Divisor of a covariate that hardly varies in the fit, so that it has no effect elsewhere."""


@dataclass(frozen=True)
class PredictiveLaw:
    """Location, scale and shape of standardised errors, as functions of covariates.

    A prediction of mean m and standard deviation s gives the distribution m + s (a + b W),
    W = sinh((asinh(Z) + ε) / δ), Z standard normal (Jones and Pewsey 2009). Covariates are clamped
    to their range in the fit, and then standardised to u. With q = (a, log b, ε, log δ),

        q(u) = C (1, u, u²) + V tanh(H (1, u)).

    The function B tanh(value / B), with B the bound on the same side of 0 as the value, keeps ε and
    log δ within bounds. Both are then rounded to multiples of `SHAPE_STEP`.

    `coefficients`: C, (4, 1 + 2 c); only log b depends on u².
    `ranges`: minimum, maximum, mean and standard deviation of each covariate, (4, c).
    `hidden`: H, (k, 1 + c) for k = `NETWORKS` times `HIDDEN`. `outputs`: V, (4, k).
    `most_tail`: upper bound of log δ.
    """

    coefficients: Floats
    ranges: Floats
    hidden: Floats
    outputs: Floats
    most_tail: float = 0.0

    @property
    def is_constant(self) -> bool:
        """Whether the errors have the same distribution whatever the covariates."""
        return not (self.coefficients[:, 1:].any() or self.outputs.any())

    def parameters(self, covariates: Floats) -> "Parameters":
        """Return the parameters of the errors' distributions, for covariates (n, c)."""
        design = _design(covariates, self.ranges)
        units = np.tanh(self.hidden @ design[: self.hidden.shape[1]])
        a, log_b, skewness, log_tail = self.coefficients @ design + self.outputs @ units
        bent = _bounded(torch.as_tensor(skewness), torch.as_tensor(log_tail), self.most_tail)
        return Parameters(a, log_b, *(value.numpy() for value in bent))


class Parameters(NamedTuple):
    """Parameters of n distributions of a + b W: a, log b, ε and log δ, each (n,)."""

    a: Floats
    log_b: Floats
    skewness: Floats
    log_tail: Floats

    def scaled(self, mean: Floats, log_sd: Floats) -> "Parameters":
        """Return the distributions of mean + sd (a + b W)."""
        return self._replace(a=mean + np.exp(log_sd) * self.a, log_b=self.log_b + log_sd)

    def standardised(self, mean: Floats, log_sd: Floats) -> "Parameters":
        """Return the distributions of (y - mean) / sd, where y has these distributions."""
        return self._replace(a=(self.a - mean) * np.exp(-log_sd), log_b=self.log_b - log_sd)

    def faded(self, fade: Floats) -> "Parameters":
        """Return the distributions between these, at `fade` 1, and the standard normal, at 0."""
        return Parameters(*(fade * values for values in self))

    def pooled(self, other: "Parameters", share: float | Floats) -> "Parameters":
        """Return the weighted means of these parameters and of `other`, with the weight `share`.

        If all ε and log δ are equal, this averages the quantiles (up to the kind of mean of b). The
        squared scale also gains share (1 - share) (a - a')², as the variance of a mixture of normal
        distributions does.
        """
        pairs = zip(self, other, strict=True)
        a, log_b, skewness, log_tail = ((1 - share) * x + share * y for x, y in pairs)
        between = share * (1 - share) * np.square(self.a - other.a)
        log_b = log_b + 0.5 * np.log1p(between * np.exp(-2 * log_b))
        return Parameters(a, log_b, skewness, log_tail)

    def log_density(self, y: Floats) -> Floats:
        """Return the log density at y, (n,)."""
        density = _log_density(*map(torch.as_tensor, (y, *self))).numpy()
        return density - 0.5 * math.log(2 * math.pi)

    def distribution(self) -> tuple[Floats, Floats, Shape]:
        """Return mean (n,), sd (n,) and shape; ε and log δ are rounded, see `PredictiveLaw`."""
        if not all(np.isfinite(values).all() for values in self):
            raise NumericalError("the prediction contains values that are not finite.")
        rounded = (np.round(values / SHAPE_STEP) for values in (self.skewness, self.log_tail))
        steps, number = _distinct(*rounded)
        skewness, tailweight = steps * SHAPE_STEP
        # Rounding may move a value just outside the bounds.
        tailweight = np.exp(tailweight).clip(MIN_TAILWEIGHT, MAX_TAILWEIGHT)
        skewness = skewness.clip(-MAX_SKEWNESS, MAX_SKEWNESS)
        pairs = zip(skewness, tailweight, strict=True)
        mean, sd = np.array([moments(*pair) for pair in pairs]).reshape(-1, 2).T[:, number]
        b = np.exp(self.log_b)
        return self.a + b * mean, b * sd, shape_of(skewness, tailweight)[number]


def no_law(covariates: int = len(COVARIATES)) -> PredictiveLaw:
    """Return the law that is standard normal whatever the covariates."""
    ranges = np.zeros((4, covariates))
    ranges[3] = NO_EFFECT
    units = NETWORKS * HIDDEN
    return PredictiveLaw(
        np.zeros((PARAMETERS, 1 + 2 * covariates)),
        ranges,
        np.zeros((units, 1 + covariates)),
        np.zeros((PARAMETERS, units)),
    )


@dataclass(frozen=True)
class Errors:
    """Standardised errors at rows that the prediction did not use.

    `errors` (n,) are the errors, and `covariates` (n, c) the covariates of the predictions.
    `held_out` (n,) marks rows outside the fit; the other rows are training rows, each predicted
    without its group, or `alone` (n,) without its own row only. `groups` (n,) are the groups of
    all rows; the error of a row left out alone counts as a group of its own.
    """

    errors: Floats
    covariates: Floats
    held_out: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    groups: NDArray[np.int64]

    def joined(self, other: "Errors") -> "Errors":
        """Return these errors followed by `other`; groups of equal numbers stay apart."""
        apart = replace(other, groups=other.groups + self.groups.max(initial=-1) + 1)
        names = [field.name for field in fields(self)]
        pairs = [(getattr(self, name), getattr(apart, name)) for name in names]
        return Errors(*map(np.concatenate, pairs))

    @property
    def values(self) -> Floats:
        """The values that were predicted, (n,)."""
        mean, log_sd = prediction_in(self.covariates)
        return mean + np.exp(log_sd) * self.errors

    def predicted_by(self, mean: Floats, log_sd: Floats) -> "Errors":
        """Return the errors of other predictions of the same rows."""
        errors = (self.values - mean) * np.exp(-log_sd)
        return replace(
            self, errors=errors, covariates=with_prediction(self.covariates, mean, log_sd)
        )

    def at(self, chosen: NDArray[np.bool_]) -> "Errors":
        """Return the errors of some rows, marked by `chosen` (n,)."""
        return Errors(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @property
    def weights(self) -> Floats:
        """Weights of the rows, (n,): 1, and less in large groups; see `GROUP_ROWS`."""
        grouped, weights = ~self.alone, np.ones(len(self.groups))
        _, number, size = np.unique(self.groups[grouped], return_inverse=True, return_counts=True)
        weights[grouped] = np.minimum(1.0, self._group_rows / size)[number]
        return weights

    @property
    def _group_rows(self) -> float:
        """Return the largest number of rows as which a group counts; see `GROUP_ROWS`."""
        groups = len(np.unique(self.groups[~self.alone]))
        return max(GROUP_ROWS, np.count_nonzero(self.alone) / max(groups, 1))

    def group_rows(self, marked: NDArray[np.bool_]) -> float:
        """Return the mean size of a row's group, over the rows with `marked` (n,)."""
        if not marked.any():
            return 1.0
        single, grouped = marked & self.alone, self.groups[marked & ~self.alone]
        sizes = np.unique(grouped, return_counts=True)[1].clip(max=self._group_rows)
        sizes = np.concatenate([sizes, np.ones(np.count_nonzero(single))])
        return float((sizes @ sizes) / sizes.sum())


def earns_covariates(errors: Errors) -> bool:
    """Return whether a law with all covariates predicts errors better than a simple law.

    Both laws are fitted to all but a fold of the groups, and compared on this fold; see
    `LEAST_GAIN`. With few groups, the covariates of a group are those of its place, so that a law
    learns the places by heart.
    """
    rng = np.random.default_rng(0)
    if len(errors.errors) > MOST_TRIED:
        errors = errors.at(rng.permutation(len(errors.errors)) < MOST_TRIED)
    names, number = np.unique(errors.groups, return_inverse=True)
    if len(names) < 2:
        return False
    fold, gains = (rng.permutation(len(names)) % FOLDS)[number], np.zeros(len(number))
    for k in np.unique(fold):
        learned, other = errors.at(fold != k), errors.at(fold == k)
        pair = fit_law(learned), fit_law(learned, scale=SIMPLE)
        full, simple = (law.parameters(other.covariates).log_density(other.errors) for law in pair)
        gains[fold == k] = full - simple
    return bool(np.average(gains, weights=errors.weights) > LEAST_GAIN)


def fit_law(errors: Errors, *, scale: Sequence[int] = ()) -> PredictiveLaw:
    """Fit the error distribution to standardised errors by maximum a posteriori.

    The objective is the weighted sum of the log densities (`Errors.weights`), minus a penalty: the
    prior weight times half the sum of the squared coefficients of standardised covariates. The
    penalty keeps the result near the standard normal if there are few rows. The errors of a group
    depend on each other, so a large group weighs less than its rows. Covariates are clamped to
    their 1 % and 99 % quantiles. The features were learned from the training rows, but not from the
    held-out rows. So each parameter differs by a constant between these two kinds of rows. The
    weight of the constants is `OFFSET_GROUPS` times the mean size of a held-out group, but at least
    `PRIOR_ROWS`. The result is the distribution for held-out rows. Tails lighter than normal tails
    need `ROWS_OF_LIGHT_TAILS` rows.

    If `scale` has columns of covariates, the law is simple: log b is a linear function of these
    covariates alone, the tail weight is the same everywhere, and a and ε are 0.

    The linear part is fitted first. Then each network is fitted alone to correct the linear part,
    with the same penalty on its weights but no penalty on its intercepts; the result is the mean of
    the networks. The optimiser is L-BFGS in float64. Raises NumericalError if a value is not
    finite, or a fit does not end at finite values.
    """
    r = torch.as_tensor(np.ascontiguousarray(errors.errors, np.float64))
    if not len(r) or not all(np.isfinite(v).all() for v in (errors.errors, errors.covariates)):
        raise NumericalError("expected finite errors and covariates to fit a predictive law to.")
    rows = torch.as_tensor(errors.weights)
    ranges = _ranges(errors.covariates)
    inside = (~errors.held_out).astype(np.float64)
    design = torch.as_tensor(np.vstack([_design(errors.covariates, ranges), inside]))
    c = errors.covariates.shape[1]
    used = torch.ones(PARAMETERS, len(design), dtype=torch.float64)
    used[[0, 2, 3], 1 + c : -1] = 0.0  # only the scale uses squares
    if scale:
        used.zero_()
        used[1:4:2, [0, -1]] = 1.0
        used[1, [1 + column for column in scale]] = 1.0
    weight = torch.full_like(used, PRIOR_ROWS)
    weight[:, -1] = max(PRIOR_ROWS, OFFSET_GROUPS * errors.group_rows(errors.held_out))
    most_tail = math.log(MAX_TAILWEIGHT) if len(r) >= ROWS_OF_LIGHT_TAILS else 0.0

    def loss(parameters: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
        a, log_b, skewness, log_tail = parameters.unbind()
        density = _log_density(r, a, log_b, *_bounded(skewness, log_tail, most_tail))
        return (penalty / 2 - density @ rows) / len(r)

    theta = torch.zeros_like(used, requires_grad=True)
    minimise(lambda: loss((theta * used) @ design, (weight * theta.square()).sum()), [theta], 200)
    theta = (theta * used).detach()
    linear, inputs = theta @ design, design[: 1 + c]
    every_hidden, every_output = [], []
    for seed in range(NETWORKS):
        random = np.random.default_rng(seed).standard_normal((HIDDEN, 1 + c)) / math.sqrt(1 + c)
        hidden = torch.as_tensor(random).requires_grad_()
        outputs = torch.zeros(PARAMETERS, HIDDEN, dtype=torch.float64, requires_grad=True)

        def corrected(
            hidden: torch.Tensor = hidden, outputs: torch.Tensor = outputs
        ) -> torch.Tensor:
            size = outputs.square().sum() + hidden[:, 1:].square().sum()
            return loss(linear + outputs @ torch.tanh(hidden @ inputs), PRIOR_ROWS * size)

        if not scale:
            minimise(corrected, [hidden, outputs], ITERATIONS)
        every_hidden.append(hidden.detach().numpy())
        every_output.append(outputs.detach().numpy() / NETWORKS)
    law = PredictiveLaw(
        theta.numpy()[:, :-1].copy(),
        ranges,
        np.vstack(every_hidden),
        np.hstack(every_output),
        most_tail,
    )
    learned = law.coefficients, law.hidden, law.outputs
    if not all(np.isfinite(values).all() for values in learned):
        raise NumericalError("the fit of the predictive law diverged.")
    return law


def prediction_in(covariates: Floats) -> tuple[Floats, Floats]:
    """Return mean and log standard deviation of a prediction from its covariates (n, c)."""
    return covariates[:, MEAN], covariates[:, LOG_SD]


def with_prediction(covariates: Floats, mean: Floats, log_sd: Floats) -> Floats:
    """Return covariates (n, c) with another mean and log standard deviation."""
    replaced = covariates.copy()
    replaced[:, MEAN], replaced[:, LOG_SD] = mean, log_sd
    return replaced


def pooled_law(
    first: Parameters,
    second: PredictiveLaw,
    share: float | Floats,
    covariates: Floats,
    predicted: Sequence[Floats],
) -> Parameters:
    """Return the pooled distributions of values with two predictions; see `Parameters.pooled`.

    `first` are the parameters of the errors of the prediction in `covariates` (n, c). `second`,
    with the weight `share`, is the law of the errors of `predicted`, which contains means and log
    standard deviations (n,).
    """
    mean, log_sd = predicted
    of_second = second.parameters(with_prediction(covariates, mean, log_sd)).scaled(mean, log_sd)
    return first.scaled(*prediction_in(covariates)).pooled(of_second, share)


def minimise(
    loss: Callable[[], torch.Tensor], parameters: list[torch.Tensor], iterations: int
) -> None:
    """Minimise a loss in place by L-BFGS."""
    optimiser = LBFGS(
        parameters, max_iter=iterations, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)


def _ranges(covariates: Floats) -> Floats:
    """Return 1 % and 99 % quantiles, and mean and sd of the clamped covariates, (4, c)."""
    low, high = np.quantile(covariates, [0.01, 0.99], axis=0)
    clamped = np.clip(covariates, low, high)
    spread = clamped.std(0)
    spread[spread < MIN_SPREAD] = NO_EFFECT
    return np.array([low, high, clamped.mean(0), spread])


def _log_density(
    r: torch.Tensor,
    a: torch.Tensor,
    log_b: torch.Tensor,
    skewness: torch.Tensor,
    log_tail: torch.Tensor,
) -> torch.Tensor:
    """Return log densities of errors, (n,), without the constant of the normal density."""
    log_b = log_b.clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)
    w = (r - a) * torch.exp(-log_b)
    z = torch.sinh(log_tail.exp() * torch.asinh(w) - skewness)
    slope = log_tail - log_b + 0.5 * (torch.log1p(z.square()) - torch.log1p(w.square()))
    return slope - 0.5 * z.square()


def _design(covariates: Floats, ranges: Floats) -> Floats:
    """Return 1, the standardised covariates and their squares, (1 + 2 c, n)."""
    low, high, mean, spread = ranges
    u = (np.clip(covariates, low, high) - mean) / spread
    return np.vstack([np.ones(len(u)), u.T, np.square(u).T])


def _distinct(first: Floats, second: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the distinct pairs of whole numbers, (2, m), and the index of each row's pair.

    The result is that of `np.unique`, but this function does not sort the rows.
    """
    # The bounds include 0, so that an empty input is allowed.
    left, low = first.min(initial=0), second.min(initial=0)
    span = int(second.max(initial=0) - low) + 1
    code = ((first - left) * span + (second - low)).astype(np.intp)
    occurs = np.bincount(code) > 0
    codes = np.flatnonzero(occurs)
    return np.array([codes // span + left, codes % span + low]), (np.cumsum(occurs) - 1)[code]


def _bounded(
    skewness: torch.Tensor, log_tail: torch.Tensor, most_tail: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ε and log δ within their bounds; near 0 they hardly change."""
    low = math.log(MIN_TAILWEIGHT)
    lighter = most_tail * torch.tanh(log_tail / most_tail) if most_tail else log_tail.clamp(max=0)
    bent = torch.where(log_tail < 0, low * torch.tanh(log_tail / low), lighter)
    return MAX_SKEWNESS * torch.tanh(skewness / MAX_SKEWNESS), bent
