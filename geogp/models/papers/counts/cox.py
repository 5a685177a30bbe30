"""The Cox process: counts whose log rate is a Gaussian process (DBK-1 appendix A.5)."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geogp.distributions.count_prediction import CountPrediction, predict_counts
from geogp.errors import DataError, RequestError
from geogp.models.numerics.arrays import as_floats
from geogp.models.numerics.devices import CHUNK
from geogp.models.options import OFFSET
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import Floats, LowRankProcess
from geogp.models.process.noise import NOISE_FLOOR, Noise
from geogp.models.process.objectives import BatchTerms

DISPERSION_START = 1.0
"""Start value of the dispersion."""


class CountLaw(Noise):
    """The scatter of Poisson counts: Var(y | rate) = rate + dispersion · rate², dispersion 0."""

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__()

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the dispersion, (b,) float64, for features (b, r)."""
        assert phi is not None, "expected features of the inputs, found none"
        return phi.new_zeros(len(phi), dtype=torch.float64)


class Dispersion(CountLaw):
    """Negative binomial counts: dispersion(x) = exp(c + <c_phi, phi(x)>), at least 1e-6.

    The dispersion is the variance of a gamma variable with mean 1 that multiplies each rate.
    """

    def __init__(self, r: int, dtype: torch.dtype) -> None:
        super().__init__(r, dtype)
        start = torch.tensor(math.log(DISPERSION_START), dtype=dtype)
        self.log_dispersion = nn.Parameter(start)
        self.head = nn.Parameter(torch.zeros(r, dtype=dtype))

    def forward(self, phi: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
        """Return the dispersion, (b,) float64, for features (b, r)."""
        assert phi is not None, "expected features of the inputs, found none"
        return NOISE_FLOOR + (self.log_dispersion + phi @ self.head).double().exp()


class CoxGP(LowRankProcess):
    """log rate(x) = log exposure + mu + <w, phi(x)>, with counts y around the rate.

    y ~ Poisson(rate), or negative binomial if `noise` has a dispersion. The logarithm of the
    exposure, for example of an area, is the input column ``log_exposure``, which the basis does not
    use. Without this column, the log exposure is 0. The constant mu is `mean_constant` plus
    `y_mean`, the logarithm of the training rows' mean count.
    """

    has_level = False

    noise: CountLaw

    def __init__(
        self, name: str, architecture: Architecture, *, law: type[CountLaw] = CountLaw, **parts: Any
    ) -> None:
        noise = law(parts["basis"].rank, architecture.torch_dtype)
        super().__init__(name, architecture, **{**parts, "noise": noise})

    def scaled(self, x: Floats | Tensor) -> Tensor:
        """Return inputs for the basis, and the log exposure as one more column."""
        inputs = super().scaled(x)
        columns = self.architecture.columns
        if OFFSET not in columns:
            return torch.cat([inputs, torch.zeros_like(inputs[:, :1])], 1)
        offset = np.ascontiguousarray(as_floats(x, "inputs")[:, columns.index(OFFSET)])
        return torch.cat([inputs, torch.as_tensor(offset).to(inputs)[:, None]], 1)

    def take_target(self, y: Floats) -> None:
        """Set `y_mean` to the log of the mean count; raise DataError if a value is not a count."""
        _check_counts(y)
        self.y_mean.fill_(math.log(float(y.mean())))
        self.y_sd.fill_(1.0)

    def standardised(self, y: Floats) -> Tensor:
        """Return counts (n,) unchanged; raise DataError if a target is not a count."""
        _check_counts(y)
        return torch.as_tensor(y).to(self.device, self.architecture.torch_dtype)

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of the objectives at inputs (b, d) returned by `scaled`."""
        features = self.basis(self.seen(x))
        moments, kl = self.posterior.moments_and_kl(features.phi)
        return BatchTerms(
            mean=self.mean_constant + moments.mean,
            function_variance=moments.variance,
            residual=features.residual,
            feature_norm=features.norm,
            noise_var=moments.mean.new_zeros(()),
            kl=kl,
            offset=self.y_mean + x[:, -1],
            dispersion=self.noise(features.phi),
        )

    def predict_scaled(
        self, x: Tensor, counts: Tensor | None = None, *, level: bool = False
    ) -> CountPrediction:
        """Predict counts at inputs returned by `scaled`; raise RequestError for `level`."""
        if level:
            raise RequestError(f"{self.name} predicts counts; it has no separate level.")
        of_chunks = []
        for chunk in x.split(CHUNK):
            with torch.no_grad():
                terms = self.terms(chunk)
            assert terms.offset is not None
            assert terms.dispersion is not None
            log_rate = terms.offset.double() + terms.mean.double()
            of_chunks.append((log_rate, terms.function_variance.double(), terms.dispersion))
        arrays = (torch.cat(values).cpu().numpy() for values in zip(*of_chunks, strict=True))
        return predict_counts(*arrays)

    def seen(self, x: Tensor) -> Tensor:
        """Return scaled inputs without the log exposure."""
        return x[:, :-1]


def _check_counts(y: Floats) -> None:
    wrong = (y < 0) | (y != np.floor(y))
    if wrong.any():
        raise DataError(
            f"expected counts, whole numbers of 0 or more, found {int(wrong.sum())} of {len(y)} "
            f"that are not, the first {y[wrong][0]:g}. For other targets, choose another model "
            f"from `geogp models`."
        )
