"""How predictions of the field err, as rows outside the fit have shown."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.models.field.measurement import ENDLESS, MeasurementLaw
from geogp.models.field.near_network import NearNetworks
from geogp.models.field.near_rows import Conditional
from geogp.models.field.parameters import FieldParameters, numpy_of
from geogp.models.field.predictive_law import (
    Parameters,
    PredictiveLaw,
    no_law,
    pooled_law,
    prediction_in,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class FieldErrors:
    """How predictions of the field err, as rows outside the fit have shown.

    `law`: distribution of the errors of field and tile process.
    `networks`: networks that predict a measurement from the measurements near it.
    `networks_law`: distribution of the errors of the networks.
    `networks_share`: share of the networks in predictions, from 0 to 1.
    `reach_km`: distance to the nearest row up to which errors were seen; see `fade` and `reach_of`.
    """

    law: PredictiveLaw
    networks: NearNetworks
    networks_law: PredictiveLaw
    networks_share: float = 0.0
    reach_km: float = ENDLESS

    @classmethod
    def none(cls, parameters: FieldParameters) -> "FieldErrors":
        """Return normal errors, and networks without a share, as before a fit."""
        sizes = parameters.architecture
        networks = NearNetworks(len(sizes.used), sizes.torch_dtype).to(parameters.device)
        return cls(law=no_law(), networks=networks, networks_law=no_law())

    def law_at(
        self, covariates: Floats, nearest: Floats, networks: tuple[Floats, ...] | None
    ) -> Parameters:
        """Return the law of the errors of predictions with some covariates, (n, c).

        `nearest`: distances to the nearest row in km, (n,). `networks`: the networks' means and log
        standard deviations, (n,) each; None without networks.
        """
        fade = self.fade(nearest)
        law = self.law.parameters(covariates).faded(fade)
        if networks is None:
            return law
        share = self.networks_share * fade
        pooled = pooled_law(law, self.networks_law, share, covariates, networks)
        return pooled.standardised(*prediction_in(covariates))

    def fade(self, distance: Floats) -> Floats:
        """Return the share of laws and networks at distances to the nearest row in km, (n,).

        Within `reach_km` the share is 1. Beyond, nothing was learned about the errors, and the
        share falls as (reach / distance)², so that the process is left.
        """
        return np.square(self.reach_km / np.maximum(distance, self.reach_km))


def error_covariates(
    law: MeasurementLaw, counts: Tensor, predicted: Conditional, distance: Floats
) -> Floats:
    """Return the covariates of the errors of predictions, (n, c); `COVARIATES` names them."""
    logs = law.log_counts(counts)
    total = predicted.field + predicted.tile + predicted.noise
    own = torch.stack([(predicted.noise / total).log(), 0.5 * total.log(), predicted.mean], 1)
    return np.column_stack(
        [numpy_of(logs), np.log(distance), numpy_of(own), numpy_of(predicted.history)]
    )
