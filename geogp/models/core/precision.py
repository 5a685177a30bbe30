"""The precision of computations: double where it is needed, or single everywhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from geogp.errors import RequestError
from geogp.models.core.options import DOUBLE, PRECISIONS

_CURRENT = ContextVar("_CURRENT", default=DOUBLE)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Fit and predict with a precision inside a ``with`` block.

    Inside a block of single precision, a block of double precision has no effect.

    Parameters
    ----------
    name
        ``double``: the networks are in single precision; kernels, factorisations and variances are
        in double precision. ``single``: all tensors are in single precision. This suits GPUs that
        have few units for double precision. Arrays of NumPy are of float64 in both cases.

    Raises
    ------
    RequestError
        The name is another one.

    Examples
    --------
    >>> import geogp, torch
    >>> with geogp.precision("single"):
    ...     torch.ones(2).double().dtype
    torch.float32
    """
    if name not in PRECISIONS:
        raise RequestError(f"expected the precision double or single, found {name!r}.")
    if name == DOUBLE:
        yield
        return
    token = _CURRENT.set(name)
    try:
        with _Single():
            yield
    finally:
        _CURRENT.reset(token)


def current_precision() -> str:
    """Return the precision of computations here."""
    return _CURRENT.get()


class _Single(TorchFunctionMode):
    """Replaces float64 by float32 in arguments and results of PyTorch, and back in NumPy's arrays.

    `torch.from_numpy` ignores modes, so the models call `torch.as_tensor`. Autograd calls
    hand-written gradients of tensors on a GPU in a thread of its own, where no mode is active;
    there, results may be float64, and autograd converts the gradients.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.__name__
        if name.endswith("_") and not name.endswith("__"):
            return func(*args, **(kwargs or {}))  # changes its first argument
        found = func(*map(_single, args), **{k: _single(v) for k, v in (kwargs or {}).items()})
        if isinstance(found, np.ndarray) and found.dtype == np.float32:
            return found.astype(np.float64)
        return _single(found)


def _single(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        return value.float()
    return torch.float32 if value is torch.float64 else value
