"""Low-rank processes: a basis, a posterior, a noise model and the variance of single points."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.models.numerics.devices import CHUNK, CHUNK_ARRAYS, rows_at_once
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.process.basis_functions import Features
from geogp.models.process.model import Model
from geogp.models.process.objectives import BatchTerms
from geogp.models.process.posteriors import WeightedRows, condition
from geogp.models.process.process import Process
from geogp.models.process.rbf_readers import Marginals
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

ENTRIES = 2**20
"""Numbers in a chunk of a prediction on a CPU, to fit into the cache."""

MIN_ROWS = 256
"""Smallest number of rows in such a chunk."""


class LowRankProcess(Process, Model):
    """y = f(x) + noise with f(x) = m0 + <w, phi(x)>; the kernel is k(x, x') = <phi(x), phi(x')>.

    `predict`, `features` and `kernel` take unscaled inputs and return values in the unit of the
    target. `Process` documents the parameters.
    """

    @property
    def level_in_closed_form(self) -> bool:
        """Whether the stated variance of the level is that of the closed form."""
        return self.posterior.in_closed_form

    def seen(self, x: Tensor) -> Tensor:
        """Return scaled inputs in the form that the basis expects; by default unchanged."""
        return x

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of objectives at scaled inputs (b, d), for a standardised target."""
        features: Features = self.basis(x)
        moments, kl = self.posterior.moments_and_kl(features.phi)
        return BatchTerms(
            mean=self.mean_constant + moments.mean,
            function_variance=moments.variance,
            residual=features.residual,
            feature_norm=features.norm,
            noise_var=self.noise(),
            kl=kl,
        )

    def widened(self, factor: float) -> Self:
        """Return the process with predictive standard deviations multiplied by `factor`."""
        wider = deepcopy(self)
        wider.widening.fill_(factor)
        return wider

    def weighted_rows(self, rows: Rows) -> Iterator[WeightedRows]:
        """Yield features, residuals and variances of rows, in chunks, for `condition`.

        The variance of a row around <w, phi> is noise_var plus `Diagonal.of_rows`. If
        `spread_is_noise`, the function variance is added. For the mean of k rows at one input, the
        variance is divided by k.
        """
        for chunk in rows.chunks():
            features: Features = self.basis(chunk.x)
            variance = self.noise().double() + self.diagonal.of_rows(features).double()
            if self.spread_is_noise:
                variance = variance + self.posterior.moments(features.phi).variance.double()
            if chunk.repeats is not None:
                variance = variance / chunk.repeats.rows.double()
            yield WeightedRows(features.phi, chunk.y - self.mean_constant, variance)

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean (r,) and factor (r, r) of the weights given rows; see `condition`."""
        return condition(self.weighted_rows(rows), torch.zeros(self.basis.rank, device=self.device))

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs, ignoring tests and devices; see `Model.predict`."""
        return self.predict_scaled(self.scaled(x), level=level).widened(float(self.widening))

    def predict_scaled(
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> Prediction:
        """Predict at inputs returned by `scaled`; see `predict`."""
        with deferred_checks():
            arrays = self._marginals(x, level=level)
        if not np.isfinite(arrays).all():
            arrays = self._marginals(x, level=level)
        return Prediction(*arrays)

    def _marginals(self, x: Tensor, *, level: bool) -> Floats:
        """Return mean, function variance and noise variance in the target's unit, (3, n)."""
        with torch.no_grad():
            norms = self.diagonal.uses_norms
            read = self.basis.reader(self.posterior, norms=norms, rows=len(x))
            usual = min(CHUNK, max(MIN_ROWS, ENTRIES // self.basis.rank))
            rows = rows_at_once(usual, CHUNK_ARRAYS * self.architecture.widest, x.device)
            chunks = [read(chunk) for chunk in x.split(rows)]
            marginals = Marginals(*map(torch.cat, zip(*chunks, strict=True)))
            mean = self.y_mean + self.y_sd * (self.mean_constant.double() + marginals.mean)
            variance = marginals.variance
            if norms:
                variance = variance + self.diagonal(marginals).double()
            noise = torch.zeros_like(variance) if level else self.noise().double()
            scale = self.y_sd.square()
            in_units = mean, variance * scale, noise.expand_as(variance) * scale
            arrays: Floats = torch.stack(in_units).cpu().numpy()
        return arrays

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""
        for chunk in self.scaled(x).split(CHUNK):
            with torch.no_grad():
                phi = self.basis(self.seen(chunk)).phi.double() * self.y_sd
            yield phi

    def added_variance(self, x: Floats) -> Floats:
        """Return the part of the function variance at x that the diagonal adds, (n,)."""
        if not self.diagonal.uses_norms:
            return np.zeros(len(x))
        with torch.no_grad():
            chunks = [self.diagonal(self.basis(chunk)) for chunk in self.scaled(x).split(CHUNK)]
            variance: Floats = (torch.cat(chunks).double() * self.y_sd.square()).cpu().numpy()
        return variance

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the function variance for the weight covariance L L'; see `Model`."""
        chunks = [(phi @ L).square().sum(1).cpu() for phi in self.feature_chunks(x)]
        variance: Floats = torch.cat(chunks).numpy() + self.added_variance(x)
        return variance * float(self.widening) ** 2
