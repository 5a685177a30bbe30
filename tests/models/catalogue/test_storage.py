"""Saved models: bit-equal round trips, and refusals of damaged files."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from field_worlds import field_of

import geogp.models
from geogp.errors import DataError, OutputError
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.process.data import Data


@pytest.fixture
def saved(tmp_path, make_model, randomised) -> Path:
    path = tmp_path / "model.safetensors"
    save_model(randomised(make_model("sv-dkl")), path, {"unit": "log10 Mbps"})
    return path


def _content(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file, without geogp."""
    with safetensors.safe_open(path, "pt") as opened:
        return safetensors.torch.load_file(path), opened.metadata()


def _rewrite(path: Path, *, tensors=None, **described) -> None:
    """Change the description or the tensors of a file, and its hash with them."""
    kept, metadata = _content(path)
    old = json.loads(metadata["description"])
    write_tensors(path, kept if tensors is None else tensors, {**old, **described})


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip_is_bit_equal(*, name, dtype, tmp_path, device, make_model, randomised):
    model, random = randomised(make_model(name, dtype=dtype)), np.random.default_rng(1)
    if name == "field":
        model.load_state_dict(model.state_dict())  # the form of the covariance is the moved one
        model = field_of(model, model.as_rows(Data(random.uniform(-1, 1, (30, 2)), np.zeros(30))))
    model = model.to(torch.device(device))
    context = {"bounds": [1.5, -2.25], "inputs": {"quarter": True}, "note": None}
    path = tmp_path / "new folder" / "model.safetensors"
    save_model(model, path, context)
    loaded, found = load_model(path)
    assert found == context
    assert loaded.name == name
    assert loaded.architecture == model.architecture
    x = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    expected, prediction = model.to(torch.device("cpu")).predict(x), loaded.predict(x)
    np.testing.assert_array_equal(prediction.mean, expected.mean)
    np.testing.assert_array_equal(prediction.function_variance, expected.function_variance)
    np.testing.assert_array_equal(prediction.noise_variance, expected.noise_variance)
    state = model.state_dict()
    assert loaded.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in loaded.state_dict().items())


def test_a_field_without_a_fit_is_refused(tmp_path, make_model):
    save_model(make_model("field"), tmp_path / "m")
    with pytest.raises(DataError, match=r"missing tensors .*'rows.x'"):
        load_model(tmp_path / "m")


def test_without_context(tmp_path, make_model):
    save_model(make_model(), tmp_path / "m")
    assert load_model(tmp_path / "m")[1] == {}


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_cut_short(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="not a complete file of tensors"):
        load_model(saved)


def test_absent(tmp_path):
    with pytest.raises(DataError, match=r"absent\.safetensors is not a complete file"):
        load_model(tmp_path / "absent.safetensors")


def test_a_pickle_is_no_model(tmp_path, make_model):
    torch.save(make_model().state_dict(), tmp_path / "m")
    with pytest.raises(DataError, match="not a complete file of tensors"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("metadata", [None, {"description": "{"}, {"description": "[1]"}])
def test_tensors_without_a_description(tmp_path, metadata):
    safetensors.torch.save_file({"a": torch.zeros(2)}, tmp_path / "m", metadata)
    with pytest.raises(DataError, match="not a complete file of tensors"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (
            {"format": "geogp-model-1"},
            "expected a model of format geogp-model-2 .* found format 'geogp-model-1'",
        ),
        ({"format": None}, "expected a model of format"),
        ({"model": "gpt"}, "has the model 'gpt', which geogp does not have"),
        ({"architecture": {"d": 2}}, "do not fit its model"),
        ({"architecture": {"d": 2, "wide": 3}}, "do not fit its model: .*wide"),
        ({"architecture": None}, "do not fit its model"),
    ],
)
def test_a_description_that_does_not_fit(saved, described, message):
    _rewrite(saved, **described)
    with pytest.raises(DataError, match=message):
        load_model(saved)


@pytest.mark.parametrize("size", [(1 << 24) + 1, 1 << 40, (1 << 64) - 1])
def test_a_header_that_says_to_be_huge(saved, size):
    content = saved.read_bytes()
    saved.write_bytes(size.to_bytes(8, "little") + content[8:])
    with pytest.raises(DataError, match=r"the header has .* bytes; expected at most 16,777,216"):
        load_model(saved)


@pytest.mark.parametrize(
    "change", [{"r": 200_000}, {"h": 10**9}, {"blocks": 10**9}, {"blocks": 500}]
)
def test_sizes_far_beyond_the_numbers_held(saved, change):
    """A right hash, but the model would take terabytes: nothing of it is allocated."""
    described = json.loads(_content(saved)[1]["description"])
    _rewrite(saved, architecture=described["architecture"] | change)
    with pytest.raises(
        DataError, match=r"too large for the .* numbers in the file|blocks from 0 to 1,000"
    ):
        load_model(saved)


