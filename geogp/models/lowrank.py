"""The one model behind every row of the catalogue: a basis, a posterior, a noise law."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.errors import DataError, RequestError
from geogp.models.bases import Features
from geogp.models.noise import ConstantNoise
from geogp.models.objectives import BatchTerms
from geogp.models.posteriors import VariationalPosterior
from geogp.models.prediction import Prediction

Floats = NDArray[np.float64]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}

CHUNK = 8192
"""Rows per chunk of a prediction: memory is CHUNK times r, whatever the number of points."""


@dataclass(frozen=True)
class Architecture:
    """Sizes that fix a model's tensors.

    Attributes
    ----------
    d, h, r
        Input dimension, width of the network, rank.
    blocks
        Residual blocks of the network.
    jitter
        Relative jitter of k~_ZZ; None takes the basis's default.
    dtype
        ``float32`` or ``float64``.

    Raises
    ------
    RequestError
        Another dtype.
    """

    d: int
    h: int = 64
    r: int = 128
    blocks: int = 2
    jitter: float | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise RequestError(f"expected a dtype of {' or '.join(_DTYPES)}, found {self.dtype!r}.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return _DTYPES[self.dtype]

    def as_dict(self) -> dict[str, int | float | str | None]:
        """Return the sizes as a dictionary that JSON can hold."""
        return asdict(self)


class LowRankGP(nn.Module):
    """f(x) = m0 + <w, phi(x)>, y = f(x) + noise, so that k(x, x') = <phi(x), phi(x')>.

    Targets are standardised inside: `y_mean` and `y_sd` are those of the training rows.
    `predict` and `kernel` speak in the unit of the target.

    Parameters
    ----------
    name
        The row of the catalogue.
    architecture
        Sizes.
    basis, posterior, noise
        The parts.
    diagonal
        Whether the residual k~(x, x) - ||phi||² belongs to the predictive variance.
    """

    y_mean: Tensor
    y_sd: Tensor

    def __init__(
        self,
        name: str,
        architecture: Architecture,
        *,
        basis: nn.Module,
        posterior: VariationalPosterior,
        noise: ConstantNoise,
        diagonal: bool,
    ) -> None:
        super().__init__()
        self.name = name
        self.architecture = architecture
        self.diagonal = diagonal
        self.basis = basis
        self.posterior = posterior
        self.noise = noise
        dtype = architecture.torch_dtype
        self.mean_constant = nn.Parameter(torch.zeros((), dtype=dtype))
        self.register_buffer("y_mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("y_sd", torch.ones((), dtype=torch.float64))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.mean_constant.device

    def terms(self, x: Tensor) -> BatchTerms:
        """Return what the objectives use of a batch (b, d), on the standardised scale."""
        found: Features = self.basis(x)
        moments = self.posterior.moments(found.phi)
        return BatchTerms(
            mean=self.mean_constant + moments.mean,
            function_variance=moments.variance,
            residual=found.residual,
            feature_norm=found.phi.square().sum(1),
            noise_var=self.noise(),
            kl=self.posterior.kl(),
        )

    def predict(self, x: Floats) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks.

        Returns
        -------
        Prediction
            Mean, function variance and noise variance, each (n,), in the target's unit.

        Raises
        ------
        DataError
            `x` has another dimension than the training inputs or is not finite.
        NumericalError
            A predictive variance is not positive.
        """
        parts = [self._predict_chunk(part) for part in self._chunks(x)]
        mean, variance, noise = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
        return Prediction(mean, variance, noise)

    def features(self, x: Floats) -> Floats:
        """Return phi(x) in the target's unit, so that k = phi phi', shape (n, r)."""
        with torch.no_grad():
            phi = torch.cat([self.basis(part).phi.double() for part in self._chunks(x)])
        return (phi * self.y_sd).cpu().numpy()

    def kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance k(x, x2) = <phi(x), phi(x2)>, shape (n, n2).

        In the squared unit of the target. Meant for slices: n times n2 values are returned.
        """
        with torch.no_grad():
            second = torch.cat([self.basis(part).phi.double() for part in self._chunks(x2)])
            rows = [self.basis(part).phi.double() @ second.T for part in self._chunks(x)]
            return (torch.cat(rows) * self.y_sd.square()).cpu().numpy()

    def _predict_chunk(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            terms = self.terms(x)
            variance = terms.function_variance.double()
            if self.diagonal:
                variance = variance + terms.residual.double()
            noise = terms.noise_var.double().expand_as(variance)
            scale = self.y_sd.square()
            mean = self.y_mean + self.y_sd * terms.mean.double()
            return mean, variance * scale, noise * scale

    def _chunks(self, x: Floats) -> tuple[Tensor, ...]:
        values = np.asarray(x, np.float64)
        if values.ndim != 2 or values.shape[1] != self.architecture.d or not len(values):
            raise DataError(
                f"expected inputs of shape (n, {self.architecture.d}) with n >= 1, "
                f"found {values.shape}."
            )
        if not np.isfinite(values).all():
            raise DataError("expected finite inputs, found NaN or infinite values.")
        tensor = torch.from_numpy(values).to(self.device, self.architecture.torch_dtype)
        return torch.split(tensor, CHUNK)
