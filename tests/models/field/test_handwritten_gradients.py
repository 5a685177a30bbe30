"""Gradients that are written by hand, against finite differences."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geogp.models.field.measurement import MeasurementLaw
from geogp.models.field.tile_process import TileProcess
from geogp.models.numerics.products import squared_norms
from geogp.models.process.posteriors import VariationalPosterior


def _drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


class _Call(nn.Module):
    """A module whose forward pass is a method of another module."""

    def __init__(self, of: nn.Module, method: str) -> None:
        super().__init__()
        self.of, self.method = of, method

    def forward(self, *given: Any) -> Any:
        return getattr(self.of, self.method)(*given)


def _of_parameters(module: nn.Module, method: str, *given: Any) -> tuple[Callable[..., Any], Any]:
    """Return a method as a function of the used parameters, and the values of these."""
    found = getattr(module, method)(*given)
    loss = sum(part.sum() for part in (found if isinstance(found, tuple) else (found,)))
    values = dict(module.named_parameters())
    gradients = torch.autograd.grad(loss, list(values.values()), allow_unused=True)
    used = [name for name, one in zip(values, gradients, strict=True) if one is not None]
    call = _Call(module, method)

    def function(*now: Tensor) -> Any:
        named = {f"of.{name}": value for name, value in zip(used, now, strict=True)}
        return torch.func.functional_call(call, named, given)

    return function, [values[name].detach().clone().requires_grad_() for name in used]


@pytest.mark.parametrize("between", [False, True])
def test_tile_covariance(between):
    a = 3 * _drawn(2, 4, 3)
    a[:, 3, :2] = a[:, 0, :2]  # the same tile at another time
    b = torch.cat([a[:, :2], _drawn(2, 1, 3)], 1) if between else a
    function, start = _of_parameters(TileProcess(3, torch.float64), "forward", a, b)
    assert len(start) == 3
    assert torch.autograd.gradcheck(function, start)


def test_measurement_law():
    law = MeasurementLaw(3, torch.float64)
    law.take_counts(torch.tensor([[1.0, 1.0], [50.0, 20.0]], dtype=torch.float64))
    counts = torch.tensor([[1.0, 1.0], [7.0, 3.0], [40.0, 20.0]], dtype=torch.float64)
    logs, lifts = law.log_counts(counts), _drawn(3, 3).requires_grad_()
    constant = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *at: law.moments(at[0], logs, at[1]), (lifts, constant))
    function, start = _of_parameters(law, "moments", lifts.detach(), logs, constant.detach())
    assert len(start) == 5
    assert torch.autograd.gradcheck(function, start)
    mean, variance = law.moments(0 * lifts, logs, constant)
    torch.testing.assert_close(mean, 0.7 + law.shift(counts))
    torch.testing.assert_close(variance, law.anywhere(counts))


def test_squared_norms():
    rows = _drawn(4, 3)
    rows[1] = 0.0
    assert torch.autograd.gradcheck(squared_norms, rows.requires_grad_())


def test_divergence_from_the_prior():
    posterior = VariationalPosterior(4, torch.Generator().manual_seed(0), torch.float64)
    assert torch.autograd.gradcheck(*_of_parameters(posterior, "kl"))
