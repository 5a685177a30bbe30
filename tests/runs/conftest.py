"""Runs that these tests make are quick: other tests look at pictures and at start values."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(no_pictures: None, usual_start: None) -> None:
    """Leave out pictures, and take the usual start values, before a module makes its runs."""
