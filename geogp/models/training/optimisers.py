"""Optimisers by name, and their state as flat tensors for a checkpoint."""

from typing import Any

import torch
from torch import Tensor

from geogp.errors import DataError
from geogp.models.core.lowrank import LowRankGP
from geogp.models.training.schedule import FitSettings

LBFGS_ITERATIONS = 10
"""Iterations of L-BFGS in an epoch."""

LBFGS_HISTORY = 20

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}

_LISTS = ("old_dirs", "old_stps", "ro")
_NUMBERS = ("func_evals", "n_iter", "t", "prev_loss", "H_diag")
_TENSORS = ("d", "prev_flat_grad")


def make_optimiser(model: LowRankGP, settings: FitSettings) -> torch.optim.Optimizer:
    """Return the optimiser named in `settings`, over the parameters that take a gradient."""
    noise_rate = settings.head_rate if settings.noise_rate is None else settings.noise_rate
    groups = {
        "network": {"weight_decay": settings.weight_decay, "rate": 1.0},
        "noise": {"weight_decay": 0.0, "rate": noise_rate},
        "head": {"weight_decay": 0.0, "rate": settings.head_rate},
    }
    own = model.rates()
    parameters: dict[str, dict[float, list[Tensor]]] = {name: {} for name in groups}
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        part = name.split(".", maxsplit=1)[0]
        laws = {"noise", "tiles"}
        kind = "network" if ".backbone." in name else "noise" if part in laws else "head"
        parameters[kind].setdefault(own.get(name, 1.0), []).append(value)
    if settings.optimiser == "lbfgs":
        return torch.optim.LBFGS(
            [value for kind in parameters.values() for found in kind.values() for value in found],
            max_iter=LBFGS_ITERATIONS,
            history_size=LBFGS_HISTORY,
            tolerance_grad=1e-6,
            tolerance_change=1e-8,
            line_search_fn="strong_wolfe",
        )
    filled = [
        {"params": found, **groups[kind], "rate": factor * groups[kind]["rate"]}
        for kind, by_rate in parameters.items()
        for factor, found in by_rate.items()
    ]
    # Fused: one pass over each parameter instead of a dozen small operations.
    return torch.optim.AdamW(filled, lr=settings.learning_rate, fused=True)


def state_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors named ``<parameter>.<entry>``."""
    state = optimiser.state_dict()["state"]
    if not isinstance(optimiser, torch.optim.LBFGS):
        return {f"{at}.{key}": value for at, found in state.items() for key, value in found.items()}
    flat: dict[str, Tensor] = {}
    for key, value in state.get(0, {}).items():
        if key in _LISTS and value:
            flat[f"0.{key}"] = torch.stack(list(value))
        elif key in _NUMBERS:
            flat[f"0.{key}"] = torch.as_tensor(value, dtype=torch.float64).cpu()
        elif key in _TENSORS and value is not None:
            flat[f"0.{key}"] = value
    return flat


def restore_state(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    """Restore a state from `state_tensors`.

    Raises DataError, LookupError, RuntimeError or ValueError: it belongs to other parameters.
    """
    whole = optimiser.state_dict()
    if isinstance(optimiser, torch.optim.LBFGS):
        state = {0: _lbfgs_state(flat)} if flat else {}
    else:
        state = {}
        for name, value in flat.items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({**whole, "state": state})
    if not isinstance(optimiser, torch.optim.LBFGS):
        for parameter, found in optimiser.state.items():
            shapes = {key: () if key == "step" else parameter.shape for key in _MOMENTS}
            if {key: value.shape for key, value in found.items()} != shapes:
                raise ValueError("the state of the optimiser is not that of its parameters")


def _lbfgs_state(flat: dict[str, Tensor]) -> dict[str, Any]:
    found = {name.removeprefix("0."): value for name, value in flat.items()}
    if found.keys() == {"func_evals", "n_iter"}:
        # It began at an optimum and took no step.
        return {name: int(value) for name, value in found.items()}
    try:
        dtype = found["d"].dtype
        numbers = {
            "func_evals": int(found["func_evals"]),
            "n_iter": int(found["n_iter"]),
            "t": float(found["t"]),
            "prev_loss": float(found["prev_loss"]),
            "H_diag": found["H_diag"].to(found["d"].device, dtype),
        }
    except KeyError as error:
        raise DataError(
            f"the checkpoint lacks {error} of its optimiser's state. Start over with --fresh."
        ) from None
    lists = {key: list(found[key].unbind()) if key in found else [] for key in _LISTS}
    return {
        **numbers,
        **{key: found[key] for key in _TENSORS},
        **lists,
        "al": [None] * LBFGS_HISTORY,
    }
