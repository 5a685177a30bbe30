"""The models by name: each row is a basis, a posterior and an objective."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from geogp.errors import RequestError
from geogp.models.bases import Backbone, InducingBasis, Placement, place_anchors
from geogp.models.lowrank import Architecture, LowRankGP
from geogp.models.noise import ConstantNoise
from geogp.models.objectives import Objective, dppgp, elbo
from geogp.models.posteriors import VariationalPosterior

MakeBasis = Callable[[Architecture, Tensor | None, Placement, torch.Generator], nn.Module]


@dataclass(frozen=True)
class ModelSpec:
    """A row of the catalogue.

    Attributes
    ----------
    name
        As on the command line.
    basis
        Makes the basis from sizes, training inputs (None when a saved model is restored) and
        the placement of inducing points.
    objective
        What training minimises.
    diagonal
        Whether k~(x, x) - ||phi||² (DBK equation 4) counts in the predictive variance.
    summary
        One line.
    """

    name: str
    basis: MakeBasis
    objective: Objective
    diagonal: bool
    summary: str


def build(
    name: str,
    architecture: Architecture,
    x: Tensor | None,
    *,
    placement: Placement = "kmeans",
    seed: int = 0,
) -> LowRankGP:
    """Make an untrained model.

    Parameters
    ----------
    name
        A name of the catalogue.
    architecture
        Sizes.
    x
        Training inputs (n, d), over which inducing points are placed; None leaves them at
        random, for a model whose tensors are loaded next.
    placement
        How inducing points are chosen; see `place_anchors`.
    seed
        Fixes all initial values.

    Raises
    ------
    RequestError
        No such name; the nearest ones are given.
    """
    spec = find_spec(name)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        basis = spec.basis(architecture, x, placement, generator)
    dtype = architecture.torch_dtype
    return LowRankGP(
        name,
        architecture,
        basis=basis,
        posterior=VariationalPosterior(architecture.r, generator, dtype),
        noise=ConstantNoise(dtype),
        diagonal=spec.diagonal,
    )


def find_spec(name: str) -> ModelSpec:
    """Return a row of the catalogue by its name.

    Raises
    ------
    RequestError
        No such name; the nearest ones are given.
    """
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.3) or list(CATALOGUE)
        raise RequestError(
            f"unknown model {name!r}. Nearest: {', '.join(near)}. `geogp models` lists all."
        )
    return CATALOGUE[name]


def _plain_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    x = x if x is not None else torch.zeros(1, sizes.d, dtype=sizes.torch_dtype)
    anchors = place_anchors(x.to(sizes.torch_dtype), sizes.r, placement, generator)
    return InducingBasis(anchors, jitter=sizes.jitter)


def _deep_basis(
    sizes: Architecture, x: Tensor | None, placement: Placement, generator: torch.Generator
) -> InducingBasis:
    backbone = Backbone(sizes.d, sizes.h, sizes.blocks).to(sizes.torch_dtype)
    if x is None or placement == "uniform":
        empty = torch.zeros(1, sizes.h, dtype=sizes.torch_dtype)
        anchors = place_anchors(empty, sizes.r, "uniform", generator)
    else:
        # Points spread over the inputs, seen through the untrained network.
        places = place_anchors(x.to(sizes.torch_dtype), sizes.r, placement, generator)
        with torch.no_grad():
            anchors = backbone(places)
    return InducingBasis(anchors, backbone, jitter=sizes.jitter)


_ROWS = (
    ModelSpec(
        "dbk-rbf",
        _deep_basis,
        dppgp,
        diagonal=False,
        summary="deep basis kernel: inducing points under an RBF on a network, dPPGP",
    ),
    ModelSpec(
        "sv-rbf",
        _plain_basis,
        elbo,
        diagonal=True,
        summary="sparse variational GP: inducing points under an RBF on the inputs, ELBO",
    ),
    ModelSpec(
        "sv-dkl",
        _deep_basis,
        elbo,
        diagonal=True,
        summary="sparse deep kernel learning: inducing points under an RBF on a network, ELBO",
    ),
)

CATALOGUE: dict[str, ModelSpec] = {row.name: row for row in _ROWS}
"""All models that can be fitted, by name."""
