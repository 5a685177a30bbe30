"""The level of single tiles, which a map leaves in its run folder for later answers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geogp.answers.run import open_run
from geogp.models.field.fitted import FittedField
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.runs.file_records import damaged_files


def answer(path: Path) -> pd.DataFrame:
    return pd.DataFrame(open_run(path).areas(by="stratum", draws=200).drop(columns="geometry"))


@pytest.fixture(scope="module")
def made(copy) -> dict[str, np.ndarray]:
    """The tensors that the map left."""
    tensors = read_tensors(copy.path / "level_2023Q4.safetensors")[0]
    return {name: value.numpy().copy() for name, value in tensors.items()}


@pytest.fixture(scope="module")
def first(copy, made) -> pd.DataFrame:
    return answer(copy.path)


@pytest.fixture
def kept(copy, first) -> Path:
    return copy.path / "level_2023Q4.safetensors"


def same_tensors(path: Path, expected: dict[str, np.ndarray]) -> None:
    for name, value in read_tensors(path)[0].items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_an_answer_uses_what_the_map_left(copy, first, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(FittedField, "conditional")  # the slow part
        pd.testing.assert_frame_equal(answer(copy.path), first)


def test_without_the_file_the_answer_is_the_same(copy, first, kept, made):
    kept.unlink()
    pd.testing.assert_frame_equal(answer(copy.path), first)
    same_tensors(kept, made)


def test_a_damaged_file_is_made_again(copy, first, kept, made):
    described = read_tensors(kept)[1]
    kept.write_bytes(kept.read_bytes()[:-100] + bytes(100))
    pd.testing.assert_frame_equal(answer(copy.path), first)
    assert read_tensors(kept)[1] == described
    same_tensors(kept, made)


@pytest.mark.parametrize("name", ["model", "quarter", "tiles", "zoom"])
def test_a_file_of_another_level_is_not_used(copy, first, kept, name):
    tensors, described = read_tensors(kept)
    write_tensors(kept, tensors | {"mean": tensors["mean"] + 1}, described | {name: "other"})
    pd.testing.assert_frame_equal(answer(copy.path), first)
    assert read_tensors(kept)[1] == described


def test_a_run_without_the_file_is_whole(copy, first, kept):
    run = open_run(copy.path).record
    assert kept.name not in {*run.files, *run.file_records}
    assert read_tensors(kept)[1]["model"] == run.file_records["model.safetensors"].sha256
    kept.unlink()
    assert damaged_files(copy.path, run) == []


def test_another_quarter_has_its_own_file(copy, first):
    other = open_run(copy.path).areas(by="stratum", draws=200, at="2023Q3")
    assert (copy.path / "level_2023Q3.safetensors").is_file()
    assert (other["level_mean_log10"] != first["level_mean_log10"]).all()
