"""What the README and the pages it points to show must run as it stands."""

import re
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"


def test_the_example_runs(tmp_path, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    x, model, same = names["x"], names["model"], names["same"]
    np.testing.assert_array_equal(same.predict(x), model.predict(x))
    assert (tmp_path / "model.safetensors").is_file()
    fresh = np.random.default_rng(1).uniform(0, 100, (2000, 2))
    errors = model.predict(fresh) - np.sin(fresh / 15).sum(1)
    assert np.sqrt(np.mean(errors**2)) < 0.1


def test_every_option_and_model_named_exists():
    from geogp.models.catalogue.rows import CATALOGUE

    page = (DOCS / "choosing-a-model.md").read_text("utf-8")
    section = page.partition("## The catalogue")[2].partition("## ")[0]
    named = {
        name
        for line in section.splitlines()
        for name in re.findall(r"`([a-z0-9-]+)`", line)
        if line.startswith("| `")
    }
    assert named == set(CATALOGUE)


def test_the_files_of_an_own_region_are_what_the_commands_read(tmp_path, monkeypatch):
    from geogp.geodata.places.region_choice import RegionChoice

    text = (DOCS / "own-regions.md").read_text("utf-8")
    files, command = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-eu", "-c", files], check=True)
    region, strata = re.findall(r"--(?:region-file|strata) (\S+)", command)
    found = RegionChoice(file=region, strata=strata).read()
    assert found.region.strata_names == ("coast", "elsewhere")
    assert f"runs/{found.region.code}-mobile-download-field-quick" in text
    assert found.warnings == ()
