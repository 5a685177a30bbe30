"""Recorded training steps on a second device: the numbers of the CPU, and two kernels to start."""

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmark_scripts import load

from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import loop as training_loop
from geogp.models.fitting import recorded_steps
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

launches, device = load("speed.launches"), load("speed.second_device")

# Models that are recorded with four rows at each input, and with unequal numbers of rows.
REPEATED = ["bll", "class-dnn", "cox", "pp-dkl", "sv-dkl", "sv-t-process"]
UNEQUAL = ["dbk-rbf", "vbll", "dnn", "sv-rbf"]
# The others, with one row at each input; `field` has two kinds of steps.
SINGLE = sorted(
    name
    for name, spec in launches.MODELS.items()
    if spec.fit.func.same_kernels and name not in {"field", *REPEATED, *UNEQUAL}
)

SETTINGS = FitSettings(epochs=3, batch=40, learning_rate=1e-2, average=1.0)
"""15 steps: 3 to warm up and 4 of the trial have 40 rows, as have 5 later ones."""


@pytest.fixture
def world():
    def made(name, repeats=1, r=8):
        train, validation = launches.world(name, 190, 1, repeats), launches.world(name, 60, 2)
        return launches.made(name, train, r), train, validation

    return made


@pytest.fixture
def counts(monkeypatch) -> Iterator[device.Counts]:
    """A second device that records steps; its clock counts the kernels that were started.

    Such a clock is exact: two steps that are timed each way are enough.
    """
    monkeypatch.setattr(recorded_steps, "TIMED", 2)
    with device.second_device() as found:
        monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, found.record)
        monkeypatch.setattr(recorded_steps, "monotonic", found.launches.total)
        yield found


def _losses(model, train, validation, settings=SETTINGS) -> tuple[list[float], list[float]]:
    _, state = training_loop.fit(model, train, validation, settings)
    return state.losses, state.validation_nll


def _on_device(
    world: Callable, name: str, counts, settings=SETTINGS, **asked
) -> tuple[object, launches.Steps]:
    """Return losses and scores of a fit, and the counts of its steps."""
    model, train, validation = world(name, **asked)
    with launches.counted_steps(counts) as steps:
        found = _losses(model.to(device.DEVICE), train, validation, settings)
    return found, steps


@pytest.mark.parametrize("name", SINGLE)
def test_recorded_steps_give_the_numbers_of_the_cpu(name, world, counts):
    expected = _losses(*world(name))
    found, started = _on_device(world, name, counts)
    assert found == expected
    assert started.waits[-2] == 0  # of the last step, which has fewer rows
    whole = [
        n for step, n in enumerate(started.launches) if step % 5 < 4
    ]  # 4 steps of 40 rows, 1 of 30
    assert set(whole[recorded_steps.WARM_UP + recorded_steps.TIMED + 1 :]) == {3}
    assert min(whole[1 : recorded_steps.WARM_UP + recorded_steps.TIMED]) > 40


@pytest.mark.parametrize("name", REPEATED)
def test_steps_with_four_rows_at_each_input_are_recorded(name, world, counts, caplog):
    """Models of averages then learn from one mean and scatter for each input."""
    expected = _losses(*world(name, repeats=4))
    found, started = _on_device(world, name, counts, repeats=4)
    assert found == expected
    assert "not recorded" not in caplog.text
    # The first three steps fill a state and a table; the steps of a trial wait for its time.
    trial = recorded_steps.WARM_UP + 2 * recorded_steps.TIMED
    assert set(started.waits[3:]) <= {0, 1}
    assert 3 in started.launches[trial:]


