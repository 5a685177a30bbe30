"""A model of several targets: processes of independent factors, and the laws of the targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.models.process.model import Model
from geogp.models.several.factors import Factors
from geogp.models.several.target_laws import TargetLaws

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SeveralTargets:
    """Several targets that are linear in independent factors, each a process of its own.

    `names`: names of the targets. `factors`: the map from factors to targets. `models`: the process
    of each factor. `laws`: the laws of the targets' errors, and their copula.
    """

    names: tuple[str, ...]
    factors: Factors
    models: tuple[Model, ...]
    laws: TargetLaws

    def predict(
        self,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> JointPrediction:
        """Return the joint prediction at inputs (n, d); arguments are those of `Model.predict`.

        Joint levels are normal, with the covariance of the functions of the factors.
        """
        predicted, counts = self._of_factors(x, tests, devices, level=level)
        return self.laws.joint(self.names, self.factors, predicted, counts, level=level)

    def marginal(
        self,
        k: int,
        x: Floats,
        tests: Floats | float | None = None,
        devices: Floats | float | None = None,
        *,
        level: bool = False,
    ) -> Prediction:
        """Return the marginal of target number k; arguments are those of `predict`."""
        predicted, counts = self._of_factors(x, tests, devices, level=level)
        return self.laws.marginal(k, self.factors, predicted, counts, level=level)

    def _of_factors(
        self,
        x: Floats,
        tests: Floats | float | None,
        devices: Floats | float | None,
        *,
        level: bool,
    ) -> tuple[list[Prediction], Floats | float]:
        """Return the prediction of each factor, and the tests."""
        predicted = [model.predict(x, tests, devices, level=level) for model in self.models]
        return predicted, 1.0 if tests is None else tests

    def weights(self, k: int) -> list[tuple[float, Model]]:
        """Return the factors of target number k, each with its weight in the target."""
        return list(zip(self.factors.mixing[k].tolist(), self.models, strict=True))

    def to(self, device: torch.device) -> Self:
        """Return the model on a device."""
        return replace(self, models=tuple(model.to(device) for model in self.models))

    def described(self) -> dict[str, Any]:
        """Return all but the processes of the factors, for a file."""
        return {
            "names": list(self.names),
            "centre": self.factors.centre.tolist(),
            "mixing": self.factors.mixing.tolist(),
            **self.laws.described(),
        }

    @classmethod
    def restored(cls, models: Sequence[Model], described: Mapping[str, Any]) -> Self:
        """Return the model of `described`; raise ValueError if sizes do not fit the processes."""
        names = tuple(described["names"])
        t = len(models)
        factors = Factors(*(np.array(described[key], np.float64) for key in ("centre", "mixing")))
        shapes = factors.centre.shape, factors.mixing.shape
        if len(names) != t or shapes != ((t,), (t, t)):
            raise ValueError(f"expected {t} names and a mixing of as many targets, found {shapes}")
        return cls(names, factors, tuple(models), TargetLaws.restored(described, t))
