"""The table of all models on a region, on a small simulated source."""

import json
from pathlib import Path

import pytest
from benchmark_scripts import load, started

from geogp.records.map_settings import MapSettings


@pytest.fixture(scope="module")
def made(small, tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("region")
    options = [
        *("--source", str(small.folder), "--boundaries", str(small.folder / "boundaries")),
        *("--models", "vbll", "--targets", "download", "--epochs", "1"),
        *("--zoom", "12"),
        *("--out", str(folder / "out"), "--table", str(folder / "table")),
    ]
    started("accuracy.regions", "DEMO", *options)
    return folder, options


def test_every_figure_is_that_of_its_run(made):
    folder, _ = made
    lines = json.loads((folder / "table" / "DEMO.json").read_text())
    pairs = [(line["model"], line["split"]) for line in lines]
    assert pairs == [("vbll", "random"), ("vbll", "blocks")]
    for line in lines:
        assert 2e8 < line["peak_bytes"] < 4e9
        run = json.loads(next((folder / "out").glob(f"*-{line['model']}-*/run.json")).read_text())
        for stratum in ("all", "urban", "rural"):
            own = run["metrics"][line["split"]][stratum]["nll"]
            other = run["baseline"][line["split"]][stratum]["nll"]
            assert line[f"nll_{stratum}"] == own
            assert line[f"crps_{stratum}"] == run["metrics"][line["split"]][stratum]["crps"]
            assert line[f"difference_{stratum}"] == pytest.approx(own - other, abs=1e-12)


def test_the_table_says_how_it_was_made(made):
    folder, options = made
    text = (folder / "table" / "DEMO.md").read_text()
    assert "benchmarks accuracy.regions DEMO --source" in text
    assert options[-1] in text
    assert text.count("| `vbll` |") == 2


def test_every_default_model_has_the_default_targets():
    regions = load("accuracy.regions")
    for model in regions.MODELS:
        for target in ("download", "upload"):
            request = MapSettings(
                "PR", source="tiles", boundaries="borders", target=target, model=model
            )
            assert request.model == model
