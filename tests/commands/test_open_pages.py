"""`geogp open`: the pages of a run, in a browser if there is one."""

import json
import shutil
import webbrowser

import pytest


@pytest.fixture
def opened(monkeypatch):
    """The addresses that a browser got."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not addresses.append(address))
    return addresses


def test_the_map_opens_and_both_paths_are_printed(finished, geogp, opened, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    page, report = (finished.path.resolve() / name for name in ("map.html", "report.html"))
    assert geogp("open", finished.path)[:2] == (0, f"map:    {page}\nreport: {report}\n")
    assert opened == [page.as_uri()]
    code, out, _ = geogp("open", finished.path, "--print", "--json")
    assert (code, json.loads(out)) == (
        0,
        {"map": str(page), "report": str(report), "opened": False},
    )
    assert len(opened) == 1


def test_without_a_display_no_browser_starts(finished, geogp, opened, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    code, out, _ = geogp("open", finished.path)
    assert code == 0
    assert "map.html" in out
    assert opened == []


def test_a_folder_without_run_or_pages_is_refused(finished, geogp, tmp_path):
    copy = shutil.copytree(finished.path, tmp_path / "PR-mobile")
    (copy / "map.html").unlink()
    assert geogp("open", copy)[1] == f"report: {copy / 'report.html'}\n"
    (copy / "report.html").unlink()
    code, _, said = geogp("open", copy)
    assert code == 2
    assert "has neither map.html nor report.html" in said
    (tmp_path / "other").mkdir()
    code, _, said = geogp("open", tmp_path / "other")
    assert code == 2
    assert "is not a finished run: expected run.json" in said
