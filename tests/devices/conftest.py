"""Shared by the tests on the second device."""

import pytest

from geogp.models.field import field_model, per_place
from geogp.models.training import training_loop


@pytest.fixture
def padding_of_a_gpu(monkeypatch) -> None:
    """Let the CPU divide and pad rows as a GPU; sums in another order have other last digits."""
    monkeypatch.setattr(per_place, "SHARES", 1)
    monkeypatch.setattr(field_model, "PARTS", 1)
    monkeypatch.setattr(field_model, "PART", 10**6)
    monkeypatch.setattr(training_loop, "is_deferred", lambda _: True)
