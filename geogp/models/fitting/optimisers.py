"""Optimisers, the average of a model's parameters, and the states of both in checkpoints.

Every state is checked when it is read: the hash of a checkpoint shows that the file was not
changed, but not that the content is correct.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor

from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.steps import SteppedFit
from geogp.models.process.process import Process

LBFGS_ITERATIONS = 10
"""Number of L-BFGS iterations in an epoch."""

LBFGS_HISTORY = 20
"""Number of earlier iterations from which L-BFGS estimates the curvature."""

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
"""Entries of the state of a parameter in `AdamW`."""

_LISTS = ("old_dirs", "old_stps", "ro")
"""Entries of the state of L-BFGS that are lists of tensors."""


class _NotCompiled(torch.optim.Optimizer):
    """An optimiser without `torch.compile`, whose import takes longer than that of PyTorch.

    PyTorch imports this compiler to hide some methods of its optimisers from the compiler.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(_NotCompiled, torch.optim.AdamW):
    """The optimiser `torch.optim.AdamW`, which starts faster."""

    @torch.no_grad()
    def step(self, *arguments: Any, **options: Any) -> Any:
        """Make one step; return the loss of the closure, if there is one."""
        return unwrap(torch.optim.AdamW.step)(self, *arguments, **options)


class LBFGS(_NotCompiled, torch.optim.LBFGS):
    """The optimiser `torch.optim.LBFGS`, which starts faster."""

    step: Callable[..., Any]


def make_optimiser(fit: SteppedFit[Any], settings: FitSettings) -> torch.optim.Optimizer:
    """Return the optimiser named in `settings`, for the parameters that require a gradient."""
    model, rates = fit.process, fit.rates()
    noise_rate = settings.head_rate if settings.noise_rate is None else settings.noise_rate
    groups = {
        "network": {"weight_decay": settings.weight_decay, "rate": 1.0},
        "noise": {"weight_decay": 0.0, "rate": noise_rate},
        "head": {"weight_decay": 0.0, "rate": settings.head_rate},
    }
    parameters: dict[str, dict[float, list[Tensor]]] = {name: {} for name in groups}
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        is_law = name.split(".", maxsplit=1)[0] in {"noise", "tiles"}
        kind = "network" if ".backbone." in name else "noise" if is_law else "head"
        parameters[kind].setdefault(rates.get(name, 1.0), []).append(value)
    if settings.optimiser == "lbfgs":
        return LBFGS(
            [
                value
                for by_rate in parameters.values()
                for values in by_rate.values()
                for value in values
            ],
            max_iter=LBFGS_ITERATIONS,
            history_size=LBFGS_HISTORY,
            tolerance_grad=1e-6,
            tolerance_change=1e-8,
            line_search_fn="strong_wolfe",
        )
    # A recorded step (see `RecordedStep`) reads its rate on the device, with CUDA as float32.
    dtype = torch.float32 if model.device.type == "cuda" else torch.float64
    rate = torch.full((), settings.learning_rate, dtype=dtype, device=model.device)
    filled = [
        {
            "params": values,
            **groups[kind],
            "rate": factor * groups[kind]["rate"],
            "lr": rate.clone(),
        }
        for kind, by_rate in parameters.items()
        for factor, values in by_rate.items()
    ]
    # The fused optimiser needs one pass over each parameter instead of a dozen small operations.
    return AdamW(filled, fused=True)


