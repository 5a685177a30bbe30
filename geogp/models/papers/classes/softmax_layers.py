"""Networks of classes: a softmax on the last layer, with a Bayesian last layer after training.

"The Rich paper" is Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features", appendix C.3. "The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian
processes", section 4.5.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from geogp.models.numerics.devices import CHUNK
from geogp.models.papers.classes.processes import (
    ClassPosterior,
    ClassProcess,
    softmax_cross_entropy,
)
from geogp.models.papers.last_layers.regression import (
    LastLayerFit,
    LastLayerGP,
    enrich,
    posterior_factor,
    rows_for,
    stacked_triangle,
)
from geogp.models.papers.last_layers.tangents import BASE_WIDTH
from geogp.models.papers.scale_mixtures.processes import SCALE_PRIOR
from geogp.models.process.architecture import Architecture
from geogp.models.process.objectives import BatchTerms
from geogp.models.process.posteriors import Information, posterior_of
from geogp.models.process.rows import Rows

RIDGE = 1.0
"""Ridge λ of the map from last-layer to tangent features (Rich C.3)."""


class SoftmaxLayer(ClassProcess, LastLayerGP):
    """A network trained by cross-entropy, then a Gaussian posterior of its logits (Rich C.3).

    Means are the logits of the trained network. The variance of each logit is that of a Bayesian
    last layer with the noise variance 0.1, phi' (Phi' Phi / 0.1 + I)^(-1) phi, from all training
    rows. It is the same for all classes. The constants c_j stay at their start value.
    """

    posterior: ClassPosterior  # type: ignore[assignment]

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        self.constants.requires_grad = False

    def take_factor(self, L: Tensor) -> None:
        """Set the covariance of the weights of every class to L L', (r, r)."""
        for posterior in self.posterior.each():
            posterior.weights()[1].copy_(L)


class SoftmaxFit(LastLayerFit):
    """A fit by cross-entropy; at the end, the variance of the logits from all training rows."""

    process: SoftmaxLayer

    def __init__(self, process: SoftmaxLayer) -> None:
        # Rows with equal inputs can have different classes.
        super().__init__(process, softmax_cross_entropy, combines=False)

    def rates(self) -> dict[str, float]:
        """Return learning rates as multiples of the usual rate; see `Mlp.rates`."""
        readout = BASE_WIDTH / self.process.network.root
        classes = range(len(self.process.posterior.parts))
        return super().rates() | {f"posterior.parts.{k}.m": readout for k in classes}

    def update_closed_forms(self, held_out: Rows) -> None:
        """Do nothing, because the gradient trains every part."""


class EnrichedSoftmax(SoftmaxLayer):
    """A Bayesian last layer enriched by the tangent kernel, with one transformation (Rich C.3).

    A_j maps the last-layer features to the tangent features of logit j. The transformation is
    common to the classes: F F' is the mean over j of A_j' A_j + I. The paper says that one
    transformation is better than one for each class, and does not say how it combines the logits.
    """

    def factor(self, x: Tensor, seed: int, k: int | None = None) -> Tensor:
        """Return a factor of the covariance; `k` rows are drawn, by default as in `rows_for`."""
        k = rows_for(self.network, len(x)) if k is None else k
        means, _ = self.posterior.weights()
        of_classes = [enrich(self.network, m, x, k, seed=seed, ridge=RIDGE) for m in means]
        triangles = (of_class.L.T for of_class in of_classes)
        F = stacked_triangle(*triangles).T / math.sqrt(len(means))
        self.enrichment.copy_(F)
        self.enrichment_rows.fill_(of_classes[0].rows)
        return posterior_factor(of_classes[0].T, F, float(self.noise()))


class LaplaceSoftmax(SoftmaxLayer):
    """A Laplace approximation of the last layer, with one precision for all classes (Rich C.3).

    The precision is I + Σ_i w_i phi_i phi_i'. The weight w_i is the mean over the classes of
    p_ij (1 - p_ij), the second derivative of the cross-entropy by logit j.
    """

    def factor(self, x: Tensor, seed: int) -> Tensor:
        """Return a factor of the covariance."""
        r = self.basis.rank
        precision = torch.zeros(r, r, dtype=torch.float64, device=x.device)
        for chunk in x.split(CHUNK):
            p = self.terms(chunk).mean.double().softmax(1)
            phi = self.basis(chunk).phi.double()
            precision += phi.T @ (phi * (p * (1 - p)).mean(1, keepdim=True))
        return posterior_of(Information(precision, precision.new_zeros(r)))[1]


class SoftmaxNetwork(SoftmaxLayer):
    """A plain network of classes; its logits have no variance."""

    def factor(self, x: Tensor, seed: int) -> Tensor:
        """Return 0."""
        return torch.zeros_like(self.enrichment)


class NormalReadout(SoftmaxNetwork):
    """A network whose last layer starts at normal draws times a scale s, for ensembles (Scale 4.5).

    The logits are s <v_j, phi>, with v_j starting at standard normal draws. s is not trained; here
    s = 1, so wide networks are Gaussian processes at the start.
    """

    readout_scale: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        super().__init__(name, architecture, **parts)
        self.register_buffer("readout_scale", self.draw_scale())
        with torch.no_grad():
            for posterior in self.posterior.each():
                posterior.weights()[0].normal_()

    def draw_scale(self) -> Tensor:
        """Return the scale s, a scalar, float64."""
        return torch.ones((), dtype=torch.float64)

    def terms(self, x: Tensor) -> BatchTerms:
        """Return the terms of the objectives at scaled inputs (b, d)."""
        usual = super().terms(x)
        logits = self.constants + self.readout_scale.to(usual.mean.dtype) * (
            usual.mean - self.constants
        )
        return replace(usual, mean=logits)


class StudentReadout(NormalReadout):
    """`NormalReadout` with s² ~ InvGamma(2, 2); wide networks are t processes at the start."""

    def draw_scale(self) -> Tensor:
        """Return a draw of s."""
        a, b = (torch.tensor(v, dtype=torch.float64) for v in (SCALE_PRIOR.a, SCALE_PRIOR.b))
        return (b / torch.distributions.Gamma(a, torch.ones_like(a)).sample()).sqrt()
