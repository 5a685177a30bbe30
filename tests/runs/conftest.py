"""Runs that these tests make are quick: other tests look at pictures, start values and errors."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(no_pictures: None, short_field_fits: None) -> None:
    """Leave out pictures, and shorten fits, before a module makes its runs."""