class TestEditedFiles:
    """Files that load as safetensors, with the hash of another content."""

    def test_the_file_itself_passes(self, saved):
        tensors, metadata = _content(saved)
        assert re.fullmatch("[0-9a-f]{64}", metadata["sha256"])
        safetensors.torch.save_file(tensors, saved, metadata)
        load_model(saved)

    @pytest.mark.parametrize("key", ["posterior.m", "y_sd", "basis.backbone.project.weight"])
    def test_one_digit_of_a_tensor(self, saved, key):
        tensors, metadata = _content(saved)
        first = tensors[key].view(-1)[:1]
        first.copy_(torch.nextafter(first, first + 1))
        safetensors.torch.save_file(tensors, saved, metadata)
        with pytest.raises(DataError, match="was changed after geogp wrote it"):
            load_model(saved)

    def test_a_tensor_under_another_name(self, saved):
        tensors, metadata = _content(saved)
        # Of one shape and dtype: only the names tell them apart.
        tensors["x_low"], tensors["x_high"] = tensors["x_high"], tensors["x_low"]
        safetensors.torch.save_file(tensors, saved, metadata)
        with pytest.raises(DataError, match="was changed after geogp wrote it"):
            load_model(saved)

    def test_a_tensor_of_the_same_bytes_in_another_shape(self, saved):
        tensors, metadata = _content(saved)
        tensors["posterior.m"] = tensors["posterior.m"].reshape(4, 2)
        safetensors.torch.save_file(tensors, saved, metadata)
        with pytest.raises(DataError, match="was changed after geogp wrote it"):
            load_model(saved)

    def test_the_description(self, saved):
        tensors, metadata = _content(saved)
        changed = metadata["description"].replace("log10 Mbps", "log10 kbps")
        assert changed != metadata["description"]
        safetensors.torch.save_file(tensors, saved, {**metadata, "description": changed})
        with pytest.raises(DataError, match="was changed after geogp wrote it"):
            load_model(saved)

    def test_without_a_hash(self, saved):
        tensors, metadata = _content(saved)
        safetensors.torch.save_file(tensors, saved, {"description": metadata["description"]})
        with pytest.raises(DataError, match=r"changed after|contains no hash|written by geogp"):
            load_model(saved)

    def test_a_flipped_byte_anywhere_in_the_tensors(self, saved):
        content = bytearray(saved.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        assert len(content) - start > 1000
        for place in range(start, len(content), 97):
            flipped = content.copy()
            flipped[place] ^= 1
            saved.write_bytes(flipped)
            with pytest.raises(DataError, match="was changed after geogp wrote it"):
                load_model(saved)


@pytest.mark.parametrize("key", ["posterior.m", "y_sd", "basis.anchors"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite(saved, key, value):
    tensors, _ = _content(saved)
    tensors[key].view(-1)[-1] = value
    _rewrite(saved, tensors=tensors)
    with pytest.raises(DataError, match=f"the tensor {re.escape(key)} in .* is not finite"):
        load_model(saved)


def test_a_tensor_of_another_shape(saved):
    tensors = safetensors.torch.load_file(saved)
    tensors["posterior.m"] = tensors["posterior.m"][:-1].clone()
    _rewrite(saved, tensors=tensors)
    with pytest.raises(DataError, match=r"do not fit its model: (?s:.*)posterior\.m"):
        load_model(saved)


def test_a_missing_tensor(saved):
    tensors = safetensors.torch.load_file(saved)
    del tensors["noise.log_excess"]
    _rewrite(saved, tensors=tensors)
    with pytest.raises(DataError, match=r"(?s)do not fit .*Missing .*noise\.log_excess"):
        load_model(saved)


def test_an_extra_tensor(saved):
    tensors = {**safetensors.torch.load_file(saved), "surplus": torch.zeros(1)}
    _rewrite(saved, tensors=tensors)
    with pytest.raises(DataError, match=r"(?s)do not fit .*Unexpected .*surplus"):
        load_model(saved)


def test_the_context_is_part_of_a_model(saved):
    with safetensors.safe_open(saved, "pt") as opened:
        described = json.loads(opened.metadata()["description"])
    del described["context"]
    write_tensors(saved, safetensors.torch.load_file(saved), described)
    with pytest.raises(DataError, match="expected a description of the model"):
        load_model(saved)


def test_tensors_of_any_layout_come_back_as_they_were(tmp_path):
    grid = torch.arange(12.0).reshape(3, 4)
    tensors = {"turned": grid.T, "part": grid[:, ::2], "one": torch.tensor(2, dtype=torch.int64)}
    described = {"epoch": 3, "best": float("inf"), "ümlaut": "ß"}
    write_tensors(tmp_path / "t", tensors, described)
    found, words = read_tensors(tmp_path / "t")
    assert words == described
    assert found.keys() == tensors.keys()
    for key, value in tensors.items():
        assert torch.equal(found[key], value)
        assert found[key].dtype == value.dtype


def test_a_path_under_a_file_is_refused(saved, make_model):
    with pytest.raises(OutputError, match="cannot write"):
        save_model(make_model(), saved / "model")


def test_nothing_is_ever_unpickled():
    sources = list(Path(geogp.models.__path__[0]).parent.rglob("*.py"))
    assert len(sources) > 200
    for source in sources:
        assert not re.search(r"torch\.load\b|import pickle|joblib", source.read_text("utf-8"))