def state_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors named ``<parameter>.<entry>``."""
    flat: dict[str, Tensor] = {}
    for at, entries in optimiser.state_dict()["state"].items():
        for key, value in entries.items():
            if key in _LISTS and value:
                flat[f"{at}.{key}"] = torch.stack(list(value))
            elif not isinstance(value, list) and value is not None:
                flat[f"{at}.{key}"] = torch.as_tensor(value)
    return flat


def restore_state(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor], epoch: int) -> None:
    """Restore a state from `state_tensors` after `epoch` epochs.

    Raises LookupError, RuntimeError or ValueError if the state does not fit the parameters.
    """
    if epoch and not flat:
        raise ValueError("found no state of the optimiser")
    state: dict[int, dict[str, Any]] = {}
    for name, value in flat.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    is_lbfgs = isinstance(optimiser, torch.optim.LBFGS)
    if is_lbfgs:
        state = {index: _lbfgs_state(entries) for index, entries in state.items()}
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    if not is_lbfgs:
        for parameter, entries in optimiser.state.items():
            shapes = {key: () if key == "step" else parameter.shape for key in _MOMENTS}
            if {key: value.shape for key, value in entries.items()} != shapes:
                raise ValueError("the state of the optimiser does not match its parameters")


def _lbfgs_state(entries: dict[str, Tensor]) -> dict[str, Any]:
    """Return the state of L-BFGS; raise KeyError if an entry is missing."""
    state: dict[str, Any] = {key: int(entries[key]) for key in ("func_evals", "n_iter")}
    if entries.keys() == state.keys():
        return state  # The fit began at an optimum and took no step.
    state |= {key: float(entries[key]) for key in ("t", "prev_loss")}
    state |= {key: entries[key].to(entries["d"]) for key in ("d", "prev_flat_grad", "H_diag")}
    state |= {key: list(entries[key].unbind()) if key in entries else [] for key in _LISTS}
    return {**state, "al": [None] * LBFGS_HISTORY}


class ParameterAverage:
    """Exponential average of a model's parameters over about `span` steps, or none if 0."""

    def __init__(self, model: Process, span: float) -> None:
        self.span = span
        self.parameters = [value.detach() for value in model.parameters()] if span else []
        self.values = [value.clone() for value in self.parameters]
        self.count = torch.zeros((), dtype=torch.float64)

    def update(self) -> None:
        """Add the parameters after a step to the average."""
        if self.span:
            self.count += 1
            share = max(1 / self.span, 9 / (10 + float(self.count)))
            torch._foreach_lerp_(self.values, self.parameters, min(share, 1.0))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Set the model's parameters to their average inside the ``with`` block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for parameter, value in zip(self.parameters, self.values, strict=True):
            former = parameter.clone()
            parameter.copy_(value)
            value.copy_(former)

    def tensors(self) -> dict[str, Tensor]:
        """Return the average as tensors for `load`."""
        values = {str(index): value for index, value in enumerate(self.values)}
        return {**values, "count": self.count} if values else {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from an earlier average; raise ValueError if its number of steps is wrong."""
        check_alike(tensors, self.tensors())
        if self.values and not 0 <= float(tensors["count"]) < math.inf:
            raise ValueError("the number of steps of the average is negative or not finite")
        for index, value in enumerate(self.values):
            value.copy_(tensors[str(index)])
        if self.values:
            self.count.copy_(tensors["count"])


def checked_state(described: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Check the description of a `FitState` of a fit with `epochs` epochs, and return it.

    Raises ValueError, TypeError or KeyError if its numbers contradict each other or are not finite.
    The best score may be inf before the first epoch; all other numbers must be finite.
    """
    epoch, best = described["epoch"], described["best_epoch"]
    losses, scores = described["losses"], described["validation_nll"]
    numbers = (*losses, *scores, described["best_nll"], described["seconds"])
    if (
        any(type(value) is not int for value in (epoch, best))
        or any(type(value) not in {int, float} for value in numbers)
        or not all(math.isfinite(value) for value in (*losses, *scores, described["seconds"]))
        or not described["best_nll"] > -math.inf
        or not 0 <= best <= epoch <= epochs
        or not epoch == len(losses) == len(scores)
    ):
        raise ValueError("epochs and scores contradict each other or are out of range")
    return described


def check_alike(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Raise ValueError if the names or shapes of two sets of tensors differ."""
    shapes = [{k: value.shape for k, value in tensors.items()} for tensors in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError("names or shapes of tensors differ from the model's tensors")
