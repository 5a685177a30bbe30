"""Training: progress, the best epoch, and fits that stop and continue with the same numbers."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geogp.errors import DataError, NumericalError
from geogp.models import training
from geogp.models.lowrank import LowRankGP
from geogp.models.storage import save_model
from geogp.models.training import Data, FitSettings, FitState, fit


def _history(state: FitState) -> dict[str, Any]:
    """All of a state but the time it took."""
    return {key: value for key, value in asdict(state).items() if key != "seconds"}


def _assert_same(first: LowRankGP, second: LowRankGP) -> None:
    a, b = first.state_dict(), second.state_dict()
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


def _stop_after(*epochs: int, error: type[BaseException] = KeyboardInterrupt) -> training.Progress:
    def stop(state: FitState, _total: int) -> None:
        if state.epoch in epochs:
            raise error

    return stop


class TestProgress:
    @pytest.mark.parametrize("name", ["dbk-rbf", "sv-rbf", "sv-dkl"])
    def test_the_loss_falls(self, *, name, train, validation, with_settings, make_model, device):
        model = make_model(name).to(device)
        settings = with_settings(epochs=25, learning_rate=3e-2)
        state = fit(model, train, validation, settings)
        assert state.losses[-1] < state.losses[0] - 1
        error = model.predict(validation.x).mean - validation.y
        assert np.sqrt(np.mean(error**2)) < 0.7 * validation.y.std()
        assert len(state.losses) == len(state.validation_nll) == state.epoch == 25
        assert state.seconds > 0

    @pytest.mark.parametrize("settle", ["constant", "cosine"])
    def test_the_best_epoch_is_kept(self, settle, train, validation, make_model):
        settings = FitSettings(epochs=30, batch=40, learning_rate=0.1, decay=settle)
        model = make_model(dtype="float64")
        state = fit(model, train, validation, settings)
        assert state.best_epoch not in {1, state.epoch}
        assert state.best_nll == min(state.validation_nll)
        assert state.best_epoch == int(np.argmin(state.validation_nll)) + 1
        score = model.predict(validation.x).log_score(validation.y).mean()
        assert score == state.best_nll

    def test_progress_is_told_after_every_epoch(self, train, validation, quick, make_model):
        told = []
        fit(
            make_model(),
            train,
            validation,
            quick,
            progress=lambda state, total: told.append((state.epoch, len(state.losses), total)),
        )
        assert told == [(k, k, 6) for k in range(1, 7)]

    def test_a_seed_fixes_the_fit(self, train, validation, quick, make_model):
        models = [make_model() for _ in range(3)]
        seeds = (0, 0, 1)
        states = [
            fit(model, train, validation, replace(quick, seed=seed))
            for model, seed in zip(models, seeds, strict=True)
        ]
        _assert_same(models[0], models[1])
        assert _history(states[0]) == _history(states[1])
        assert not torch.equal(models[0].posterior.m, models[2].posterior.m)

    def test_every_row_once_per_epoch_in_a_new_order(
        self, train, validation, quick, make_model, monkeypatch
    ):
        model, seen = make_model("sv-rbf", dtype="float64"), []
        whole = model.terms
        monkeypatch.setattr(
            model,
            "terms",
            lambda x: (seen.append(x.numpy()) if torch.is_grad_enabled() else None) or whole(x),
        )
        fit(model, train, validation, replace(quick, epochs=2))
        assert [len(part) for part in seen] == 2 * [40, 40, 40, 40, 30]
        first, second = np.vstack(seen[:5]), np.vstack(seen[5:])
        for order in (first, second):
            np.testing.assert_array_equal(np.unique(order, axis=0), np.unique(train.x, axis=0))
            assert not np.array_equal(order, train.x)
        assert not np.array_equal(first, second)

    def test_n_is_that_of_the_training_rows(
        self, train, validation, quick, make_model, monkeypatch
    ):
        given = []

        def objective(terms, y, n, weights):
            given.append((n, weights))
            return terms.mean.square().mean() + y.mean()

        monkeypatch.setattr(training, "find_spec", lambda _: _Spec(objective))
        fit(make_model(), train, validation, replace(quick, epochs=1))
        assert given == 5 * [(190, quick.weights)]

    def test_the_loss_is_the_mean_over_rows_and_not_over_batches(
        self, train, validation, with_settings, make_model, monkeypatch
    ):
        def objective(terms, y, _n, _weights):
            return 0 * terms.mean.sum() + y.mean() + 3

        monkeypatch.setattr(training, "find_spec", lambda _: _Spec(objective))
        data = Data(train.x, train.y + np.linspace(0, 5, 190))
        model = make_model(dtype="float64")
        state = fit(model, data, validation, with_settings(epochs=3))
        # The standardised target has mean 0 over the rows.
        assert state.losses == pytest.approx([3, 3, 3], abs=1e-12)


class _Spec:
    def __init__(self, objective: Callable[..., torch.Tensor]) -> None:
        self.objective = objective


class TestSchedule:
    @pytest.fixture
    def rates(self, monkeypatch) -> list[float]:
        """The learning rate at every step, as the optimiser saw it."""
        made, seen = training._optimiser, []

        def watched(model, settings):
            optimiser = made(model, settings)
            optimiser.register_step_pre_hook(
                lambda opt, *_: seen.append({group["lr"] for group in opt.param_groups})
            )
            return optimiser

        monkeypatch.setattr(training, "_optimiser", watched)
        return seen

    def test_cosine_falls_to_zero(self, train, validation, quick, make_model, rates):
        fit(make_model(), train, validation, quick)
        share = np.arange(30) / 30
        expected = 1e-2 * 0.5 * (1 + np.cos(np.pi * share))
        assert all(len(groups) == 1 for groups in rates)
        np.testing.assert_allclose([groups.pop() for groups in rates], expected, rtol=1e-12)
        assert expected[-1] < 0.005 * expected[0]

    def test_constant_does_not(self, train, validation, with_settings, make_model, rates):
        fit(make_model(), train, validation, with_settings(decay="constant"))
        assert rates == 30 * [{1e-2}]

    def test_weight_decay_on_the_network_only(self, make_model, quick):
        model = make_model("dbk-rbf")
        names = {id(value): name for name, value in model.named_parameters()}
        optimiser = training._optimiser(model, replace(quick, weight_decay=0.03))
        decayed = {
            names.pop(id(value)): group["weight_decay"]
            for group in optimiser.param_groups
            for value in group["params"]
        }
        assert not names
        assert all(
            decay == (0.03 if name.startswith("basis.backbone.") else 0)
            for name, decay in decayed.items()
        )
        assert sum(decay > 0 for decay in decayed.values()) == 10

    def test_without_a_network_nothing_decays(self, make_model, quick):
        model = make_model("sv-rbf")
        optimiser = training._optimiser(model, quick)
        assert [group["weight_decay"] for group in optimiser.param_groups] == [0]
        assert len(optimiser.param_groups[0]["params"]) == len(list(model.parameters()))

    def test_patience_ends_a_fit_that_no_longer_improves(self, train, validation, make_model):
        settings = FitSettings(epochs=50, batch=40, learning_rate=0.0, patience=3)
        state = fit(make_model(), train, validation, settings)
        assert (state.best_epoch, state.epoch) == (1, 4)
        assert len(state.losses) == 4

    def test_patience_waits_while_the_score_improves(self, train, validation, make_model):
        settings = FitSettings(epochs=12, batch=40, learning_rate=1e-3, patience=1)
        assert fit(make_model(), train, validation, settings).epoch == 12


class TestInterruption:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        return tmp_path / "run" / "checkpoint"

    @pytest.fixture
    def whole(self, train, validation, quick, make_model) -> tuple[LowRankGP, FitState]:
        model = make_model()
        return model, fit(model, train, validation, quick)

    def _continue(self, whole, how, model, path) -> None:
        state = fit(model, *how, checkpoint=path)
        _assert_same(model, whole[0])
        assert _history(state) == _history(whole[1])

    def test_a_checkpoint_changes_nothing(
        self, *, whole, train, validation, quick, make_model, path
    ):
        self._continue(whole, (train, validation, quick), make_model(), path)
        assert path.exists()

    @pytest.mark.parametrize("epoch", [1, 3, 5])
    def test_continued(self, *, epoch, whole, train, validation, quick, make_model, path):
        with pytest.raises(KeyboardInterrupt):
            fit(
                make_model(),
                train,
                validation,
                quick,
                checkpoint=path,
                progress=_stop_after(epoch),
            )
        # The start must come from the checkpoint, so another one is given.
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_continued_twice(self, *, whole, train, validation, quick, make_model, path):
        for seed, epoch in ((0, 2), (8, 4)):
            with pytest.raises(KeyboardInterrupt):
                fit(
                    make_model(seed=seed),
                    train,
                    validation,
                    quick,
                    checkpoint=path,
                    progress=_stop_after(epoch),
                )
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_after_the_end(self, *, whole, train, validation, quick, make_model, path):
        fit(make_model(), train, validation, quick, checkpoint=path)
        told = []
        model = make_model(seed=9)
        state = fit(
            model,
            train,
            validation,
            quick,
            checkpoint=path,
            progress=lambda *args: told.append(args),
        )
        assert not told
        _assert_same(model, whole[0])
        assert _history(state) == _history(whole[1])

    def test_within_an_epoch_goes_back_to_its_start(
        self, *, whole, train, validation, quick, make_model, path, monkeypatch
    ):
        model, calls = make_model(), []
        terms = model.terms

        def interrupted(x: torch.Tensor) -> object:
            calls.append(len(x))
            if len(calls) == 15:  # 5 steps and one validation in each epoch: in the third
                raise KeyboardInterrupt
            return terms(x)

        monkeypatch.setattr(model, "terms", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(model, train, validation, quick, checkpoint=path)
        assert training.read_tensors(path)[1]["epoch"] == 2
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_between_the_end_of_an_epoch_and_its_copy(
        self, *, whole, train, validation, quick, make_model, path, monkeypatch
    ):
        """The state counts the epoch already, the copy of the tensors does not hold it yet."""
        told, clock = [], training.monotonic

        def interrupted() -> float:
            if len(told) == 2 and len(states[0].losses) == 3:
                raise KeyboardInterrupt
            return clock()

        def tell(state: FitState, _total: int) -> None:
            told.append(state.epoch)
            states.append(state)

        states: list[FitState] = []
        monkeypatch.setattr(training, "monotonic", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(make_model(), train, validation, quick, checkpoint=path, progress=tell)
        monkeypatch.undo()
        assert training.read_tensors(path)[1]["epoch"] == 2
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_in_the_first_epoch(self, *, whole, train, validation, quick, make_model, path):
        model = make_model()
        model.terms = _interrupt
        with pytest.raises(KeyboardInterrupt):
            fit(model, train, validation, quick, checkpoint=path)
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_killed_between_two_writings(
        self, *, whole, train, validation, quick, make_model, path, monkeypatch
    ):
        """No chance to write at the end: the last timed checkpoint serves."""
        monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
        with pytest.raises(ZeroDivisionError):
            fit(
                make_model(),
                train,
                validation,
                quick,
                checkpoint=path,
                progress=_stop_after(4, error=ZeroDivisionError),
            )
        assert training.read_tensors(path)[1]["epoch"] == 4
        self._continue(whole, (train, validation, quick), make_model(seed=9), path)

    def test_not_written_more_often_than_stated(
        self, *, train, validation, quick, make_model, path, monkeypatch
    ):
        clock, written = [0.0], []
        monkeypatch.setattr(training, "monotonic", lambda: clock[0])
        monkeypatch.setattr(
            training, "write_tensors", lambda _path, _tensors, words: written.append(words["epoch"])
        )

        def tick(*_args: object) -> None:
            clock[0] += 6.0

        fit(make_model(), train, validation, quick, checkpoint=path, progress=tick)
        # Epochs end at 0, 6, 12, ... seconds; the last is written because the fit is over.
        assert written == [3, 5, 6]

    def test_with_patience(self, train, validation, quick, make_model, path):
        settings = replace(quick, epochs=50, learning_rate=0.3, decay="constant", patience=4)
        expected = make_model()
        state = fit(expected, train, validation, settings)
        assert 4 < state.epoch < 50
        with pytest.raises(KeyboardInterrupt):
            fit(
                make_model(),
                train,
                validation,
                settings,
                checkpoint=path,
                progress=_stop_after(state.best_epoch + 2),
            )
        self._continue((expected, state), (train, validation, settings), make_model(seed=9), path)

    @pytest.mark.parametrize("name", ["sv-rbf", "sv-dkl"])
    def test_of_the_other_models(self, *, name, train, validation, quick, make_model, path, device):
        expected = make_model(name).to(device)
        state = fit(expected, train, validation, quick)
        with pytest.raises(KeyboardInterrupt):
            fit(
                make_model(name).to(device),
                train,
                validation,
                quick,
                checkpoint=path,
                progress=_stop_after(2),
            )
        model = make_model(name, seed=9).to(device)
        self._continue((expected, state), (train, validation, quick), model, path)

    def test_without_a_checkpoint_an_interruption_passes_through(
        self, train, validation, quick, make_model, tmp_path
    ):
        with pytest.raises(KeyboardInterrupt):
            fit(make_model(), train, validation, quick, progress=_stop_after(1))
        assert not list(tmp_path.iterdir())


def _interrupt(_x: torch.Tensor) -> None:
    raise KeyboardInterrupt


class TestCheckpointsOfOthers:
    @pytest.fixture
    def path(self, tmp_path, train, validation, quick, make_model) -> Path:
        made = tmp_path / "checkpoint"
        with pytest.raises(KeyboardInterrupt):
            fit(
                make_model(),
                train,
                validation,
                quick,
                checkpoint=made,
                progress=_stop_after(2),
            )
        return made

    @pytest.mark.parametrize(
        "changed",
        [
            {"epochs": 7},
            {"learning_rate": 2e-2},
            {"seed": 1},
            {"weights": training.Weights(0.1, 0.02)},
            {"decay": "constant"},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_other_settings(self, *, changed, path, train, validation, quick, make_model):
        with pytest.raises(DataError, match="belongs to another fit"):
            fit(make_model(), train, validation, replace(quick, **changed), checkpoint=path)

    @pytest.mark.parametrize("part", ["x", "y"])
    @pytest.mark.parametrize("rows", ["train", "validation"])
    def test_other_data(self, *, part, rows, path, train, validation, quick, make_model):
        data = {"train": train, "validation": validation}
        values = getattr(data[rows], part).copy()
        values.flat[7] += 1e-9
        data[rows] = replace(data[rows], **{part: values})
        with pytest.raises(DataError, match="belongs to another fit"):
            fit(make_model(), data["train"], data["validation"], quick, checkpoint=path)

    @pytest.mark.parametrize("other", [{"name": "sv-dkl"}, {"dtype": "float64"}])
    def test_another_model(self, *, other, path, train, validation, quick, make_model):
        with pytest.raises(DataError, match="belongs to another fit"):
            fit(make_model(**other), train, validation, quick, checkpoint=path)

    def test_a_saved_model_is_no_checkpoint(self, tmp_path, train, validation, quick, make_model):
        save_model(make_model(), tmp_path / "model")
        with pytest.raises(DataError, match="belongs to another fit"):
            fit(make_model(), train, validation, quick, checkpoint=tmp_path / "model")

    def test_cut_short(self, path, train, validation, quick, make_model):
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match="not a whole file of tensors"):
            fit(make_model(), train, validation, quick, checkpoint=path)


class TestRefusals:
    # 1.1 has a standard deviation of 2e-16 over seven rows.
    @pytest.mark.parametrize(("value", "n"), [(3.0, 190), (1.1, 7), (0.0, 5), (2.5, 1)])
    def test_a_constant_target(self, *, value, n, make_data, validation, quick, make_model):
        data = make_data(n)
        constant = Data(data.x, np.full(n, value))
        with pytest.raises(DataError, match=f"same value in all {n} training rows"):
            fit(make_model(), constant, validation, quick)

    @pytest.mark.parametrize(
        ("x", "y", "message"),
        [
            (np.zeros((3, 2)), np.zeros(2), r"found \(3, 2\) and \(2,\)"),
            (np.zeros(3), np.zeros(3), r"found \(3,\) and \(3,\)"),
            (np.zeros((3, 2)), np.zeros((3, 1)), r"found \(3, 2\) and \(3, 1\)"),
            (np.zeros((0, 2)), np.zeros(0), "n >= 1"),
            (np.full((3, 2), np.nan), np.zeros(3), "expected finite"),
            (np.zeros((3, 2)), np.array([0, np.inf, 1]), "expected finite"),
        ],
    )
    def test_data(self, x, y, message):
        with pytest.raises(DataError, match=message):
            Data(x, y)

    @pytest.mark.parametrize("name", ["dbk-rbf", "sv-rbf", "sv-dkl"])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_divergence(self, *, name, dtype, train, validation, with_settings, make_model):
        with pytest.raises(NumericalError):
            fit(make_model(name, dtype=dtype), train, validation, with_settings(learning_rate=1e6))

    def test_a_loss_that_is_not_finite(self, train, validation, quick, make_model, monkeypatch):
        def objective(terms, y, _n, _weights):
            return 0 * terms.mean.sum() + math.inf * y.square().mean()

        monkeypatch.setattr(training, "find_spec", lambda _: _Spec(objective))
        monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: None)
        with pytest.raises(NumericalError, match=r"diverged in epoch 1: .* Lower the learning"):
            fit(make_model(), train, validation, quick)
