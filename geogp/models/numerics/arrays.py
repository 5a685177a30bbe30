"""Converts a user's arrays to float64, and checks counts."""

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.arguments import numbers_of
from geogp.errors import DataError

ROUNDING = 1e-9
"""Largest relative difference of counts that is treated as a rounding error."""


def as_floats(values: object, what: str) -> NDArray[np.float64]:
    """Return an array, a list or a CPU tensor as a float64 array of the same shape.

    A float64 array is not copied. `what` names `values` in messages. Raises DataError if a value is
    not a finite real number, is masked, or is on another device.
    """
    if isinstance(values, torch.Tensor):
        values = _on_cpu(values, what)
    array = numbers_of(values, what)
    # torch shares the memory of an array, so an array that is not contiguous or writeable is
    # copied.
    floats = np.require(array, np.float64, ["C", "W"])
    bad = ~np.isfinite(floats)
    if bad.any():
        raise DataError(
            f"expected finite {what}, found NaN or infinite values in {int(bad.sum())} of "
            f"{floats.size} places."
        )
    return floats


def as_inputs(values: object, d: int) -> NDArray[np.float64]:
    """Return inputs (n, d) by `as_floats`; also raise DataError unless they have this shape."""
    inputs = as_floats(values, "inputs")
    if inputs.ndim != 2 or inputs.shape[1] != d or not len(inputs):
        raise DataError(f"expected inputs of shape (n, {d}) with n >= 1, found {inputs.shape}.")
    return inputs


def check_devices(devices: NDArray[np.float64], tests: NDArray[np.float64]) -> None:
    """Raise DataError if a row has more devices than tests, by more than rounding."""
    wrong = devices > tests * (1 + ROUNDING)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            "expected no more devices than tests, because each test comes from one device; found "
            f"more devices in {int(wrong.sum())} of {wrong.size} rows, the first in row {row} with "
            f"{devices[row]:g} devices and {tests[row]:g} tests. A row without a number of tests "
            "counts as one test."
        )


def _on_cpu(values: torch.Tensor, what: str) -> object:
    if values.device.type != "cpu" or values.requires_grad:
        raise DataError(
            f"expected {what} in the CPU's memory without a gradient, found a tensor on "
            f"{values.device}; pass values.detach().cpu()."
        )
    try:
        return values.numpy()
    except TypeError:
        kind = f"{values.dtype}, {values.layout}"
        raise DataError(f"expected {what} as a dense tensor of numbers, found {kind}.") from None
