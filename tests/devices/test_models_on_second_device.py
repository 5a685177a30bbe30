"""Every model of the catalogue on a second device: the same numbers, no tensor left behind."""

import numpy as np
import pytest
import torch
from benchmark_scripts import load, told

from geogp.errors import NumericalError
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field.vecchia import whiten
from geogp.models.fitting import loop as training_loop
from geogp.models.fitting import steps
from geogp.models.joint.law import joint_posterior
from geogp.models.process import lowrank, rbf_readers, rows
from geogp.models.process.basis_functions import checked_residual
from geogp.models.process.rbf_readers import Marginals

launches, device = load("speed.launches"), load("speed.second_device")

SEARCHES = rbf_readers.searches

MORE = 1.05
"""Launches may exceed those of the committed table by this factor, for another version of torch."""


def _limits() -> dict[str, list[int]]:
    """Return the counts of each model from the table, 0 for an empty cell."""
    lines = launches.TABLE.read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if "| `" in line]
    return {row[0].strip("`"): [int(cell or 0) for cell in row[1:7]] for row in cells}


@pytest.mark.usefixtures("padding_of_a_gpu")
@pytest.mark.parametrize("name", sorted(launches.MODELS))
def test_a_fit_on_the_device_gives_the_numbers_of_the_cpu(name, tmp_path):
    train, validation = launches.world(name, 190, 1), launches.world(name, 60, 2)
    about = launches.MODELS[name].about
    has_joint = about.has_spread and about.family not in {"class", "count"}
    here, expected = launches.fitted(launches.made(name, train), train, validation)
    with device.second_device() as counts:
        there = launches.made(name, train).to(device.DEVICE)
        with launches.counted_steps(counts) as counted:
            fitted, score = launches.fitted(there, train, validation)
        assert score == expected
        for value in launches.tensors_of(fitted):
            assert value.device == device.DEVICE
        counts.clear()
        found = launches.predicted(fitted, validation.x)
        predicted_launches, predicted_waits = counts.launches.total(), counts.waits.total()
        save_model(fitted, tmp_path / "there.safetensors")
        joint = joint_posterior(fitted, train).mean(validation.x) if has_joint else None
    predicted = launches.predicted(here, validation.x)
    np.testing.assert_array_equal(found, predicted)
    if joint is not None:
        np.testing.assert_allclose(
            joint, joint_posterior(here, train).mean(validation.x), rtol=1e-9
        )
    again, _ = load_model(tmp_path / "there.safetensors")
    np.testing.assert_array_equal(launches.predicted(again, validation.x), predicted)
    most_launches, most_waits, sequences, _, predict_launches, predict_waits = _limits()[name]
    assert max(map(len, counted.sequences.values())) <= sequences
    assert np.median(counted.waits) <= most_waits, counted.lines
    assert np.median(counted.launches) <= MORE * most_launches
    assert predicted_launches <= MORE * predict_launches
    assert predicted_waits <= predict_waits


@pytest.mark.parametrize("name", sorted(launches.MODELS.keys() - {"burr-process", "field"}))
def test_no_step_waits_with_four_rows_at_each_input(name, monkeypatch):
    """Models of all rows have two chunks here. `field` does not combine rows."""
    for module in (lowrank, rows, steps):
        monkeypatch.setattr(module, "CHUNK", 30)
    train, validation = launches.world(name, 190, 1, repeats=4), launches.world(name, 60, 2)
    with device.second_device() as counts:
        there = launches.made(name, train).to(device.DEVICE)
        with launches.counted_steps(counts) as counted:
            launches.fitted(there, train, validation, epochs=1)
    assert not any(counted.waits[1:])


def test_steps_wait_only_where_the_cpu_integrates():
    waiting = {name for name, (_, waits, *_) in _limits().items() if waits}
    assert waiting == {"burr-process"}


def test_all_steps_start_the_same_kernels():
    assert {sequences for _, _, sequences, *_ in _limits().values()} == {1}


@pytest.mark.usefixtures("short_field_fits")
@pytest.mark.parametrize("name", ["field", "sv-rbf", "dbk-rbf", "nystrom-mixed", "nngp"])
def test_a_prediction_in_many_chunks_waits_as_often_as_in_one(name, monkeypatch):
    train, asked = launches.world(name, 190, 1), launches.world(name, 60, 2).x
    with device.second_device() as counts:
        there = launches.made(name, train).to(device.DEVICE)
        fitted, _ = launches.fitted(there, train, launches.world(name, 60, 3))
        found = {}
        for size in (60, 7):
            monkeypatch.setattr("geogp.models.process.lowrank.rows_at_once", lambda *_, n=size: n)
            monkeypatch.setattr(
                "geogp.models.field.conditioning.rows_at_once", lambda *_, n=size: n
            )
            counts.clear()
            found[size] = launches.predicted(fitted, asked), counts.waits.total()
            assert counts.launches
    np.testing.assert_allclose(found[7][0], found[60][0], rtol=1e-4, atol=1e-5)
    assert found[7][1] == found[60][1]