@pytest.mark.parametrize("name", UNEQUAL)
def test_steps_with_unequal_numbers_of_rows_at_the_inputs_are_recorded(
    name, world, counts, monkeypatch, caplog
):
    """Steps with equally many inputs then have different numbers of rows."""
    plain = launches.world

    def unequal(name, n, seed, repeats=1):
        rows = plain(name, n, seed)
        if repeats == 1:
            return rows
        times = np.arange(n // 3) % 6 + 1
        at = np.repeat(np.arange(len(times)), times)[:n]
        return Data(rows.x[at], plain(name, len(at), seed + 5).y)

    monkeypatch.setattr(launches, "world", unequal)
    expected = _losses(*world(name, repeats=4))
    found, started = _on_device(world, name, counts, repeats=4)
    assert found == expected
    assert "not recorded" not in caplog.text
    assert 3 in started.launches[recorded_steps.WARM_UP + 2 * recorded_steps.TIMED :]


HIGH = {"dbk-rbf": 64, "sv-rbf": 130, "pp-dkl": 130, "vbll": 130, "sv-t-process": 64, "cox": 130}


@pytest.mark.parametrize(("name", "r"), HIGH.items())
def test_steps_of_a_high_rank_are_recorded(name, r, world, counts, caplog):
    """Solves and factorisations of 64 and more columns take other ways than small ones."""
    found, started = _on_device(world, name, counts, r=r)
    assert "not recorded" not in caplog.text
    assert started.launches[-2] == 3
    np.testing.assert_allclose(found, _losses(*world(name, r=r)), rtol=1e-4)


@pytest.mark.parametrize(
    "waiting",
    [
        lambda model: float(model.mean_constant.detach()),
        lambda model: model.mean_constant.detach().cpu(),
        lambda model: torch.ones(3).to(model.device),
        lambda model: torch.ones(3).pin_memory().to(model.device, non_blocking=True),
    ],
)
def test_a_step_that_waits_cannot_be_recorded(waiting, world, counts, monkeypatch, caplog):
    terms = LowRankProcess.terms

    def with_a_wait(model, x):
        waiting(model)
        return terms(model, x)

    monkeypatch.setattr(LowRankProcess, "terms", with_a_wait)
    found, started = _on_device(world, "dbk-silu", counts)
    assert "not recorded, and may be slower: operation not permitted when stream" in caplog.text
    assert started.launches[-2] == started.launches[2]
    assert found == _losses(*world("dbk-silu"))


def test_steps_with_clipped_gradients_are_recorded(world, counts, caplog):
    settings = replace(SETTINGS, clip=0.5)
    found, started = _on_device(world, "sv-rbf", counts, settings)
    assert "not recorded" not in caplog.text
    assert started.launches[-2] == 3
    assert found == _losses(*world("sv-rbf"), settings)


@pytest.mark.parametrize(("decay", "fills"), [("constant", 1), ("cosine", 15)])
def test_rates_are_filled_when_they_change(decay, fills, world, counts):
    model, train, validation = world("bll")
    training_loop.fit(
        model.to(device.DEVICE), train, validation, replace(SETTINGS, decay=decay, average=0.0)
    )
    # Three groups of parameters, and mean and deviation of the target.
    assert counts.launches["fill_"] == 3 * fills + 2


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
            if len(replays) == 5:
                loss.fill_(torch.nan)

        return loss, spoiled

    monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, record)
    settings = replace(SETTINGS, epochs=4)
    found, started = _on_device(world, "dbk-rbf", counts, settings)
    assert found == _losses(*world("dbk-rbf"), settings)
    assert len(started.launches) == 5 * (settings.epochs + 1)
    assert len(replays) < 8
    assert started.launches[-2] > 100


def test_a_fit_leaves_no_recorded_step_for_the_collector(world, counts, monkeypatch):
    """The memory of a graph is free as soon as the fit ends."""
    kept = []

    def record(step):
        loss, start = counts.record(step)
        kept.append(weakref.ref(start))
        return loss, start

    monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, record)
    gc.collect()
    gc.disable()
    try:
        model, train, validation = world("dnn")
        _losses(model.to(device.DEVICE), train, validation)
        assert [ref() for ref in kept] == [None]
    finally:
        gc.enable()
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_failed_recording_is_ended_by_whoever_left_it_open(waits, is_new, monkeypatch):
    """By imitations of PyTorch: old versions leave the pool in use, new ones end its use."""
    done, is_open = [], True

    class Graph:
        def __enter__(self):
            assert not gc.isenabled()

        def __exit__(self, *_):
            nonlocal is_open
            is_open = waits and not is_new
            if waits:
                raise RuntimeError("capture invalidated")

    def end(_device, pool):
        if not is_open:
            raise RuntimeError("not recording")
        done.append(("end", pool))

    generator = SimpleNamespace(clone_state=lambda: "numbers", graphsafe_set_state=done.append)
    stream = SimpleNamespace(device_index=0)
    cuda = {
        "CUDAGraph": lambda: "graph",
        "graph_pool_handle": lambda: "pool",
        "current_stream": lambda: stream,
        "set_stream": done.append,
        "default_generators": [generator],
        "graph": lambda *_, **__: Graph(),
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_releasePool", lambda *_: done.append("release"), raising=False
    )

    def step():
        raise RuntimeError("operation not permitted")

    with pytest.raises(RuntimeError, match="operation not permitted"):
        recorded_steps.cuda_graph(step)
    ended = [("end", "pool"), "release"] if waits and not is_new else []
    assert done == [stream, "numbers", *ended]
    assert gc.isenabled()


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
    assert seen.count({False}) == len(seen) - 1 == 3 + 2 + 3  # 3 steps have 30 rows


@pytest.mark.usefixtures("padding_of_a_gpu", "short_field_fits")
def test_steps_of_whole_places_are_recorded_once_for_all_epochs(world, counts):
    """Half of the epochs of `field` have single rows, and the others have whole places."""
    settings = replace(SETTINGS, epochs=6)
    expected = _losses(*world("field"), settings)
    found, started = _on_device(world, "field", counts, settings)
    assert found == expected
    assert not any(started.waits[-8:])
    single, places = started.launches[:15], started.launches[15:]
    tried = recorded_steps.WARM_UP + 2 * recorded_steps.TIMED
    assert {n for step, n in enumerate(single) if step % 5 < 4 and step > 9} == {3}
    assert set(places[tried:]) == {3}
    assert min(places[1 : tried - recorded_steps.TIMED]) > 100
