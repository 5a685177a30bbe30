"""The optimisers without PyTorch's compiler: the same steps, and no import of the compiler."""

import subprocess
import sys

import pytest
import torch

from geogp.models.fitting.optimisers import LBFGS, AdamW

FIT = """
import sys
import numpy as np
from geogp import FieldGP
from geogp.models.fitting import few_rows

few_rows.FOLDS = 3
random = np.random.default_rng(0)
x = random.uniform(0, 9, (60, 2))
FieldGP(crs=None, epochs=1, rank=8).fit(x, x[:, 0] + random.standard_normal(60))
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(
    ("own", "theirs", "options"),
    [
        (AdamW, torch.optim.AdamW, {"lr": 0.1, "fused": True}),
        (LBFGS, torch.optim.LBFGS, {"line_search_fn": "strong_wolfe", "max_iter": 3}),
    ],
)
def test_steps_are_those_of_pytorch(own, theirs, options):
    found = []
    for kind in (own, theirs):
        value = torch.tensor([3.0, -2.0]).requires_grad_()
        optimiser = kind([value], **options)

        def closure(value=value, optimiser=optimiser):
            optimiser.zero_grad()
            loss = (value - torch.tensor([1.0, 5.0])).pow(4).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimiser.step(closure)
            optimiser.load_state_dict(optimiser.state_dict())
        assert value.requires_grad
        assert value.grad_fn is None
        found.append(value.detach())
    assert torch.equal(*found)
    assert (found[0] - torch.tensor([3.0, -2.0])).abs().min() > 0.1


def test_a_fit_does_not_import_the_compiler():
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
