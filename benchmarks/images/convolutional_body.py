"""A small convolutional network below the last layer of the models of classes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from geogp.models.catalogue.build import build
from geogp.models.papers.classes.softmax_layers import SoftmaxLayer
from geogp.models.papers.last_layers.tangents import BASE_WIDTH, LastLayerBasis
from geogp.models.process.architecture import Architecture

SIDE = 28
"""Pixels of a side of an image."""

KERNEL, STRIDE, PADDING = 5, 2, 2
"""Width, stride and padding of the convolutions."""


class ConvolutionalBody(nn.Module):
    """Two convolutions and a dense layer of h units, with the methods and multipliers of `Mlp`.

    A layer has weights (units, inputs of a unit) and biases (units,). The units of a convolution
    are its channels. The first weights have the multiplier √channels, the other weights 1, and the
    biases √units; the last activations are divided by √h. The initial values are those of `Mlp`,
    with the inputs of a unit in place of h. Images (b, 784) have values from -1, the background.

    `dropped`: dropout rates of the units before the dense layer, and of the last units. Dropout
    stays on in predictions.
    """

    def __init__(
        self,
        channels: tuple[int, int] = (8, 16),
        h: int = 64,
        dropped: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        super().__init__()
        self.root, self.dropped = math.sqrt(h), dropped
        inputs = (KERNEL**2, channels[0] * KERNEL**2, channels[1] * (SIDE // STRIDE**2) ** 2)
        starts = [
            torch.randn(units, p) * math.sqrt(2 / p) / (1.0 if layer else math.sqrt(units))
            for layer, (units, p) in enumerate(zip((*channels, h), inputs, strict=True))
        ]
        self.weights = nn.ParameterList(starts)
        self.biases = nn.ParameterList(torch.zeros(len(start)) for start in starts)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (b, 784) to the last hidden activations divided by √h, (b, h)."""
        return self._layers(x)[0]

    def rates(self) -> dict[str, float]:
        """Return the learning rate of each parameter as a multiple of the fit's learning rate."""
        rates = {f"biases.{k}": 1 / math.sqrt(len(b)) for k, b in enumerate(self.biases)}
        for k, w in enumerate(self.weights):
            rates[f"weights.{k}"] = BASE_WIDTH / w.shape[1] if k else 1 / math.sqrt(len(w))
        return rates

    def tangents(self, x: Tensor, readout: Tensor) -> "Tangents":
        """Return the gradients of <readout, (output, 1)> at images (c, 784), float64."""
        with torch.enable_grad():
            hidden, inputs, values = self._layers(x.double())
            total = (hidden @ readout[:-1].double()).sum()
        last = torch.cat([hidden.detach(), torch.ones_like(hidden[:, :1])], 1)
        return Tangents(last, total, inputs, values)

    def _layers(self, x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output, and the inputs and pre-activations of each layer."""
        a = x.view(-1, 1, SIDE, SIDE) + 1  # 0 is the background, and the padding
        inputs, values = [], []
        for k, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            root = math.sqrt(len(b))
            weights, bias = w.to(x.dtype), root * b.to(x.dtype)
            if k < 2:
                kernels = (weights if k else root * weights).view(len(w), -1, KERNEL, KERNEL)
                z = functional.conv2d(a, kernels, bias, stride=STRIDE, padding=PADDING)
            else:
                a = functional.dropout(a.flatten(1), self.dropped[0])
                z = a @ weights.T + bias
            inputs.append(a)
            values.append(z)
            a = torch.relu(z)
        return functional.dropout(a, self.dropped[1]) / self.root, inputs, values


@dataclass(frozen=True)
class Tangents:
    """Gradients at c rows, with the methods of `geogp.models.papers.last_layers.tangents.Tangents`.

    `last`: phi^r, (c, h + 1). `total`: the sum of the outputs. `inputs`, `values`: inputs and
    pre-activations of each layer. A row's pre-activations change the output of that row only, so
    the gradient of the sum contains the gradient of each row.
    """

    last: Tensor
    total: Tensor
    inputs: list[Tensor]
    values: list[Tensor]

    def block(self, layer: int, units: slice) -> Tensor:
        """Return the columns of phi^m that belong to some units of a layer, (c, units times p).

        A convolution has the same weights at s places: the gradient is the sum over the places of
        the outer products of (units, s) and (inputs of a unit and a constant, s).
        """
        (delta,) = torch.autograd.grad(self.total, self.values[layer], retain_graph=True)
        patches, root = self.inputs[layer].detach(), math.sqrt(delta.shape[1])
        if layer < 2:
            patches = functional.unfold(patches, KERNEL, padding=PADDING, stride=STRIDE)
        else:
            patches = patches[..., None]
        constant = torch.full_like(patches[:, :1], root)
        scaled = torch.cat([patches if layer else root * patches, constant], 1)
        slopes = delta.reshape(*delta.shape[:2], -1)[:, units]
        return (slopes @ scaled.mT).flatten(1)


def with_body(
    model: str, seed: int, dropped: tuple[float, float] = (0.0, 0.0), h: int = 64
) -> SoftmaxLayer:
    """Return an untrained model of ten classes whose network is a `ConvolutionalBody`.

    Dropout in the fit and in predictions draws from PyTorch's global generator, seeded here.
    """
    made = build(model, Architecture(SIDE**2, h, classes=10), None, seed=seed)
    torch.manual_seed(seed)
    made.basis = LastLayerBasis(ConvolutionalBody(h=h, dropped=dropped), h)
    return made
