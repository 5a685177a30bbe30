"""Every model of the catalogue on a second device: the same numbers, no tensor left behind."""

import numpy as np
import pytest
import torch
from benchmark_scripts import load

from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field.vecchia import whiten
from geogp.models.joint.joint_law import joint_posterior

launches, device = load("launches"), load("second_device")

MORE = 1.05
"""Launches may exceed those of the committed table by this factor, for another version of torch."""


def _limits() -> dict[str, tuple[int, int]]:
    """Return launches and waits of a training step by model, from the committed table."""
    lines = (launches.RESULTS / "table.md").read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if "| `" in line]
    return {name.strip("`"): (int(steps), int(waits)) for name, steps, waits, *_ in cells}


@pytest.mark.parametrize("name", sorted(launches.MODELS))
def test_a_fit_on_the_device_gives_the_numbers_of_the_cpu(name, tmp_path):
    train, validation = launches.world(name, 190, 1), launches.world(name, 60, 2)
    about, here = launches.MODELS[name].about, launches.made(name, train)
    has_joint = about.has_spread and about.family not in {"class", "count"}
    expected = launches.fitted(here, train, validation)
    with device.second_device() as counts:
        there = launches.made(name, train).to(device.DEVICE)
        with launches.counted_steps(counts) as steps:
            assert launches.fitted(there, train, validation) == expected
        for value in (*there.parameters(), *there.buffers()):
            assert value.device == device.DEVICE
        found = launches.predicted(there, validation.x)
        save_model(there, tmp_path / "there.safetensors")
        joint = joint_posterior(there, train).mean(validation.x) if has_joint else None
    predicted = launches.predicted(here, validation.x)
    np.testing.assert_array_equal(found, predicted)
    if joint is not None:
        np.testing.assert_allclose(
            joint, joint_posterior(here, train).mean(validation.x), rtol=1e-9
        )
    again, _ = load_model(tmp_path / "there.safetensors")
    np.testing.assert_array_equal(launches.predicted(again, validation.x), predicted)
    most_launches, most_waits = _limits()[name]
    assert np.median(steps.waits) <= most_waits, steps.lines
    assert np.median(steps.launches) <= MORE * most_launches


def test_a_tensor_left_on_the_cpu_is_found(monkeypatch):
    from geogp.models.core.lowrank import LowRankGP

    train = launches.world("dbk-silu", 190, 1)
    whole = LowRankGP.terms

    def left_behind(model, x):
        return whole(model, x.cpu())

    monkeypatch.setattr(LowRankGP, "terms", left_behind)
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


def test_the_table_has_a_line_for_each_model(tmp_path, capsys):
    path = tmp_path / "table.md"
    assert launches.main(["--models", "dnn", "--table", str(path)]) == 0
    text = path.read_text("utf-8")
    assert text in capsys.readouterr().out
    [line] = [line for line in text.splitlines() if line.startswith("| `")]
    name, steps, waits = [cell.strip() for cell in line.strip("|").split("|")][:3]
    assert (name, waits) == ("`dnn`", "0")
    assert int(steps) == pytest.approx(_limits()["dnn"][0], rel=0.05)
