"""Fits by two processes against those by one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from geogp.errors import RequestError
from geogp.models.catalogue import shared_fits
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import load_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import parallel
from geogp.models.fitting.loop import fit
from geogp.models.fitting.steps import Batch
from geogp.models.numerics.teams import Team, current_team
from geogp.models.numerics.tensor_files import read_tensors
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.rows import Rows

PROGRAM = '''
"""Fit what the cases say, and tell how it went; run by each process."""
import json, os, sys
from pathlib import Path
import numpy as np
import torch
from geogp.errors import GeogpError
from geogp.models.process.architecture import Architecture
from geogp.models.catalogue.build import build
from geogp.models.catalogue.shared_fits import team
from geogp.models.fit_settings import FitSettings
from geogp.models.catalogue.storage import save_model
from geogp.models.fitting.loop import fit
from geogp.models.process.data import Data

def run(folder):
    rows = np.load(folder / "rows.npz")
    told = {}
    for case in json.loads((folder / "cases.json").read_text()):
        model = build(case["model"], Architecture(**case["sizes"]), torch.from_numpy(rows["x"]))
        kind = case.get("values") or ("counts" if case["counts"] else "y")
        train, held = (
            Data(rows[f"{s}x"], rows[f"{s}{kind}"], rows[f"{s}tests"], groups=rows[f"{s}group"])
            for s in ("", "v")
        )
        settings = FitSettings(**case["settings"])
        path = folder / f"{case['name']}.checkpoint"
        try:
            model, state = fit(model, train, held, settings, checkpoint=path)
        except GeogpError as error:
            told[case["name"]] = {"error": str(error)}
            continue
        save_model(model, folder / f"{case['name']}.safetensors")
        told[case["name"]] = {"losses": state.losses, "scores": state.validation_nll}
    (folder / "told.json").write_text(json.dumps(told))

if __name__ == "__main__":
    with team() as leads:
        if leads:
            run(Path(sys.argv[1]))
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    told = Path(sys.argv[1]) / f"threads-{os.environ.get('RANK', 'alone')}.json"
    told.write_text(json.dumps(threads))
'''
SIZES = {"d": 2, "h": 6, "r": 8, "blocks": 1, "dtype": "float64", "units": [5.0, 5.0]}
SETTINGS = {"epochs": 3, "batch": 41, "learning_rate": 1e-2, "average": 0.5, "clip": 1.0}


def case(model, name=None, **changes):
    sizes = {**SIZES, **changes.pop("sizes", {})}
    settings = {**SETTINGS, **changes.pop("settings", {})}
    counts = CATALOGUE[model].about.counts
    found = {"name": name or model, "model": model, "sizes": sizes, "settings": settings}
    return {**found, "counts": counts, **changes}


BY_BATCHES = ["field", "dbk-rbf", "sv-rbf", "vbll", "cox-nb"]
CASES = [
    *(case(name) for name in BY_BATCHES),
    # The form of its covariance, found before the first step, is not the usual one.
    case("field", "smooth", values="level"),
    case("sv-rbf", "student", sizes={"noise": "student-t"}),
    # One row in the last batch: the other process has none of it.
    case("sv-rbf", "lone", settings={"batch": 27}),
    case("dbk-mml", "whole"),
    case("pp-dkl", "after"),
    case("dbk-rbf", "resumed"),
]
SHARED = [one["name"] for one in CASES if one["name"] != "whole"]


def stop_after_one_epoch(folder, rows, one):
    def stop(*_):
        raise KeyboardInterrupt

    model = build(one["model"], Architecture(**one["sizes"]), torch.from_numpy(rows["x"]))
    data = [
        Data(rows[f"{s}x"], rows[f"{s}y"], rows[f"{s}tests"], groups=rows[f"{s}group"])
        for s in ("", "v")
    ]
    path = folder / f"{one['name']}.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        fit(model, *data, FitSettings(**one["settings"]), checkpoint=path, progress=stop)
    assert read_tensors(path)[1]["epoch"] == 1


def start(folder, processes, cases):
    folder.mkdir()
    rng = np.random.default_rng(3)
    rows = {}
    for part, n in (("", 325), ("v", 61)):
        # 20 places, so that rows of one place stand together or are collapsed.
        x = rng.uniform(-1, 1, (60, 2))[rng.integers(0, 60, n)]
        level = np.sin(3 * x).sum(1)
        # Without copies of rows, which count as noisy.
        rows[f"{part}level"] = level + 1e-3 * rng.standard_normal(n)
        rows[f"{part}x"] = x
        rows[f"{part}y"] = level + 0.1 * rng.standard_normal(n)
        rows[f"{part}counts"] = rng.poisson(np.exp(level)).astype(float)
        rows[f"{part}group"] = (x[:, 0] > 0) + 2 * (x[:, 1] > 0)
        rows[f"{part}tests"] = rng.integers(1, 9, n).astype(float)
    np.savez(folder / "rows.npz", **rows)
    (folder / "cases.json").write_text(json.dumps(cases))
    stop_after_one_epoch(folder, rows, next(one for one in cases if one["name"] == "resumed"))
    program = folder / "program.py"
    program.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), str(program), str(folder)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "told.json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return start(tmp_path_factory.mktemp("fits") / "alone", 1, CASES)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return start(tmp_path_factory.mktemp("fits") / "together", 2, CASES)


@pytest.mark.trial
@pytest.mark.parametrize("name", SHARED)
def test_two_processes_fit_what_one_does(name, alone, together):
    losses, scores = (
        [found[1][name][key] for found in (alone, together)] for key in ("losses", "scores")
    )
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-8, atol=1e-8)
    assert losses[0][0] != losses[0][-1]
    x = np.random.default_rng(4).uniform(-1, 1, (50, 2))
    one, two = (
        load_model(found[0] / f"{name}.safetensors")[0].predict(x) for found in (alone, together)
    )
    np.testing.assert_allclose(two.mean, one.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(two.sd, one.sd, rtol=1e-7)


@pytest.mark.trial
def test_the_smooth_rows_have_another_form_than_usual(together):
    model, _ = load_model(together[0] / "smooth.safetensors")
    assert not model.parameters.tiles.form.usual


@pytest.mark.trial
def test_a_model_of_all_rows_is_refused_and_the_next_fit_goes_on(alone, together):
    assert "losses" in alone[1]["whole"]
    assert "without torchrun" in together[1]["whole"]["error"]
    assert "losses" in together[1]["after"]


@pytest.mark.trial
@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of threads from /proc")
def test_no_thread_of_the_team_outlives_it(together):
    # One that did could abort the process at the end of Python, after all was written.
    for rank in range(2):
        threads = json.loads((together[0] / f"threads-{rank}.json").read_text())
        assert threads
        assert not [name for name in threads if "gloo" in name]


def test_without_torchrun_a_process_is_alone_and_leads(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with shared_fits.team() as leads:
        assert leads
        assert current_team() == Team(0, 1)
        assert parallel.tell(current_team(), ({}, {"a": 1})) == ({}, {"a": 1})


def test_shares_hold_every_row_once(make_model, train):
    model = make_model("sv-rbf")
    rows = Rows(
        torch.from_numpy(train.x), torch.from_numpy(train.y), torch.from_numpy(train.counts)
    )
    steps = model.make_fit(model)
    steps.start(rows, 0)
    batch = Batch(torch.randperm(90), 90)
    shares = steps.split(batch, 4)
    assert torch.cat([share.numbers for share in shares]).tolist() == batch.numbers.tolist()
    assert [share.n for share in shares] == [23, 23, 22, 22]
    owned = [Team(rank, 4).own(90) for rank in range(4)]
    assert [i for own in owned for i in range(90)[own]] == list(range(90))


@pytest.mark.parametrize("name", ["dbk-mml", "nystrom-mixed", "t-process"])
def test_objectives_of_all_rows_are_not_split(name, make_model):
    model = make_model(name)
    with pytest.raises(RequestError, match=f"{name} is fitted to all rows at once, so 3"):
        model.make_fit(model).split(Batch(torch.arange(90), 90), 3)


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RequestError, match="2 processes share 1 GPUs"), shared_fits.team():
        pass
