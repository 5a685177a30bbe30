"""Arrays of a user's making, as float64 or refused."""

import numpy as np
import torch
from numpy.typing import NDArray

from geogp.errors import DataError


def as_floats(values: object, what: str) -> NDArray[np.float64]:
    """Return finite real numbers as a float64 array of the same shape.

    Parameters
    ----------
    values
        An array, a list, or a tensor on the CPU, of real numbers of any dtype.
    what
        What the values are, for the message.

    Raises
    ------
    DataError
        Not real numbers, on another device, or not finite.
    """
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu" or values.requires_grad:
            raise DataError(
                f"expected {what} in the CPU's memory without a gradient, found a tensor on "
                f"{values.device}; pass values.detach().cpu()."
            )
        values = values.numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"expected {what} to be an array, found {error}.") from None
    if array.dtype.kind not in "iuf":
        raise DataError(f"expected {what} to be real numbers, found dtype {array.dtype}.")
    floats = array.astype(np.float64, copy=False)
    bad = ~np.isfinite(floats)
    if bad.any():
        raise DataError(
            f"expected finite {what}, found NaN or infinite values in {int(bad.sum())} of "
            f"{floats.size} places."
        )
    return floats
