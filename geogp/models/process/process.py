"""What every process has: a basis, a posterior, a noise model, and the scales of its data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geogp.errors import RequestError
from geogp.models.numerics.arrays import as_inputs
from geogp.models.numerics.precision import check_precision
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import Basis
from geogp.models.process.data import Data
from geogp.models.process.diagonals import Diagonal
from geogp.models.process.noise import Noise
from geogp.models.process.posteriors import Posterior
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]

NO_NUMBERS = (
    "expected a model whose parameters have values, found a model on the device meta, which "
    "stores only shapes. Build or load the model on cpu or cuda."
)


class Process(nn.Module):
    """The parts of y = f(x) + noise with f(x) = m0 + <w, phi(x)>, and the scales of x and y.

    The process maps the inputs `x_low` and `x_high` to -1 and 1, and standardises targets by the
    mean `y_mean` and standard deviation `y_sd` of the training targets. Predictive standard
    deviations are multiplied by `widening`.

    `name` is the row of the catalogue. `make_fit`, which `build` sets, makes the fit of this row,
    which trains the process (see `fitting/steps.py`). `diagonal` adds variance at single points.
    """

    make_fit: Callable[[Any], Any]
    x_low: Tensor
    x_high: Tensor
    y_mean: Tensor
    y_sd: Tensor
    widening: Tensor

    def __init__(
        self,
        name: str,
        architecture: Architecture,
        *,
        basis: Basis,
        posterior: Posterior,
        noise: Noise,
        diagonal: Diagonal,
    ) -> None:
        super().__init__()
        self.name = name
        self.architecture = architecture
        self.basis = basis
        self.posterior = posterior
        self.noise = noise
        self.diagonal = diagonal
        used = len(architecture.used)
        self.mean_constant = nn.Parameter(torch.zeros((), dtype=architecture.torch_dtype))
        self.register_buffer("x_low", torch.full((used,), -1.0, dtype=torch.float64))
        self.register_buffer("x_high", torch.ones(used, dtype=torch.float64))
        self.register_buffer("y_mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("y_sd", torch.ones((), dtype=torch.float64))
        self.register_buffer("widening", torch.ones((), dtype=torch.float64))

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        above = self.x_high - self.x_low, self.y_sd, self.widening
        if not all(bool((value > 0).all()) for value in above):
            raise ValueError("expected x_low below x_high, and y_sd and widening above 0")

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.mean_constant.device

    def check(self) -> None:
        """Raise RequestError unless parameters have values, one device and the right precision."""
        if self.device.type == "meta":
            raise RequestError(NO_NUMBERS)
        check_precision(self.y_mean)
        expected = self.architecture.torch_dtype
        for name, value in self.named_parameters():
            if value.device != self.device or value.dtype != expected:
                raise RequestError(
                    f"expected all parameters on {self.device} with {expected}, found {name} on "
                    f"{value.device} with {value.dtype}. Move the whole model with .to(device), "
                    "and choose the dtype with Architecture(dtype=...)."
                )

    @property
    def intercept(self) -> float:
        """The mean m0 in the target's unit."""
        return float(self.y_mean + self.y_sd * self.mean_constant.detach().double())

    def scaled(self, x: Floats | Tensor) -> Tensor:
        """Return inputs (n, d) for the basis: used columns only, scaled, on the model's device.

        Raises DataError if `x` has another dimension than the training inputs or is not finite, and
        the error of `check`.
        """
        self.check()
        d = self.architecture.d
        values = as_inputs(x, d)
        used = values if len(self.x_low) == d else values[:, list(self.architecture.used)]
        tensor = torch.as_tensor(np.ascontiguousarray(used)).to(self.device)
        share = (tensor - self.x_low) / (self.x_high - self.x_low)
        return (2 * share - 1).to(self.architecture.torch_dtype)

    def take_range(self, low: Tensor, high: Tensor) -> None:
        """Set the inputs that are mapped to -1 and 1, each with shape (used,)."""
        self.x_low.copy_(low)
        self.x_high.copy_(high)

    def take_target(self, y: Floats) -> None:
        """Set `y_mean` and `y_sd` to the mean and standard deviation of training targets (n,)."""
        self.y_mean.fill_(float(y.mean()))
        self.y_sd.fill_(float(y.std()))

    def standardised(self, y: Floats) -> Tensor:
        """Return targets (n,), standardised, on the model's device and in its dtype."""
        values = (torch.as_tensor(y).to(self.device) - self.y_mean) / self.y_sd
        return values.to(self.architecture.torch_dtype)

    def as_rows(self, data: Data) -> Rows:
        """Return rows with scaled inputs and standardised targets, on the model's device."""
        counts, groups = (
            torch.as_tensor(part).to(self.device) for part in (data.counts, data.groups)
        )
        return Rows(self.scaled(data.x), self.standardised(data.y), counts, groups=groups)
