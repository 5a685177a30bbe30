"""One of several targets as a model of its own."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.model import Model
from geogp.models.process.rows import Rows
from geogp.models.several.several_targets import SeveralTargets
from geogp.models.several.target_laws import TargetLaws

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OneTarget(Model):
    """Target number `target` of several: y = c + Σ_f a_f z_f, with the independent factors z_f.

    The features are those of the factors side by side, each times its a_f. So the weights of all
    factors together are the weights of the model, and their covariance is block-diagonal.
    """

    several: SeveralTargets
    target: int

    holds_rows = True
    level_in_closed_form = True

    @property
    def weighted(self) -> list[tuple[float, Model]]:
        """The factors, each with its weight a_f."""
        return self.several.weights(self.target)

    @property
    def first(self) -> Model:
        """The model of the first factor, whose inputs are those of all."""
        return self.several.models[0]

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the row of the catalogue, that of the factors."""
        return self.first.name

    @property
    def path(self) -> str:  # type: ignore[override]
        """``exact`` if a factor has no basis."""
        exact = any(model.path == "exact" for model in self.several.models)
        return "exact" if exact else "basis"

    @property
    def validates(self) -> bool:  # type: ignore[override]
        """Whether the fit of the factors holds out validation rows."""
        return self.first.validates

    @property
    def architecture(self) -> Architecture:  # type: ignore[override]
        """Sizes of the factors, with the sum of their ranks."""
        ranks = [model.architecture.r for model in self.several.models]
        return replace(self.first.architecture, r=sum(ranks))

    @property
    def y_mean(self) -> Tensor:  # type: ignore[override]
        """Mean of the training targets."""
        return self._centre + torch.stack([a * model.y_mean for a, model in self.weighted]).sum()

    @property
    def y_sd(self) -> Tensor:  # type: ignore[override]
        """Standard deviation of the training targets, whose factors are uncorrelated."""
        return torch.stack([a * model.y_sd for a, model in self.weighted]).square().sum().sqrt()

    @property
    def device(self) -> torch.device:
        """Device of the factors."""
        return self.first.device

    @property
    def intercept(self) -> float:
        """The mean m0 in the target's unit."""
        return self._centre + sum(a * model.intercept for a, model in self.weighted)

    @property
    def _centre(self) -> float:
        return float(self.several.factors.centre[self.target])

    def squares(self, of_factors: Iterable[Floats]) -> Floats:
        """Return Σ_f a_f² v_f of arrays v_f of the factors."""
        squares = np.square(self.several.factors.mixing[self.target])
        total: Floats = np.einsum("f,f...->...", squares, np.stack(list(of_factors)))
        return total

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs; this is the marginal of `SeveralTargets.predict`."""
        return self.several.marginal(self.target, x, tests, devices, level=level)

    @contextmanager
    def remembering(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        stored: Mapping[str, Tensor] | None = None,
    ) -> Iterator[Mapping[str, Tensor]]:
        """Keep what the factors' predictions have in common; see `Model.remembering`.

        The tensors are those of all factors, so that they serve all targets.
        """
        kept: dict[str, Tensor] = {}
        with ExitStack() as stack:
            for k, model in enumerate(self.several.models):
                start, own = f"{k}.", None
                if stored is not None:
                    own = {
                        name.removeprefix(start): value
                        for name, value in stored.items()
                        if name.startswith(start)
                    }
                level = stack.enter_context(model.remembering(x, tests, devices, stored=own))
                kept |= {start + name: value for name, value in level.items()}
            yield kept

    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean and factor of all factors' weights given the stored rows."""
        parts = [model.conditioned(rows) for model in self.several.models]
        means, factors = zip(*parts, strict=True)
        return torch.cat(means), torch.block_diag(*factors)

    def as_rows(self, data: Data) -> Rows:
        """Return rows with scaled inputs and standardised targets, on the model's device."""
        rows = self.first.as_rows(data)
        y = (torch.as_tensor(data.y).to(self.device) - self.y_mean) / self.y_sd
        return rows._replace(y=y.to(rows.y.dtype))

    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""
        parts = [model.feature_chunks(x) for model in self.several.models]
        for chunk in zip(*parts, strict=True):
            weighted = zip(self.weighted, chunk, strict=True)
            yield torch.cat([a * phi for (a, _), phi in weighted], 1)

    def kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of the smooth function between inputs, (n, n2)."""
        return self.squares(model.kernel(x, x2) for model in self.several.models)

    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the function variance for a block-diagonal factor L of the weights, (n,)."""
        models = self.several.models
        ranks = [next(model.feature_chunks(x[:1])).shape[1] for model in models]
        diagonal = [part.split(ranks, 1)[k] for k, part in enumerate(L.split(ranks))]
        if not torch.equal(L, torch.block_diag(*diagonal)):
            raise RequestError("expected weights that are independent between factors.")
        pairs = zip(models, diagonal, strict=True)
        return self.squares(model.function_variance(x, own) for model, own in pairs)

    def added_variance(self, x: Floats) -> Floats:
        """Return the variance at x that is independent between points, (n,)."""
        return self.squares(model.added_variance(x) for model in self.several.models)

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and sds of the covariates' coefficients, independent between factors."""
        mixing = self.several.factors.mixing[self.target]
        means, sds = zip(*(model.coefficients() for model in self.several.models), strict=True)
        return mixing @ np.array(means), np.sqrt(mixing**2 @ np.square(sds))

    def widened(self, factor: float) -> Self:
        """Return the model with normal errors, and standard deviations multiplied by `factor`."""
        models = tuple(model.widened(factor) for model in self.several.models)
        laws = TargetLaws.of_factors(self.several.factors)
        return replace(self, several=replace(self.several, models=models, laws=laws))

    def to(self, device: torch.device) -> Self:
        """Return the model on a device."""
        return replace(self, several=self.several.to(device))

    def state_dict(self) -> NoReturn:
        """Raise RequestError: a file has all targets."""
        raise RequestError(
            f"expected the estimator of all targets, found that of "
            f"{self.several.names[self.target]!r} alone. Save the estimator of all targets; after "
            "load_model, of_target gives this one again."
        )
