"""The kernel's exponent is a difference of large numbers only if the rows are far from 0."""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF

from geogp.models.process.rbf import rbf


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
def test_an_offset_of_all_rows_changes_nothing(offset):
    random = np.random.default_rng(0)
    # Powers of 2, so that the rows themselves are not rounded by the offset.
    a, b = np.round(random.uniform(-1, 1, (2, 30, 2)) * 2**10) / 2**10
    found = rbf(
        torch.from_numpy(a + offset), torch.from_numpy(b + offset), torch.tensor(1.7).double()
    )
    expected = 1.7 * RBF(1.0)(a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if offset == 1e8 else 1e-7)
