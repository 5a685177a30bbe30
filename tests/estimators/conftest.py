"""Fits that these tests make are quick: other tests look at start values and errors."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(short_field_fits: None) -> None:
    """Shorten the fits of field models."""
