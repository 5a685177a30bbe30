"""What every model answers, whatever it has learned and from whatever it predicts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.choices import CLASS, COUNT
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.models.names import find_model
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.rows import Rows

Floats = NDArray[np.float64]


class KnownPredictions(NamedTuple):
    """Predictions of known rows, each without its own row or its group.

    `prediction`: the predictive distributions, of m rows.
    `y`: their targets, (m,).
    `rows`: their numbers among the training rows followed by the validation rows, (m,); None if the
        rows are means of these.
    `alone`: which were left out alone, without the rows of their groups, (m,).
    """

    prediction: Prediction
    y: Floats
    rows: NDArray[np.intp] | None
    alone: NDArray[np.bool_]


class Model(ABC):
    """Interface of a model that predicts; inputs and targets have the units of the fit.

    `name` is the row of the catalogue. `y_mean` and `y_sd` are mean and standard deviation of the
    training targets. `has_level` says whether the level, around which measurements scatter, has a
    closed-form posterior. `holds_rows` says whether the model contains its training rows, because
    predictions need them. `validates` says whether the fit holds out validation rows.
    `path` is ``exact`` for a process without a basis.
    """

    has_level: ClassVar[bool] = True
    holds_rows: ClassVar[bool] = False
    validates: ClassVar[bool] = True
    path: ClassVar[str] = "basis"

    name: str
    architecture: Architecture
    y_mean: Tensor
    y_sd: Tensor

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the model."""

    @abstractmethod
    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Predict at inputs of shape (n, d), in chunks, in the target's unit.

        `tests`, `devices`: numbers of tests and devices behind each average; most models ignore
            them, because their noise is the same for all averages.
        `level`: whether to predict the level around which measurements scatter.

        The function variance includes all variance at single points. Raises DataError if the inputs
        are not (n, d) or not finite, and NumericalError if a predictive variance is not positive.
        """

    @property
    @abstractmethod
    def level_in_closed_form(self) -> bool:
        """Whether the stated variance of the level is that of the closed form."""

    @property
    @abstractmethod
    def intercept(self) -> float:
        """The mean m0 of f(x) = m0 + <w, phi(x)> for w = 0, in the target's unit."""

    @abstractmethod
    def conditioned(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return mean (r,) and factor (r, r) of the weights given rows, float64; see `condition`.

        A model that contains its rows ignores `rows`.
        """

    @abstractmethod
    def as_rows(self, data: Data) -> Rows:
        """Return rows with scaled inputs and standardised targets, on the model's device."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the tensors of the saved model, by name."""

    @abstractmethod
    def to(self, device: torch.device) -> Self:
        """Return the model on a device, which may be the model itself or a copy."""

    @abstractmethod
    def feature_chunks(self, x: Floats) -> Iterator[Tensor]:
        """Yield phi(x) in the target's unit, float64, in chunks (c, r) on the device."""

    @abstractmethod
    def function_variance(self, x: Floats, L: Tensor) -> Floats:
        """Return the function variance of a prediction for the weight covariance L L', (n,).

        L (r, r), float64, belongs to the weights of the features in `feature_chunks`.
        """

    @abstractmethod
    def widened(self, factor: float) -> Self:
        """Return the model with predictive standard deviations multiplied by `factor`.

        The model's own factor, or the shape that it has learned instead, does not count any more.
        """

    def features(self, x: Floats) -> Floats:
        """Return phi(x), (n, r), in the target's unit, so that k = phi phi'."""
        return torch.cat(list(self.feature_chunks(x))).cpu().numpy()

    def kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance <phi(x), phi(x2)>, (n, n2), in the target's squared unit."""
        second = torch.cat(list(self.feature_chunks(x2)))
        return torch.cat([phi @ second.T for phi in self.feature_chunks(x)]).cpu().numpy()

    def left_out_rows(self) -> KnownPredictions | None:
        """Return predictions of known rows, each without itself; None if they are not known."""
        return None

    def added_variance(self, x: Floats) -> Floats:
        """Return the variance at x that is independent between points, (n,); 0 by default."""
        return np.zeros(len(x))

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and sds of the covariates' coefficients; empty by default."""
        return np.zeros(0), np.zeros(0)

    @contextmanager
    def remembering(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        stored: Mapping[str, Tensor] | None = None,
    ) -> Iterator[Mapping[str, Tensor]]:
        """Keep, during the ``with`` block, what predictions at inputs x have in common.

        Predictions of the level and of averages of these tests, and the joint level, are then
        faster at the same inputs. Yields tensors, (n,) by name, which a file may keep: `stored` are
        such tensors. There are none if predictions are fast anyway, which is the default.
        """
        yield {}

    @property
    def spread_is_noise(self) -> bool:
        """Whether the function variance also contains noise; see `ModelName`."""
        return find_model(self.name).spread_is_noise

    def check_has_level(self) -> None:
        """Raise RequestError if the level has no closed-form posterior."""
        if not self.has_level:
            kind = {COUNT: "counts", CLASS: "classes"}[find_model(self.name).kind]
            raise RequestError(
                f"{self.name} is a model of {kind}: its level has no posterior in closed form. "
                f"Choose a model of averages."
            )