def test_many_rows_are_predicted_in_single_precision_by_points_of_the_cpu(monkeypatch):
    monkeypatch.setattr(rbf_readers, "searches", SEARCHES)
    train, asked = launches.world("dbk-rbf", 190, 1), launches.world("dbk-rbf", 600, 2).x
    model = launches.made("dbk-rbf", train)
    launches.fitted(model, train, launches.world("dbk-rbf", 60, 3))
    expected = model.predict(asked)
    with device.second_device() as counts:
        model.to(device.DEVICE)
        few, many = (counts.waits.clear() or model.predict(x) for x in (asked[:500], asked))
        assert counts.waits.total() == 7
    np.testing.assert_array_equal(many.mean, expected.mean)
    np.testing.assert_array_equal(many.sd, expected.sd)
    np.testing.assert_allclose(few.sd, expected.sd[:500], rtol=1e-5)


def test_an_epoch_whose_matrix_needs_jitter_is_made_again_with_checks(monkeypatch):
    """The steps before the failure are undone, so the numbers are those of the CPU."""
    train, validation = launches.world("sv-rbf", 190, 1), launches.world("sv-rbf", 60, 2)

    def made():
        model = launches.made("sv-rbf", train)
        with torch.no_grad():
            model.basis.anchors[1] = model.basis.anchors[0]
        model.basis.jitter = 0.0
        return model

    _, expected = launches.fitted(made(), train, validation)
    epochs = []
    whole = training_loop._Run._steps
    monkeypatch.setattr(
        training_loop._Run, "_steps", lambda run, batches: epochs.append(1) or whole(run, batches)
    )
    with device.second_device():
        _, score = launches.fitted(made().to(device.DEVICE), train, validation)
    assert score == expected
    assert 3 < len(epochs) <= 6


def test_a_basis_that_exceeds_its_prior_is_an_error_in_a_prediction():
    train = launches.world("pp-dkl", 190, 1)
    with device.second_device():
        there = launches.made("pp-dkl", train).to(device.DEVICE)
        there.basis.reader = lambda *_, **__: _too_large
        with pytest.raises(NumericalError, match=r"exceeds the prior variance by a share of 0\.5"):
            launches.predicted(there, train.x)


def _too_large(x):
    one = torch.ones_like(x[:, 0]).double()
    return Marginals(one, one, one, checked_residual(-0.5 * one, one))


def test_a_tensor_left_on_the_cpu_is_found(monkeypatch):
    from geogp.models.process.lowrank import LowRankProcess

    train = launches.world("dbk-silu", 190, 1)
    whole = LowRankProcess.terms

    def left_behind(model, x):
        return whole(model, x.cpu())

    monkeypatch.setattr(LowRankProcess, "terms", left_behind)
    with device.second_device():
        model = launches.made("dbk-silu", train).to(device.DEVICE)
        with pytest.raises(RuntimeError, match=r"a CPU tensor of shape .* meets"):
            launches.fitted(model, train, train)


def test_a_block_that_does_not_factorise_becomes_nan_without_a_wait():
    known, values = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2, 1).double()
    covariance = torch.eye(2).double().repeat(2, 1, 1)
    covariance[1, 0, 0] = -9.0
    with device.second_device() as counts:
        given = [part.to(device.DEVICE) for part in (covariance, known.double(), known, values)]
        counts.clear()
        factor, white = whiten(*given)
        assert not counts.waits
        assert factor.isfinite().cpu().all((1, 2)).tolist() == [True, False]
        assert white.isfinite().cpu().all((1, 2)).tolist() == [True, False]


def test_the_table_has_a_line_for_each_model(tmp_path):
    said = told("speed.launches", "--models", "dnn", "--table", tmp_path)
    text = (tmp_path / "table.md").read_text("utf-8")
    assert text in said
    header, _, line = [line for line in text.splitlines() if line.startswith("|")]
    assert header.count("|") == line.count("|")
    name, steps, waits = [cell.strip() for cell in line.strip("|").split("|")][:3]
    assert (name, waits) == ("`dnn`", "0")
    assert int(steps) == pytest.approx(_limits()["dnn"][0], rel=0.05)
