"""What a user may hand over as numbers."""

import numpy as np
import pytest
import torch

from geogp.errors import DataError
from geogp.models.numerics.arrays import as_floats


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]], np.int8),
        np.array([[1, 2], [3, 4]], np.float16),
        np.array([[1, 3], [2, 4]], np.uint64).T,
        torch.tensor([[1, 2], [3, 4]], dtype=torch.float32),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.float64),
        torch.tensor([[1, 2], [3, 4]]),
    ],
)
def test_real_numbers_of_any_kind_become_float64(values):
    found = as_floats(values, "inputs")
    assert found.dtype == np.float64
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


def test_an_array_that_fits_is_not_copied():
    given = np.ones((3, 2))
    assert as_floats(given, "inputs") is given


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.nan, np.inf], "finite speeds, found NaN or infinite values in 2 of 3 places"),
        (["1", "2"], "speeds to be real numbers, found dtype <U1"),
        (np.array([1j]), "found dtype complex128"),
        (torch.ones(2) + 0j, "found dtype complex64"),
        (np.array([True]), "found dtype bool"),
        (None, "finite speeds, found NaN or infinite values in 1 of 1 places"),
        (np.array([None, 1.0]), "finite speeds, found NaN or infinite values in 1 of 2 places"),
        (np.array([{}, 1.0]), "speeds to be numbers, found other objects, such as {}"),
        ([[1.0], [1.0, 2.0]], "speeds to be an array"),
        (np.ma.masked_array(np.zeros(3), [0, 1, 0]), "without a mask"),
        (torch.ones(2, requires_grad=True), "without a gradient, found a tensor on cpu"),
        (torch.ones(2, device="meta"), r"CPU's memory .* meta; pass values\.det"),
        (torch.zeros(3, dtype=torch.bfloat16), "dense tensor of numbers, found torch.bfloat16"),
        (torch.zeros(3).to_sparse(), "sparse"),
    ],
)
def test_others_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        as_floats(values, "speeds")
