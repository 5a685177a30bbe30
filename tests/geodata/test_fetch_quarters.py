"""What is said of several quarters that were brought here."""

from pathlib import Path

import pytest

from geogp.geodata.store.fetch_quarters import HeldQuarters
from geogp.geodata.store.sources import Held

HELD = {8080: Held(Path("x.parquet"), simulated=False)}


@pytest.mark.parametrize(
    ("where", "warned"),
    [
        ("http://example.org/x", True),
        ("http://127.0.0.1:9000/x", False),
        ("http://localhost/x", False),
        ("https://example.org/x", False),
        ("/a/folder", False),
    ],
)
def test_what_comes_without_tls_is_said(where, warned):
    told = HeldQuarters(HELD, {}).warnings(where)
    assert ["is read without TLS" in text for text in told] == [True] * warned
    assert HeldQuarters({}, {}).warnings(where) == []
