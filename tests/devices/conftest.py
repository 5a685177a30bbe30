"""Shared by the tests on the second device, which compare its numbers with those of the CPU."""

import pytest

from geogp.models.field import conditioning, predictive_law
from geogp.models.field import fit as field_fit
from geogp.models.fitting import loop as training_loop
from geogp.models.process import rbf_readers


@pytest.fixture(autouse=True)
def products_of_a_gpu(monkeypatch) -> None:
    """Let the CPU multiply in the precision of a GPU when it predicts few rows."""
    monkeypatch.setattr(rbf_readers, "searches", lambda *_: False)


@pytest.fixture
def padding_of_a_gpu(monkeypatch) -> None:
    """Let the CPU divide and pad rows as a GPU; sums in another order have other last digits."""
    monkeypatch.setattr(field_fit, "SHARES", 1)
    monkeypatch.setattr(conditioning, "MIN_PIECES", 1)
    monkeypatch.setattr(conditioning, "PIECE", 10**6)
    monkeypatch.setattr(training_loop, "is_deferred", lambda _: True)


@pytest.fixture(autouse=True)
def short_fits_of_errors(monkeypatch) -> None:
    """Let the field model fit its errors in few iterations, which the CPU makes in any case."""
    monkeypatch.setattr(predictive_law, "ITERATIONS", 3)
