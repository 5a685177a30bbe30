"""The precision of computations: double where it is needed, or single everywhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from geogp.arguments import checked_arguments
from geogp.errors import RequestError
from geogp.models.options import DOUBLE, PRECISIONS, SINGLE

_CURRENT = ContextVar("_CURRENT", default=DOUBLE)
"""The precision of computations here; each thread has its own value."""


@checked_arguments
@contextmanager
def precision(name: str) -> Iterator[None]:
    """Fit and predict with a precision inside a ``with`` block.

    Parameters
    ----------
    name
        ``double``: the networks are in single precision; kernels, factorisations and variances are
        in double precision. ``single``: all tensors are in single precision. This suits GPUs that
        have few units for double precision. Arrays of NumPy are of float64 in both cases.

    Raises
    ------
    RequestError
        The name is another one. In double precision, a model that was fitted in single precision
        raises it too, until it is saved and loaded.

    Examples
    --------
    >>> import geogp, torch
    >>> with geogp.precision("single"):
    ...     torch.ones(2).double().dtype
    torch.float32
    """
    if name not in PRECISIONS:
        raise RequestError(f"expected the precision double or single, found {name!r}.")
    if name == current_precision():
        yield
        return
    token = _CURRENT.set(name)
    try:
        with _Single() if name == SINGLE else torch._C.DisableTorchFunction():  # noqa: SLF001
            yield
    finally:
        _CURRENT.reset(token)


def current_precision() -> str:
    """Return the precision of computations here."""
    return _CURRENT.get()


def check_precision(value: Tensor) -> None:
    """Raise RequestError if a model was made in single precision, as one of its tensors shows."""
    if value.dtype == torch.float32 and current_precision() == DOUBLE:
        raise RequestError(
            "the model was fitted in single precision, and here it is used in double precision. "
            'Use it inside `with geogp.precision("single"):`, or save and load it.'
        )


class _Single(TorchFunctionMode):
    """Replaces float64 by float32 in arguments and results of PyTorch, and back in NumPy's arrays.

    A tensor of float64 that was made outside stays so if it is changed in place.
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
        kwargs = kwargs or {}
        if _reads_or_changes(func.__name__) or "out" in kwargs:
            return func(*args, **kwargs)
        result = func(*map(_single, args), **{k: _single(v) for k, v in kwargs.items()})
        if isinstance(result, np.ndarray) and result.dtype == np.float32:
            return result.astype(np.float64)
        return _single(result)


def _reads_or_changes(name: str) -> bool:
    """Return whether a function reads or sets an attribute of its first argument, or changes it."""
    if name.startswith("__"):
        return name in {"__get__", "__set__", "__setitem__"} or (
            name.startswith("__i") and name not in {"__index__", "__int__", "__invert__"}
        )
    return name.endswith("_")


def _single(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        return value.float()
    return torch.float32 if value is torch.float64 else value
