"""A plain network, and its gradient by the parameters at each row, in closed form.

"The Rich paper" is Calvo-Ordoñez et al., "Richer Bayesian Last Layers with Subsampled NTK
Features". In that paper, phi^r is the gradient by the last layer, and phi^m is the gradient by all
earlier parameters (equations 5, 6).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from geogp.errors import RequestError
from geogp.models.numerics.threads import chunks
from geogp.models.process.basis_functions import Basis, Features

BASE_WIDTH = 50
"""Width at which the learning rates equal those of Adam on unscaled weights (Rich, C.1)."""


class Mlp(nn.Module):
    """Hidden ReLU layers in the maximal update parametrisation (Yang and Hu 2020).

    With width h, stored weights w and biases b, and a_0 = x, the network computes

    a_1 = relu(√h (w_1 x + b_1)), a_l = relu(w_l a_{l-1} + √h b_l), output a_l / √h.

    With the multipliers √h, 1 and 1/√h, the squared norm of the gradient by each layer is O(1) in
    h. The initial values are w_1, b_1 ~ N(0, 2 / ((d + 1) h)), w_l ~ N(0, 2/h) and b_l = 0. After
    multiplication, they have the variances of a ReLU network whose inputs include a constant. The
    weights of the layer after the network start at 0. Raises RequestError if `layers` is below 1.
    """

    def __init__(self, d: int, h: int, layers: int = 2) -> None:
        super().__init__()
        if layers < 1:
            raise RequestError(f"expected 1 hidden layer (blocks) or more, found {layers}.")
        self.root = math.sqrt(h)
        first = math.sqrt(2 / (d + 1)) / self.root
        later = (math.sqrt(2) / self.root * torch.randn(h, h) for _ in range(layers - 1))
        self.weights = nn.ParameterList([first * torch.randn(h, d), *later])
        starts = [first * torch.randn(h), *(torch.zeros(h) for _ in range(layers - 1))]
        self.biases = nn.ParameterList(starts)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (b, d) to the last hidden activations divided by √h, (b, h)."""
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.relu(self._multiplier(layer) * (x @ w.T) + self.root * b)
        return x / self.root

    def rates(self) -> dict[str, float]:
        """Return the learning rate of each parameter as a multiple of the fit's learning rate.

        Under Adam, the step of a weight, times the multiplier, must be O(1) for the first layer and
        all biases, and O(1/h) for the other weights (Yang, Hu et al. 2022, table 3). So the rates
        are 1 and BASE_WIDTH / h, each divided by the multiplier.
        """
        h = len(self.biases[0])
        rates = {f"biases.{layer}": 1 / self.root for layer in range(len(self.biases))}
        for layer in range(len(self.weights)):
            rates[f"weights.{layer}"] = BASE_WIDTH / h if layer else 1 / self.root
        return rates

    def tangents(self, x: Tensor, readout: Tensor) -> "Tangents":
        """Return the gradients of <readout, (output, 1)> at inputs (c, d); see `Tangents`."""
        readout = readout.detach().double()
        activations, slopes = [x.detach().double()], []
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = self._multiplier(layer) * (activations[-1] @ w.detach().double().T)
            z = z + self.root * b.detach().double()
            activations.append(z.relu())
            slopes.append(z > 0)
        ones = torch.ones(len(x), 1, dtype=torch.float64, device=x.device)
        delta = readout[:-1] / self.root * slopes[-1]
        layers: list[tuple[Tensor, Tensor]] = []
        for layer in reversed(range(len(slopes))):
            inputs = torch.cat([self._multiplier(layer) * activations[layer], self.root * ones], 1)
            layers.append((delta, inputs))
            if layer:
                w = self.weights[layer].detach().double()
                delta = delta @ w * slopes[layer - 1]
        return Tangents(torch.cat([activations[-1] / self.root, ones], 1), tuple(reversed(layers)))

    def _multiplier(self, layer: int) -> float:
        return 1.0 if layer else self.root


class Tangents(NamedTuple):
    """Gradients of the output at c rows, float64.

    `last`: phi^r, the gradient by the weights and the bias of the last layer, (c, r).
    `layers`: two arrays for each hidden layer. The first, (c, h), is the gradient by the layer's
        pre-activations. The second, (c, p), contains the layer's inputs and a constant, times their
        multipliers. The outer product of both arrays is the gradient by the layer's parameters;
        each unit's weights come before its bias. All hidden layers together give phi^m.
    """

    last: Tensor
    layers: tuple[tuple[Tensor, Tensor], ...]

    def block(self, layer: int, units: slice) -> Tensor:
        """Return the columns of phi^m that belong to some units of a layer, (c, units times p)."""
        delta, inputs = self.layers[layer]
        return (delta[:, units, None] * inputs[:, None, :]).flatten(1)


def parameter_blocks(network: Mlp, most: int) -> Iterator[tuple[int, slice, int]]:
    """Yield blocks of at most `most` parameters as (layer, units, number of parameters).

    A block has at least one unit, even if that unit has more parameters.
    """
    for layer, weight in enumerate(network.weights):
        h, inputs = weight.shape
        for units in chunks(h, max(1, most // (inputs + 1))):
            yield layer, units, (units.stop - units.start) * (inputs + 1)


class LastLayerBasis(Basis):
    """phi^r(x) = (z(x), 1), with z (h) the inputs of the last layer (Rich equation 5)."""

    def __init__(self, backbone: Mlp, h: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.rank = h + 1

    def forward(self, x: Tensor) -> Features:
        """Return the features of inputs (b, d); the residual is 0."""
        hidden = self.backbone(x)
        return Features.exact(torch.cat([hidden, torch.ones_like(hidden[:, :1])], 1))
