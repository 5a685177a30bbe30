"""The second device of the tests refuses what a GPU refuses, and counts what costs time on one."""

from collections.abc import Iterator

import pytest
import torch
from benchmark_scripts import load
from torch import nn

_module = load("speed.second_device")
DEVICE, Counts, second_device = _module.DEVICE, _module.Counts, _module.second_device


@pytest.fixture
def counts() -> Iterator[Counts]:
    with second_device() as counted:
        yield counted


@pytest.fixture
def there(counts: Counts) -> torch.Tensor:
    value = torch.arange(6.0).reshape(2, 3).to(DEVICE)
    counts.clear()
    return value


def test_tensors_and_parameters_report_the_device(there):
    assert (
        there.device == (there @ there.T).device == torch.zeros(3, device=DEVICE).device == DEVICE
    )
    layer = nn.Linear(3, 2).to(DEVICE)
    assert {value.device for value in layer.parameters()} == {DEVICE}
    assert layer(there).device == DEVICE


def test_gradients_are_those_of_the_cpu(there):
    def loss(layer, x):
        # The maximum's gradient has zeros that autograd makes, and `double` has a copy.
        return layer(x).clamp(min=0).double().logsumexp(0).max()

    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    loss(layer, there.cpu()).backward()
    here = [value.grad.clone() for value in layer.parameters()]
    layer.zero_grad(set_to_none=True)
    layer.to(DEVICE)
    loss(layer, there).backward()
    for value, expected in zip(layer.parameters(), here, strict=True):
        assert value.grad.device == DEVICE
        assert torch.equal(value.grad.cpu(), expected)


def test_a_differentiable_copy_to_the_cpu_returns_its_gradient(there):
    x = there.detach().requires_grad_()
    (x.cpu() ** 2).sum().backward()
    assert torch.equal(x.grad.cpu(), 2 * there.cpu())


def test_a_gradient_on_the_cpu_stays_there(counts):
    x = torch.ones(3, requires_grad=True)
    x.clamp(min=0).double().max().backward()
    assert x.grad.device.type == "cpu"
    assert not counts.launches


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda t: t + torch.ones(3), r"add: a CPU tensor of shape \(3,\) meets"),
        (lambda t: t[torch.tensor([0])], "index: a CPU tensor"),
        (lambda t: t.numpy(), "cannot convert a tensor on testgpu:0 to NumPy"),
        (
            lambda _: torch.rand(3, device=DEVICE, generator=torch.Generator()),
            "rand: a generator of the CPU",
        ),
        (lambda t: t.normal_(generator=torch.Generator()), "normal_: a generator of the CPU"),
    ],
)
def test_what_a_gpu_refuses_is_refused(refused, message, there):
    with pytest.raises((RuntimeError, TypeError), match=message):
        refused(there)


def test_scalars_of_the_cpu_are_taken(there):
    assert float((there * torch.tensor(2.0)).sum()) == 30.0


@pytest.mark.parametrize(
    ("wait", "cause"),
    [
        (lambda t: float(t.sum()), "item"),
        (lambda t: bool((t > 0).any()), "item"),
        (lambda t: t.cpu(), "copy to the CPU"),
        (lambda t: t.tolist(), "copy to the CPU"),
        (lambda t: torch.ones(2, 3).to(t), "copy to the device"),
        (lambda t: t.copy_(torch.ones(2, 3)), "copy to the device"),
        (lambda t: t[t > 1], "index"),
        (lambda t: t.unique(), "_unique2"),
    ],
)
def test_what_makes_the_host_wait_is_counted(wait, cause, there, counts):
    wait(there)
    assert [name.split(" at ")[0] for name in counts.waits] == [cause]
    assert counts.waits.total() == 1


def test_a_copy_from_locked_memory_lets_the_host_go_on(there, counts):
    for value, waits in ((torch.ones(3), 1), (torch.ones(3).pin_memory(), 0)):
        counts.clear()
        assert value.to(DEVICE, non_blocking=True).device == DEVICE
        assert counts.waits.total() == waits
    counts.clear()
    torch.ones(3).pin_memory().to(DEVICE)
    assert counts.waits.total() == 1


def test_launches_are_counted_without_views(there, counts):
    (there.T[:2].unsqueeze(0) * 2 + 1).sum()
    assert counts.launches == {"mul": 1, "add": 1, "sum": 1}
    assert not counts.waits


def test_settings_of_torch_are_put_back():
    before = torch.autograd.is_multithreading_enabled()
    with second_device():
        pass
    assert torch.autograd.is_multithreading_enabled() == before
    assert not torch.__future__.get_overwrite_module_params_on_conversion()
