"""Recorded training steps on a second device: the numbers of the CPU, and two kernels to start."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from benchmark_scripts import load

from geogp.models.training import recorded_steps, training_loop
from geogp.models.training.schedule import FitSettings

launches, device = load("speed.launches"), load("speed.second_device")

NAMES = sorted(
    name
    for name, spec in launches.MODELS.items()
    if spec.step.same_kernels and name != "field"  # which has two kinds of steps
)

SETTINGS = FitSettings(epochs=7, batch=40, learning_rate=1e-2, average=1.0)
"""35 steps: 3 to warm up and 16 of the trial have 40 rows, as have 9 later ones."""


@pytest.fixture
def world():
    def made(name):
        train, validation = launches.world(name, 190, 1), launches.world(name, 60, 2)
        return launches.made(name, train), train, validation

    return made


@pytest.fixture
def counts(monkeypatch) -> Iterator[device.Counts]:
    """A second device that records steps; its clock counts the kernels that were started."""
    with device.second_device() as found:
        monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, found.record)
        monkeypatch.setattr(recorded_steps, "monotonic", found.launches.total)
        yield found


def _losses(model, train, validation, settings=SETTINGS) -> tuple[list[float], list[float]]:
    state = training_loop.fit(model, train, validation, settings)
    return state.losses, state.validation_nll


def _on_device(
    world: Callable, name: str, counts, settings=SETTINGS
) -> tuple[object, launches.Steps]:
    """Return losses and scores of a fit, and the counts of its steps."""
    model, train, validation = world(name)
    with launches.counted_steps(counts) as steps:
        found = _losses(model.to(device.DEVICE), train, validation, settings)
    return found, steps


@pytest.mark.parametrize("name", NAMES)
def test_recorded_steps_give_the_numbers_of_the_cpu(name, world, counts):
    expected = _losses(*world(name))
    found, started = _on_device(world, name, counts)
    assert found == expected
    assert started.waits[-2] == 0  # the last step has fewer rows, and is still timed
    whole = [
        n for step, n in enumerate(started.launches) if step % 5 < 4
    ]  # 4 steps of 40 rows, 1 of 30
    assert set(whole[recorded_steps.WARM_UP + recorded_steps.TIMED + 1 :]) == {3}
    assert min(whole[1 : recorded_steps.WARM_UP + recorded_steps.TIMED]) > 40


def test_the_faster_way_is_kept_and_stated(world, counts, monkeypatch, caplog):
    with caplog.at_level(logging.INFO, logger=recorded_steps.__name__):
        _, started = _on_device(world, "sv-rbf", counts)
    assert "a step of 40 rows: " in caplog.text
    monkeypatch.setattr(recorded_steps, "monotonic", lambda: -counts.launches.total())
    found, slower = _on_device(world, "sv-rbf", counts)
    assert found == _losses(*world("sv-rbf"))
    assert (started.launches[-2], slower.launches[-2]) == (3, slower.launches[2])


def test_a_step_that_cannot_be_recorded_is_made_without(world, counts, monkeypatch, caplog):
    def refuse(_step):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, refuse)
    found, started = _on_device(world, "vbll", counts)
    assert found == _losses(*world("vbll"))
    assert started.launches[-2] == started.launches[2]
    assert caplog.text.count("steps are not recorded, and may be slower: operation not perm") == 1


def test_an_epoch_with_a_failed_check_is_made_again_without_records(world, counts, monkeypatch):
    replays = []

    def record(step):
        loss, start = counts.record(step)

        def spoiled():
            start()
            replays.append(1)
            if len(replays) == 12:
                loss.fill_(torch.nan)

        return loss, spoiled

    monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, record)
    found, started = _on_device(world, "dbk-rbf", counts)
    assert found == _losses(*world("dbk-rbf"))
    assert len(started.launches) == 5 * (SETTINGS.epochs + 1)
    assert len(replays) < 16
    assert started.launches[-2] > 100


def test_the_optimiser_knows_when_its_step_is_recorded(world, counts, monkeypatch):
    seen = []
    optimisers = training_loop.make_optimiser

    def watched(*given):
        made = optimisers(*given)
        made.register_step_pre_hook(
            lambda one, *_: seen.append({group["capturable"] for group in one.param_groups})
        )
        return made

    monkeypatch.setattr(training_loop, "make_optimiser", watched)
    _on_device(world, "dnn", counts)
    assert seen.count({True}) == 1
    assert seen.count({False}) == len(seen) - 1 == 3 + 8 + 7  # 7 steps have 30 rows


@pytest.mark.usefixtures("padding_of_a_gpu")
def test_steps_of_whole_places_are_recorded_once_for_all_epochs(world, counts):
    """Half of the epochs of `field` have single rows, and the others have whole places."""
    settings = replace(SETTINGS, epochs=14)
    expected = _losses(*world("field"), settings)
    found, started = _on_device(world, "field", counts, settings)
    assert found == expected
    assert not any(started.waits[-9:])
    single, places = started.launches[:35], started.launches[35:]
    tried = recorded_steps.WARM_UP + 2 * recorded_steps.TIMED
    assert {n for step, n in enumerate(single) if step % 5 < 4 and step > 25} == {3}
    assert set(places[tried:]) == {3}
    assert min(places[1 : tried - recorded_steps.TIMED]) > 100
