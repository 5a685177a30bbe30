"""What is said of several quarters that were brought here."""

from pathlib import Path

import pytest

from geogp.geodata.store.fetch_quarters import QuarterFiles
from geogp.geodata.store.sources import LocalFile

HELD = {8080: LocalFile(Path("x.parquet"), simulated=False)}


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
    told = QuarterFiles(HELD, {}).warnings(where)
    assert ["is read without TLS" in text for text in told] == [True] * warned
    assert QuarterFiles({}, {}).warnings(where) == []
