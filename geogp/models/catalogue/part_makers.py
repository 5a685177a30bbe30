"""Functions that make the parts of the models in the catalogue."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geogp.models.options import Placement
from geogp.models.papers.last_layers.tangents import LastLayerBasis, Mlp
from geogp.models.papers.mixed_nystrom.kernels import Kernel, MixedKernel, NetworkKernel
from geogp.models.papers.mixed_nystrom.nystrom import AnchorBasis
from geogp.models.process.architecture import Architecture
from geogp.models.process.basis_functions import (
    Backbone,
    Basis,
    DenseBasis,
    DriftBasis,
    InducingBasis,
    NetworkBasis,
)
from geogp.models.process.placement import place_anchors


class PlacementContext(NamedTuple):
    """Scaled training inputs (None when a saved model is loaded), and how to place points."""

    x: Tensor | None
    placement: Placement
    generator: torch.Generator

    def anchors(self, x: Tensor, r: int) -> Tensor:
        """Return r inducing points among or between inputs (n, d)."""
        return place_anchors(x, r, self.placement, self.generator)


MakeBasis = Callable[[Architecture, PlacementContext], Basis]


def _backbone(sizes: Architecture, left_out: int = 0) -> Backbone:
    """Return a network of the inputs, without the last `left_out` of them."""
    return Backbone(len(sizes.used) - left_out, sizes.h, sizes.blocks).to(sizes.torch_dtype)


def plain_basis(sizes: Architecture, context: PlacementContext) -> InducingBasis:
    """Return the basis of inducing points of an RBF kernel on the inputs."""
    none = torch.zeros(1, len(sizes.used), dtype=sizes.torch_dtype)
    x = none if context.x is None else context.x
    return InducingBasis(context.anchors(x, sizes.r), jitter=sizes.jitter)


def deep_basis(sizes: Architecture, context: PlacementContext) -> InducingBasis:
    """Return the basis of inducing points of an RBF kernel on a network's features."""
    backbone = _backbone(sizes)
    if context.x is None or context.placement == "uniform":
        empty = torch.zeros(1, sizes.h, dtype=sizes.torch_dtype)
        anchors = context._replace(placement="uniform").anchors(empty, sizes.r)
    else:
        # Points are placed among the inputs, and mapped through the untrained network.
        places = context.anchors(context.x, sizes.r)
        with torch.no_grad():
            anchors = backbone(places)
    return InducingBasis(anchors, backbone, jitter=sizes.jitter)


def dense_basis(
    sizes: Architecture,
    _context: PlacementContext,
    left_out: int = 0,
    kind: Callable[..., Basis] = DenseBasis,
) -> Basis:
    """Return a dense SiLU layer on a network of the inputs, without the last `left_out`.

    `kind`: another basis instead, with the arguments of `DenseBasis`.
    """
    return kind(_backbone(sizes, left_out), sizes.h, sizes.r).to(sizes.torch_dtype)


def field_basis(sizes: Architecture, context: PlacementContext) -> Basis:
    """Return a dense SiLU layer on a network, and linear functions of the covariates, if any."""
    covariates, shown = sizes.used_covariates, sizes.used_providers
    basis = dense_basis(sizes, context, covariates - shown)
    return DriftBasis(basis, covariates, shown).to(sizes.torch_dtype) if covariates else basis


def network_basis(sizes: Architecture, _context: PlacementContext) -> NetworkBasis:
    """Return a plain network as a basis."""
    return NetworkBasis(_backbone(sizes), sizes.h)


def last_layer_basis(sizes: Architecture, _context: PlacementContext) -> LastLayerBasis:
    """Return the last-layer features of a network with `blocks` hidden layers of width h."""
    network = Mlp(len(sizes.used), sizes.h, sizes.blocks)
    return LastLayerBasis(network, sizes.h).to(sizes.torch_dtype)


def anchored(make_kernel: Callable[[Architecture], Kernel]) -> MakeBasis:
    """Return a function that makes a Nyström basis of a kernel."""

    def make(sizes: Architecture, context: PlacementContext) -> AnchorBasis:
        anchors = torch.zeros(sizes.r, len(sizes.used), dtype=sizes.torch_dtype)
        basis = AnchorBasis(make_kernel(sizes), anchors, jitter=sizes.jitter)
        if context.x is not None:
            pair = basis.covariance, basis.variance
            chosen = place_anchors(context.x, sizes.r, context.placement, context.generator, pair)
            basis.anchors.copy_(chosen)
        return basis

    return make


def mixed_kernel(sizes: Architecture) -> Kernel:
    """Return the mixed kernel, which has six parameters."""
    return MixedKernel(dtype=sizes.torch_dtype)


def network_kernel(activation: str, *, own_scale: bool = True) -> Callable[[Architecture], Kernel]:
    """Return a maker of a network's kernel; without `own_scale`, the readout variance stays 1."""

    def make(sizes: Architecture) -> Kernel:
        kernel = NetworkKernel(sizes.blocks, activation, dtype=sizes.torch_dtype)
        kernel.log_readout.requires_grad = own_scale
        return kernel

    return make
