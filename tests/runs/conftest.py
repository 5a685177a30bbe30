"""Runs that these tests make have no pictures; other tests look at those."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(no_pictures: None) -> None:
    """Leave out pictures before a module makes its runs."""
