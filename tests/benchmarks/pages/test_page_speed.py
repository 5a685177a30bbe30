"""The table of the benchmark of pages."""

import pytest
from benchmark_scripts import load


def test_a_page_without_a_kernel_has_a_row_all_the_same():
    pytest.importorskip("playwright")
    page_speed = load("pages.page_speed")
    page = {
        "page": "finance",
        "bytes": 1_230_000,
        "tiles": 4000,
        "quarters": 2,
        "first_paint_ms": 300,
        "click_ms": 7,
        "slowest_click_ms": 9,
        "threshold_ms": None,
        "kernel_error": None,
    }
    machine = {
        "system": "Linux",
        "cores": 2,
        "python": "3",
        "geogp": "0",
        "torch": "2",
        "load": 0.5,
    }
    text = page_speed.page({"pages": [page], "machine": machine, "repeats": 1, "chromium": "1"})
    cells = text.splitlines()[2].strip("| ").split(" | ")
    assert cells[:4] == ["finance", "4,000", "2", "1.23"]
    assert cells[-1] == "none"
    assert len(cells) == len(page_speed.HEADER)
