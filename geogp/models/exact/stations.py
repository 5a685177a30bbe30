"""Kriging of few places with many times each, in a time that grows with the number of times.

At the S places of the rows, the covariance of `Covariance` is that of a field with covariance
c (N + v) whose correlation decays as exp(-|t - t'| / τ), and of a field with covariance c u N that
stays, where c = (1 - λ) / (1 + u + v). Both are Markov processes in time. So a Kalman filter and a
smoother (Rauch, Tung and Striebel 1965) over the times give the same answers as the covariances of
all rows (Hartikainen and Särkkä 2010), and between places, kriging of each field is exact.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from torch import Tensor

from geogp.models.exact.covariance import DOUBLE, Lags, nugget
from geogp.models.exact.kriging import JITTER, LEAST_SQUARES, RIDGE, UniversalKriging

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]

MOST_STATIONS = 60
"""Largest number of places whose rows are filtered."""

ARRAYS = 4
"""Number of arrays (times, 2 S, 2 S) of a smoother."""

MOST_ROWS, MOST_WORK = 50_000, 2e9
"""Largest number of rows, and of the times multiplied by (2 S)³."""


class Steps(NamedTuple):
    """Times in increasing order, (T,), and the numbers of the rows, and of the places, of each."""

    times: Floats
    rows: list[Numbers]
    places: list[Numbers]


class States(NamedTuple):
    """States given all rows: means (T, 2 S, 1 + p), covariances and gains (T, 2 S, 2 S).

    The first column of a mean follows from the targets, the others from the columns of the trend.
    The covariance of the states at times t and t + 1 is the gain of t times the covariance of
    t + 1. `gram`: products of the whitened targets and trend, (1 + p, 1 + p).
    """

    times: Floats
    means: Floats
    covariances: Floats
    gains: Floats
    gram: Floats
    log_determinant: float


@dataclass(frozen=True, eq=False)
class StationKriging(UniversalKriging):
    """Universal kriging of rows at few places, with the answers of `Kriging`."""

    @cached_property
    def log_determinant(self) -> float:
        """Logarithm of |R|."""
        return self._states.log_determinant

    @cached_property
    def squares(self) -> float:
        """|R^(-1/2) (y - X β)|²."""
        gram, beta = self._states.gram, self._beta
        squares = gram[0, 0] - 2 * beta @ gram[1:, 0] + beta @ gram[1:, 1:] @ beta
        return max(float(squares), LEAST_SQUARES * len(self.rows))

    @cached_property
    def beta(self) -> Tensor:
        """Coefficients of the trend, (p,)."""
        return self._tensor(self._beta)

    @cached_property
    def inner(self) -> Tensor:
        """Lower factor of X' R^(-1) X, (p, p)."""
        return self._tensor(self._inner)

    def field(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the field at points, (n,) each.

        Between two times of the rows, the first field is a bridge between its states; before and
        after all times, it forgets the nearest state.
        """
        places, x = _numpy(points), _numpy(trend)
        weights, fields = self._weights(places[:, :2])
        left, right, shares, change = self._between(places[:, 2])
        moving = np.arange(weights.shape[1]) < len(self._priors[0])
        before, after = (
            weights * np.where(moving, share[:, None], same)
            for share, same in zip(shares, (0.0, 1.0), strict=True)
        )
        kept = weights * fields
        variance = np.full(len(x), sum(prior[0, 0] for prior in self._priors))
        variance += change * kept[:, moving].sum(1) - kept.sum(1)
        means, states = np.empty((len(x), 1 + x.shape[1])), self._states
        for first, last in np.unique(np.column_stack([left, right]), axis=0):
            here = (left == first) & (right == last)
            old, new, ahead = before[here], after[here], states.covariances[last]
            means[here] = old @ states.means[first] + new @ states.means[last]
            variance[here] += ((new @ ahead) * new).sum(1)
            if first < last:
                variance[here] += ((old @ states.covariances[first]) * old).sum(1)
                variance[here] += 2 * ((old @ states.gains[first] @ ahead) * new).sum(1)
        variance += np.square(self._rest(means, x)).sum(0)
        least = JITTER * (1 - nugget(self.theta))
        variance = self.variance * np.maximum(variance, least)
        return self._tensor(self._mean(means, x)), self._tensor(variance)

    def _between(self, times: Floats) -> tuple[Numbers, Numbers, tuple[Floats, Floats], Floats]:
        """Return the steps around times, the weights of their states, and the variance they leave.

        Weights and variance, (n,) each, are those of a process with the correlation
        exp(-|t - t'| / τ). Before and after all times, there is one step, whose weight is second.
        """
        known, tau = self._states.times, self._shares[0]
        right = np.searchsorted(known, times).clip(max=len(known) - 1)
        left = np.where((known[0] < times) & (times <= known[-1]), right - 1, right)
        before, after = (np.exp(-np.abs(times - known[step]) / tau) for step in (left, right))
        apart = np.where(left < right, 1 - (before * after) ** 2, 1.0)
        first = np.where(left < right, before * (1 - after**2) / apart, 0.0)
        second = np.where(left < right, after * (1 - before**2) / apart, after)
        change = np.where(left < right, 1 - before**2, 1.0) * (1 - after**2) / apart
        return left, right, (first, second), change

    def joint(self, points: Tensor, trend: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n,) and covariance (n, n) of the field at points."""
        places, x = _numpy(points), _numpy(trend)
        states = self._smoothed(places[:, 2])
        at = np.searchsorted(states.times, places[:, 2])
        weights, fields = self._weights(places[:, :2])
        means = np.einsum("nd,ndk->nk", weights, states.means[at])
        rest = self._rest(means, x)
        s = len(self._priors[0])
        moving, staying = self._fields(places[:, :2], places[:, :2])
        moving -= weights[:, :s] @ fields[:, :s].T
        staying -= weights[:, s:] @ fields[:, s:].T
        apart = np.abs(places[:, None, 2] - places[None, :, 2])
        total = moving * np.exp(-apart / self._shares[0]) + staying + rest.T @ rest
        for last in np.unique(at):
            later, shared = at == last, states.covariances[last]
            for step in range(last, at.min() - 1, -1):
                shared = shared if step == last else states.gains[step] @ shared
                earlier = at == step
                if earlier.any():
                    block = weights[earlier] @ shared @ weights[later].T
                    total[np.ix_(earlier, later)] += block
                    if step < last:
                        total[np.ix_(later, earlier)] += block.T
        return self._tensor(self._mean(means, x)), self._tensor(self.variance * total)

    def left_out(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of each row given the other rows, (n,) each.

        With R the noise of a row, m the mean of its field given all rows and V its variance, the
        error of the row without its own target is (y - m) / (1 - V / R), and its variance is
        R / (1 - V / R).
        """
        own, number = self._numbers
        states, noise = self._states, self._noise
        y, x = _numpy(self.rows.y), _numpy(self.rows.trend)
        step = np.searchsorted(states.times, _numpy(self.rows.points)[:, 2])
        means = states.means[step, number] + states.means[step, len(own) + number]
        both = np.column_stack([number, len(own) + number])
        covariances = states.covariances[step[:, None, None], both[:, :, None], both[:, None, :]]
        field = covariances.sum((1, 2)) + np.square(self._rest(means, x)).sum(0)
        share = np.maximum(1 - field / noise, JITTER)
        error = (y - self._mean(means, x)) / share
        return self._tensor(y - error), self._tensor(self.variance * noise / share)

    # What the rows tell.

    @cached_property
    def _numbers(self) -> tuple[Floats, Numbers]:
        """The S places, (S, 2), and the number of each row's place, (n,)."""
        places, number = np.unique(_numpy(self.rows.points)[:, :2], axis=0, return_inverse=True)
        return places, number.reshape(-1)

    @cached_property
    def _shares(self) -> tuple[float, float, float, float]:
        """τ, u, v and c."""
        end = 4 + 2 * self.covariance.nested
        tau, u, v = np.exp(self.theta[end : end + 3]).tolist()
        return tau, u, v, (1 - nugget(self.theta)) / (1 + u + v)

    @cached_property
    def _noise(self) -> Floats:
        """Noise of each row as a share of the variance, (n,)."""
        noise = np.full(len(self.rows), nugget(self.theta) + JITTER)
        errors, tests = self.rows.error_variance, self.rows.tests
        if tests is not None:
            noise = noise + self.covariance.of_test(self.theta) / _numpy(tests)
        return noise if errors is None else noise + _numpy(errors) / math.exp(self.theta[-1])

    @cached_property
    def _priors(self) -> list[Floats]:
        """Covariances of the two fields at the S places, (S, S) each."""
        places = self._numbers[0]
        eye = JITTER * np.eye(len(places))
        return [part + part[0, 0] * eye for part in self._fields(places, places)]

    @cached_property
    def _states(self) -> States:
        """The states at the times of the rows."""
        return self._smoothed(np.empty(0))

    @cached_property
    def _inner(self) -> Floats:
        squares = np.square(_numpy(self.rows.trend)).sum(0) + 1
        gram = self._states.gram[1:, 1:] + RIDGE * np.diag(squares)
        return np.asarray(np.linalg.cholesky(gram), np.float64)

    @cached_property
    def _beta(self) -> Floats:
        return np.asarray(cho_solve((self._inner, True), self._states.gram[1:, 0]), np.float64)

    def _mean(self, means: Floats, x: Floats) -> Floats:
        """Return the mean of the field, (n,), from means of states (n, 1 + p) and the trend."""
        return np.asarray(means[:, 0] + (x - means[:, 1:]) @ self._beta)

    def _rest(self, means: Floats, x: Floats) -> Floats:
        """Return the whitened error of the trend, (p, n)."""
        return np.asarray(solve_triangular(self._inner, (x - means[:, 1:]).T, lower=True))

    def _fields(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Return the covariances of the two fields between places, (n, m) each, at one time."""
        _, u, v, c = self._shares
        points = (np.column_stack([part, np.zeros(len(part))]) for part in (first, second))
        one, other = (torch.as_tensor(part, dtype=DOUBLE) for part in points)
        total = self.covariance(self.theta, Lags.between(one[:, None], other[None])).numpy() / c
        in_space = (total - v) / (1 + u)
        return c * (in_space + v), c * u * in_space

    def _weights(self, places: Floats) -> tuple[Floats, Floats]:
        """Return weights of the states at places, and covariances with them, (n, 2 S) each."""
        fields = self._fields(places, self._numbers[0])
        factors = (cho_factor(prior, lower=True) for prior in self._priors)
        weights = (cho_solve(own, field.T).T for own, field in zip(factors, fields, strict=True))
        return np.hstack(list(weights)), np.hstack(fields)

    def _steps(self, times: Floats) -> Steps:
        """Return the times of the rows, and others, with the rows of each."""
        own = _numpy(self.rows.points)[:, 2]
        every = np.unique(np.concatenate([own, times]))
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], every, side="right")[:-1]
        rows = np.split(order, ends)
        return Steps(every, rows, [self._numbers[1][some] for some in rows])

    def _smoothed(self, times: Floats) -> States:
        """Return the states at the times of the rows and at others, given all rows."""
        steps, priors, noise = self._steps(times), self._priors, self._noise
        targets = np.column_stack([_numpy(self.rows.y), _numpy(self.rows.trend)])
        s, k = len(priors[0]), targets.shape[1]
        keeps = np.exp(-np.diff(steps.times) / self._shares[0])
        mean, covariance = np.zeros((2 * s, k)), np.zeros((2 * s, 2 * s))
        covariance[:s, :s], covariance[s:, s:] = priors
        gram, log_determinant = np.zeros((k, k)), 0.0
        means: list[Floats] = []
        covariances: list[Floats] = []
        for step, (rows, own) in enumerate(zip(steps.rows, steps.places, strict=True)):
            if step:
                mean, covariance = self._moved(mean, covariance, keeps[step - 1])
            if len(rows):
                shared = covariance[:, own] + covariance[:, s + own]
                seen = shared[own] + shared[s + own] + np.diag(noise[rows])
                factor = np.linalg.cholesky(seen)
                away = targets[rows] - mean[own] - mean[s + own]
                white, spread = (
                    solve_triangular(factor, part, lower=True, check_finite=False)
                    for part in (away, shared.T)
                )
                gram += white.T @ white
                log_determinant += 2 * float(np.log(np.diag(factor)).sum())
                mean, covariance = mean + spread.T @ white, covariance - spread.T @ spread
            means.append(mean)
            covariances.append(covariance)
        gains: list[Floats] = [np.empty((2 * s, 2 * s))]
        for step in range(len(keeps) - 1, -1, -1):
            moved, ahead = self._moved(means[step], covariances[step], keeps[step])
            towards = covariances[step].copy()
            towards[:, :s] *= keeps[step]
            gain = np.asarray(np.linalg.solve(ahead, towards.T).T, np.float64)
            gains.append(gain)
            means[step] = means[step] + gain @ (means[step + 1] - moved)
            change = gain @ (covariances[step + 1] - ahead) @ gain.T
            covariances[step] = covariances[step] + (change + change.T) / 2
        return States(
            steps.times,
            np.array(means),
            np.array(covariances),
            np.array(gains[::-1]),
            gram,
            log_determinant,
        )

    def _moved(self, mean: Floats, covariance: Floats, keeps: float) -> tuple[Floats, Floats]:
        """Return the state at the next time, where the first field has this correlation."""
        s = len(self._priors[0])
        factor = np.repeat([keeps, 1.0], s)
        covariance = factor[:, None] * covariance * factor
        covariance[:s, :s] += (1 - keeps**2) * self._priors[0]
        return factor[:, None] * mean, covariance

    def _tensor(self, array: Floats) -> Tensor:
        return torch.as_tensor(array).to(self.rows.y.device)


def are_stations(points: Floats) -> bool:
    """Return whether rows at points (n, 2 or 3) are at so few places that they can be filtered."""
    if points.shape[1] < 3 or len(points) > MOST_ROWS:
        return False
    places, times = len(np.unique(points[:, :2], axis=0)), len(np.unique(points[:, 2]))
    return places <= MOST_STATIONS and times > 1 and times * (2 * places) ** 3 <= MOST_WORK


def station_words(points: Floats) -> int:
    """Return about how many numbers the smoother of rows at points (n, 3) has in memory."""
    places, times = len(np.unique(points[:, :2], axis=0)), len(np.unique(points[:, 2]))
    return ARRAYS * times * (2 * places) ** 2


def _numpy(tensor: Tensor) -> Floats:
    return np.asarray(tensor.cpu().numpy(), np.float64)
