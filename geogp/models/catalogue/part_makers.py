"""Makers of the parts of catalogue rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from geogp.errors import RequestError
from geogp.models.bases.basis_functions import Backbone, DenseBasis, InducingBasis, NetworkBasis
from geogp.models.bases.kernels import Kernel, MixedKernel
from geogp.models.bases.network_kernels import NetworkKernel
from geogp.models.bases.nystrom import AnchorBasis
from geogp.models.bases.placement import place_anchors
from geogp.models.bases.tangents import LastLayerBasis, Mlp
from geogp.models.catalogue.model_spec import Assemble, MakeBasis, ModelParts
from geogp.models.core.architecture import Architecture
from geogp.models.core.options import Placement
from geogp.models.core.posteriors import (
    ClosedFormPosterior,
    PointPosterior,
)
from geogp.models.families.cox import CountLaw, CoxGP
from geogp.models.families.last_layers import LastLayerPosterior
from geogp.models.field.field_model import FieldNetwork
from geogp.models.field.measurement import MeasurementLaw
from geogp.models.field.tile_process import TileProcess


def _backbone(sizes: Architecture) -> Backbone:
    return Backbone(len(sizes.used), sizes.h, sizes.blocks).to(sizes.torch_dtype)


def plain_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    """Return inducing points under an RBF on the inputs."""
    x = x if x is not None else torch.zeros(1, len(sizes.used), dtype=sizes.torch_dtype)
    return InducingBasis(place_anchors(x, sizes.r, placement, generator), jitter=sizes.jitter)


def deep_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    """Return inducing points under an RBF on a network."""
    backbone = _backbone(sizes)
    if x is None or placement == "uniform":
        empty = torch.zeros(1, sizes.h, dtype=sizes.torch_dtype)
        anchors = place_anchors(empty, sizes.r, "uniform", generator)
    else:
        # Points spread over the inputs, seen through the untrained network.
        places = place_anchors(x, sizes.r, placement, generator)
        with torch.no_grad():
            anchors = backbone(places)
    return InducingBasis(anchors, backbone, jitter=sizes.jitter)


def dense_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> DenseBasis:
    """Return a dense SiLU layer on a network."""
    return DenseBasis(_backbone(sizes), sizes.h, sizes.r).to(sizes.torch_dtype)


def network_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> NetworkBasis:
    """Return a plain network."""
    return NetworkBasis(_backbone(sizes), sizes.h)


def anchored(make_kernel: Callable[[Architecture], Kernel]) -> MakeBasis:
    """Return the maker of a Nyström basis of a kernel."""

    def make(
        sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
    ) -> AnchorBasis:
        kernel = make_kernel(sizes)
        anchors = torch.zeros(sizes.r, len(sizes.used), dtype=sizes.torch_dtype)
        basis = AnchorBasis(kernel, anchors, jitter=sizes.jitter)
        if x is not None:
            pair = basis.covariance, basis.variance
            basis.anchors.copy_(place_anchors(x, sizes.r, placement, generator, pair))
        return basis

    return make


def mixed_kernel(sizes: Architecture) -> Kernel:
    """Return the mixed kernel of six parameters."""
    return MixedKernel(dtype=sizes.torch_dtype)


def network_kernel(activation: str, *, own_scale: bool = True) -> Callable[[Architecture], Kernel]:
    """Return the maker of a network's kernel; its depth is the architecture's `blocks`.

    Without `own_scale` its readout variance stays at 1.
    """

    def make(sizes: Architecture) -> Kernel:
        kernel = NetworkKernel(sizes.blocks, activation, dtype=sizes.torch_dtype)
        kernel.log_readout.requires_grad = own_scale
        return kernel

    return make


def closed_form(r: int, _generator: torch.Generator, _dtype: torch.dtype) -> ClosedFormPosterior:
    """Return a posterior in closed form."""
    return ClosedFormPosterior(r)


def point(r: int, _generator: torch.Generator, dtype: torch.dtype) -> PointPosterior:
    """Return one value for the weights."""
    return PointPosterior(r, dtype)


def field_gp(parts: ModelParts, span: Tensor) -> FieldNetwork:
    """Return the field model, with the architecture's units.

    Raises RequestError: the architecture has no units.
    """
    sizes, r = parts.architecture, parts.basis.rank
    if not sizes.units:
        raise RequestError(
            f"{parts.name} measures distances: give Architecture(units=...), the kilometres and "
            "quarters that one unit of each input stands for."
        )
    per_input = torch.tensor(sizes.units, dtype=torch.float64)
    return FieldNetwork(
        parts.name,
        sizes,
        basis=parts.basis,
        posterior=parts.posterior,
        noise=MeasurementLaw(r, sizes.torch_dtype),
        diagonal=parts.diagonal,
        tiles=TileProcess(r, sizes.torch_dtype),
        units=per_input[list(sizes.used)] * span.double(),
    )


def last_layer_basis(
    sizes: Architecture, _x: Tensor | None, _placement: Placement, _generator: torch.Generator
) -> LastLayerBasis:
    """Return a network of `blocks` hidden layers of width h and its last layer's features."""
    network = Mlp(len(sizes.used), sizes.h, sizes.blocks)
    return LastLayerBasis(network, sizes.h).to(sizes.torch_dtype)


def last_layer(r: int, _generator: torch.Generator, dtype: torch.dtype) -> LastLayerPosterior:
    """Return the posterior of a Bayesian last layer."""
    return LastLayerPosterior(r, dtype)


def cox_gp(law: type[CountLaw]) -> Assemble:
    """Return the maker of a model of counts under a law of their scatter."""

    def assemble(parts: ModelParts, span: Tensor) -> CoxGP:  # noqa: ARG001
        return CoxGP(
            parts.name,
            parts.architecture,
            basis=parts.basis,
            posterior=parts.posterior,
            noise=law(parts.basis.rank, parts.architecture.torch_dtype),
            diagonal=parts.diagonal,
        )

    return assemble
