"""Fits that these tests make are quick: other tests look at start values."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(usual_start: None) -> None:
    """Take the usual start values."""
