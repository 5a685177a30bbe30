"""The command doctor: what it tells, of whom it asks it, and what it must not tell."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from benchmark_scripts import load

from geogp.commands import doctor
from geogp.geodata.tiles.ookla import FIRST_QUARTER
from geogp.geodata.tiles.targets import SERVICES
from geogp.geodata.tiles.tile_files import tile_file
from geogp_cli.entry import run

TILES = tile_file(SERVICES[0], FIRST_QUARTER)


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A cache of its own, no network but this machine's, and patience of no time."""
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        doctor, "SHORT_PATIENCE", doctor.SHORT_PATIENCE.__class__(attempts=1, timeout_s=2.0)
    )


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "place"
    (folder / TILES).parent.mkdir(parents=True)
    (folder / TILES).write_bytes(bytes(1234))
    (folder / "states.parquet").write_bytes(bytes(56))
    return folder


def test_versions_are_those_that_are_imported():
    facts = doctor.examine("x", "y", ask=False).facts
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert "gpytorch" not in facts["packages"]  # an extra
    assert "missing" not in facts["packages"].values()


def test_an_absent_package_is_missing(monkeypatch):
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: ["no-such-thing>=1"])
    assert doctor.examine("x", "y", ask=False).facts["packages"]["no-such-thing"] == "missing"


@pytest.mark.parametrize(
    ("ranges", "told"), [(True, "serves parts of files"), (False, "serves only whole files")]
)
def test_servers_are_asked_for_their_files(place, ranges, told):
    servers = load("faults.faulty_server")
    with servers.serving(place) as server:
        server.tell(manner=servers.Manner(ranges=ranges))
        found = doctor.examine(server.url, server.url)
    assert f"{TILES} has 1,234 bytes; it {told}" in found.facts["sources"][f"tiles {server.url}"]
    boundaries = found.facts["sources"][f"boundaries {server.url}"]
    assert boundaries == "answers; states.parquet has 56 bytes"
    assert set(found.facts["sources"]) == {f"tiles {server.url}", f"boundaries {server.url}"}
    assert found.problems == ()


def test_places_without_the_files_say_so(place):
    with load("faults.faulty_server").serving(place) as server:
        shutil.rmtree(place / "parquet")
        found = doctor.examine(server.url, str(place)).facts["sources"]
    assert found[f"tiles {server.url}"] == f"answers, but has no {TILES}"
    assert found[f"boundaries {place}"] == "a folder with states.parquet"


def test_a_folder_without_tiles(tmp_path):
    (tmp_path / "empty").mkdir()
    found = doctor.examine(str(tmp_path / "empty"), str(tmp_path / "gone"))
    assert found.facts["sources"][f"tiles {tmp_path / 'empty'}"].startswith("a folder, without")
    assert any(f"no folder {tmp_path / 'gone'}" in problem for problem in found.problems)


def test_neither_passwords_nor_the_home_folder_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:secret@127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = doctor.examine("s3://bucket", "http://you:secret@127.0.0.1:9/x")
    for text in (found.text(), json.dumps(found.described())):
        assert "secret" not in text
        assert str(tmp_path) not in text
    assert "HTTPS_PROXY: http://***@127.0.0.1:9" in found.text()
    assert sum("netrc" in problem for problem in found.problems) == 2


def test_a_cache_that_cannot_be_written_is_a_problem(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    found = doctor.examine("x", "y", ask=False)
    assert len(found.problems) == 1
    assert "cannot be written to: Permission denied. Set GEOGP_CACHE" in found.problems[0]


@pytest.mark.parametrize(
    ("wrong", "told"), [(1e-3, "computes wrong results"), (RuntimeError("no kernel"), "no kernel")]
)
def test_a_device_that_computes_wrongly_is_a_problem(monkeypatch, wrong, told):
    true = torch.linalg.cholesky

    def broken(matrix):
        if isinstance(wrong, Exception):
            raise wrong
        return true(matrix) + wrong

    assert doctor.examine("x", "y", ask=False).problems == ()
    monkeypatch.setattr(torch.linalg, "cholesky", broken)
    assert told in doctor.examine("x", "y", ask=False).problems[0]


def test_the_command_prints_text_or_json(monkeypatch, capsys):
    def called(*options):
        monkeypatch.setattr(sys, "argv", ["geogp", "doctor", "--offline", *options])
        with pytest.raises(SystemExit) as stop:
            run()
        assert not stop.value.code
        return capsys.readouterr().out

    facts = json.loads(called("--json"))
    assert facts["problems"] == []
    assert "sources" not in facts
    text = called()
    assert f"  version: {facts['geogp']['version']}\n" in text
    assert text.endswith("no problem found\n")
