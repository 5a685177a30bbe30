"""Training: progress, the best epoch, and fits that stop and continue with the same numbers."""

import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geogp.errors import DataError, NumericalError, RequestError
from geogp.models.catalogue import build as build_model
from geogp.models.catalogue.build import build
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.catalogue.storage import save_model
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import loop as training
from geogp.models.fitting import steps as fit_steps
from geogp.models.fitting.loop import FitState, fit
from geogp.models.fitting.steps import PerBatch, WholeData
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.options import Weights
from geogp.models.papers.mixed_nystrom.nystrom import AnchorBasis
from geogp.models.process import lowrank
from geogp.models.process import rows as process_rows
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.objectives import BatchObjective


def _history(state: FitState) -> dict[str, Any]:
    """All of a state but the time it took."""
    return {key: value for key, value in asdict(state).items() if key != "seconds"}


def _assert_same(first: LowRankProcess, second: LowRankProcess) -> None:
    a, b = first.state_dict(), second.state_dict()
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


def _stop_after(*epochs: int, error: type[BaseException] = KeyboardInterrupt) -> training.Progress:
    def stop(state: FitState, _total: int) -> None:
        if state.epoch in epochs:
            raise error

    return stop


@pytest.fixture
def attempt(train, validation, quick, make_model) -> Callable[..., FitState]:
    """Fit a model to the training rows; by default a new one, with the settings `quick`."""

    def run(
        model: LowRankProcess | None = None,
        settings: FitSettings = quick,
        *,
        rows: Data = train,
        held: Data = validation,
        **watch: Any,
    ) -> FitState:
        _, state = fit(make_model() if model is None else model, rows, held, settings, **watch)
        return state

    return run


NAMES = sorted(
    name for name, spec in CATALOGUE.items() if not (spec.about.has_tiles or spec.about.counts)
)

ADAM = sorted(
    name
    for name, spec in CATALOGUE.items()
    if spec.about.family == "deep" and name != "sv-t-process"
)
"""Those without fixed parameters, and without a random scale; they have tests of their own."""


class TestProgress:
    @pytest.mark.trial
    @pytest.mark.parametrize("name", NAMES)
    def test_the_loss_falls(self, *, name, validation, with_settings, make_model, device, attempt):
        model = make_model(name).to(device)
        # The scales of a dense layer start slowly, and exact inference takes one step per epoch.
        epochs = 25 if name in {"dbk-rbf", "sv-rbf", "sv-dkl", "pp-dkl"} else 60
        settings = with_settings(epochs=epochs, learning_rate=3e-2)
        state = attempt(model, settings)
        # The squared error of a standardised target starts near 1; the few parameters of a kernel
        # go slowly at this rate.
        squared = "noise.variance" in model.state_dict()
        few = type(model.basis) is AnchorBasis
        assert state.losses[-1] < state.losses[0] - (0.1 if few else 0.7 if squared else 1)
        error = model.predict(validation.x).mean - validation.y
        assert np.sqrt(np.mean(error**2)) < 0.7 * validation.y.std()
        assert len(state.losses) == len(state.validation_nll) == state.epoch == epochs
        assert state.seconds > 0

    @pytest.mark.parametrize("settle", ["constant", "cosine"])
    def test_the_best_epoch_is_kept(self, settle, validation, make_model, attempt):
        settings = FitSettings(epochs=30, batch=40, learning_rate=0.1, decay=settle)
        model = make_model(dtype="float64")
        state = attempt(model, settings)
        assert state.best_epoch not in {1, state.epoch}
        assert state.best_nll == min(state.validation_nll)
        assert state.best_epoch == int(np.argmin(state.validation_nll)) + 1
        score = model.predict(validation.x).log_score(validation.y).mean()
        assert score == state.best_nll

    def test_with_many_validation_rows_some_of_them_choose_the_epoch(
        self, validation, make_model, attempt, monkeypatch
    ):
        settings = FitSettings(epochs=4, batch=40, learning_rate=0.1)
        every = attempt(make_model(dtype="float64"), settings)
        monkeypatch.setattr(training, "MOST_JUDGING", 9)
        model = make_model(dtype="float64")
        state = attempt(model, settings)
        assert state.losses == every.losses  # the steps are the same
        chosen = training._judging(len(validation.y))
        assert len(np.unique(chosen)) == 9
        scores = model.predict(validation.x).log_score(validation.y)
        assert scores[chosen].mean() == pytest.approx(state.best_nll, rel=1e-9)

    def test_progress_is_told_after_every_epoch(self, attempt):
        told = []
        attempt(progress=lambda state, total: told.append((state.epoch, len(state.losses), total)))
        assert told == [(k, k, 6) for k in range(1, 7)]

    def test_a_seed_fixes_the_fit(self, quick, make_model, attempt):
        models = [make_model() for _ in range(3)]
        seeds = (0, 0, 1)
        states = [
            attempt(model, replace(quick, seed=seed))
            for model, seed in zip(models, seeds, strict=True)
        ]
        _assert_same(models[0], models[1])
        assert _history(states[0]) == _history(states[1])
        assert not torch.equal(models[0].posterior.m, models[2].posterior.m)

    def test_every_row_once_per_epoch_in_a_new_order(
        self, train, quick, make_model, monkeypatch, attempt
    ):
        model, seen = make_model("sv-rbf", dtype="float64"), []
        whole = model.terms
        monkeypatch.setattr(
            model,
            "terms",
            lambda x: (seen.append(x.numpy()) if torch.is_grad_enabled() else None) or whole(x),
        )
        attempt(model, replace(quick, epochs=2))
        assert [len(part) for part in seen] == 2 * [40, 40, 40, 40, 30]
        first, second = np.vstack(seen[:5]), np.vstack(seen[5:])
        for order in (first, second):
            np.testing.assert_array_equal(np.unique(order, axis=0), np.unique(train.x, axis=0))
            assert not np.array_equal(order, train.x)
        assert not np.array_equal(first, second)

    def test_n_is_that_of_the_training_rows(self, quick, monkeypatch, attempt):
        given = []

        def objective(terms, y, n, weights):
            given.append((n, weights))
            return terms.mean.square().mean() + y.mean()

        _use(monkeypatch, objective)
        attempt(settings=replace(quick, epochs=1))
        assert given == 5 * [(190, quick.weights)]

    def test_the_loss_is_the_mean_over_rows_and_not_over_batches(
        self, train, with_settings, make_model, monkeypatch, attempt
    ):
        def objective(terms, y, _n, _weights):
            return 0 * terms.mean.sum() + y.mean() + 3

        _use(monkeypatch, objective)
        data = Data(train.x, train.y + np.linspace(0, 5, 190))
        model = make_model(dtype="float64")
        state = attempt(model, with_settings(epochs=3), rows=data)
        # The standardised target has mean 0 over the rows.
        assert state.losses == pytest.approx([3, 3, 3], abs=1e-12)

    @pytest.mark.parametrize("name", NAMES)
    def test_chunks_change_nothing(self, name, with_settings, make_model, monkeypatch, attempt):
        settings = with_settings(epochs=2)
        whole, parts = make_model(name, dtype="float64"), make_model(name, dtype="float64")
        expected = attempt(whole, settings)
        for module in (lowrank, process_rows, fit_steps):
            monkeypatch.setattr(module, "CHUNK", 33)
        state = attempt(parts, settings)
        assert state.losses == pytest.approx(expected.losses, rel=1e-9)
        assert state.validation_nll == pytest.approx(expected.validation_nll, rel=1e-9)
        values = parts.state_dict()
        for key, value in whole.state_dict().items():
            torch.testing.assert_close(values[key], value, rtol=1e-6, atol=1e-8, msg=key)

    @pytest.mark.parametrize("name", ADAM)
    def test_what_the_gradient_does_not_reach_comes_from_its_own_rows(
        self, name, train, validation, make_model, attempt
    ):
        """Exact weights and the largest norm: training rows; the noise of a network: validation."""
        model = make_model(name, dtype="float64")
        attempt(model)
        buffers = dict(model.named_buffers())
        with torch.no_grad():
            found = model.basis(model.scaled(train.x))
            phi, norm = found.phi.numpy(), found.norm.numpy()
            noise, constant = model.noise().item(), model.mean_constant.item()
        checked = {"x_low", "x_high", "y_mean", "y_sd", "widening"}
        if "posterior.L" in buffers:
            e = (train.y - train.y.mean()) / train.y.std() - constant
            added = norm.max() - norm if "diagonal.largest" in buffers else np.zeros_like(norm)
            V = np.diag(noise + added)
            F = buffers.get("enrichment", torch.eye(phi.shape[1]).double()).numpy()
            S = np.linalg.inv(np.linalg.inv(F @ F.T) + phi.T @ np.linalg.solve(V, phi))
            L = buffers["posterior.L"].numpy()
            np.testing.assert_allclose(L @ L.T, S, rtol=1e-6, atol=1e-9)
            checked |= {"posterior.L"}
        if "posterior.m" in buffers:
            m = S @ phi.T @ np.linalg.solve(V, e)
            np.testing.assert_allclose(buffers["posterior.m"], m, rtol=1e-6, atol=1e-8)
            checked |= {"posterior.m"}
        if "enrichment" in buffers:  # its own tests: test_rich.py
            assert buffers["enrichment_rows"].item() == (190 if name == "rich-bll" else 0)
            checked |= {"enrichment", "enrichment_rows"}
        if "diagonal.largest" in buffers:
            assert buffers["diagonal.largest"].item() == pytest.approx(norm.max(), rel=1e-12)
            checked |= {"diagonal.largest"}
        if "noise.variance" in buffers:
            errors = model.predict(validation.x).mean - validation.y
            expected = np.mean(errors**2) / train.y.var()
            assert noise == pytest.approx(expected, rel=1e-9)
            checked |= {"noise.variance"}
        assert buffers.keys() == checked
        assert model.y_mean.item() == pytest.approx(train.y.mean(), rel=1e-12)
        assert model.y_sd.item() == pytest.approx(train.y.std(), rel=1e-12)

    @pytest.mark.parametrize("name", ADAM)
    def test_rows_of_a_step(self, name, quick, make_model, monkeypatch, attempt):
        """Batches of the size asked for, but all rows where the objective does not split."""
        kind, given = CATALOGUE[name].fit.func, []
        backward = kind.backward
        monkeypatch.setattr(
            kind,
            "backward",
            lambda self, rows, n, weights: (
                given.append((len(rows.x), len(rows.y), n)) or backward(self, rows, n, weights)
            ),
        )
        attempt(make_model(name), replace(quick, epochs=2))
        sizes = [190] if issubclass(kind, WholeData) else [40, 40, 40, 40, 30]
        assert given == 2 * [(size, size, 190) for size in sizes]


def _use(monkeypatch: pytest.MonkeyPatch, objective: BatchObjective) -> None:
    """Train on another objective than that of the catalogue."""
    other = partial(PerBatch, objective=objective)
    monkeypatch.setattr(build_model, "find_spec", lambda name: replace(CATALOGUE[name], fit=other))


class TestSchedule:
    @pytest.fixture
    def taken(self, monkeypatch) -> list[dict[str, tuple[float, torch.Tensor]]]:
        """Learning rate and gradient of each parameter at every step, as the optimiser saw them."""
        made, seen = training.make_optimiser, []

        def watched(trained, settings):
            optimiser = made(trained, settings)
            names = {id(value): name for name, value in trained.process.named_parameters()}
            optimiser.register_step_pre_hook(
                lambda opt, *_: seen.append(
                    {
                        names[id(value)]: (float(group["lr"]), value.grad.clone())
                        for group in opt.param_groups
                        for value in group["params"]
                    }
                )
            )
            return optimiser

        monkeypatch.setattr(training, "make_optimiser", watched)
        return seen

    def test_cosine_falls_to_zero(self, taken, attempt):
        attempt()
        share = np.arange(30) / 30
        expected = 1e-2 * 0.5 * (1 + np.cos(np.pi * share))
        assert len(taken) == 30
        for step, rate in zip(taken, expected, strict=True):
            np.testing.assert_allclose([lr for lr, _ in step.values()], rate, rtol=1e-12)
        assert expected[-1] < 0.005 * expected[0]

    def test_constant_does_not(self, with_settings, taken, attempt):
        attempt(settings=with_settings(decay="constant"))
        assert [{lr for lr, _ in step.values()} for step in taken] == 30 * [{1e-2}]

    @pytest.mark.parametrize("name", ADAM)
    def test_head_rate_is_that_of_all_but_the_network(
        self, name, with_settings, make_model, taken, attempt
    ):
        model = make_model(name)
        attempt(model, with_settings(epochs=2, head_rate=7.0))
        own_rates = model.make_fit(model).rates()
        share = np.arange(len(taken)) / len(taken)
        rates = 1e-2 * 0.5 * (1 + np.cos(np.pi * share))
        for step, rate in zip(taken, rates, strict=True):
            assert step.keys() == dict(model.named_parameters()).keys()
            for key, (lr, _) in step.items():
                factor = 1 if key.startswith("basis.backbone.") else 7
                own = own_rates.get(key, 1.0)
                assert lr == pytest.approx(own * factor * rate, rel=1e-12), key

    @pytest.mark.parametrize("name", NAMES)
    def test_clip_bounds_the_norm_of_the_gradient(
        self, name, with_settings, make_model, taken, attempt
    ):
        def first(clip: float | None) -> tuple[float, torch.Tensor]:
            taken.clear()
            settings = with_settings(epochs=1, clip=clip)
            attempt(make_model(name, dtype="float64"), settings)
            flat = [torch.cat([g.reshape(-1) for _, g in step.values()]) for step in taken]
            return max(gradient.norm().item() for gradient in flat), flat[0]

        free, direction = first(None)
        size = direction.norm().item()
        bounded, clipped = first(0.1 * size)
        assert bounded <= 0.1 * size * (1 + 1e-9)
        # One factor for all parameters: the direction stays.
        torch.testing.assert_close(clipped, 0.1 * direction, rtol=1e-4, atol=1e-9)
        loose, kept = first(2 * free)
        assert loose == free
        assert torch.equal(kept, direction)

    def test_weight_decay_on_the_network_only(self, make_model, quick):
        model = make_model("dbk-rbf")
        names = {id(value): name for name, value in model.named_parameters()}
        optimiser = training.make_optimiser(
            model.make_fit(model), replace(quick, weight_decay=0.03)
        )
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
        optimiser = training.make_optimiser(model.make_fit(model), quick)
        assert {group["weight_decay"] for group in optimiser.param_groups} == {0}
        held = [id(value) for group in optimiser.param_groups for value in group["params"]]
        assert sorted(held) == sorted(id(value) for value in model.parameters())

    def test_patience_ends_a_fit_that_no_longer_improves(self, attempt):
        settings = FitSettings(epochs=50, batch=40, learning_rate=1e-30, patience=3)
        state = attempt(settings=settings)
        assert (state.best_epoch, state.epoch) == (1, 4)
        assert len(state.losses) == 4

    def test_patience_waits_while_the_score_improves(self, attempt):
        settings = FitSettings(epochs=12, batch=40, learning_rate=1e-3, patience=1)
        assert attempt(settings=settings).epoch == 12


class TestInterruption:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        return tmp_path / "run" / "checkpoint"

    @pytest.fixture
    def whole(self, make_model, attempt) -> tuple[LowRankProcess, FitState]:
        model = make_model()
        return model, attempt(model)

    @pytest.fixture
    def continued(self, whole, path, make_model, attempt) -> Callable[..., None]:
        """Continue a stopped fit, which must end like the whole fit."""

        def go(model: LowRankProcess | None = None, expected: Any = whole, **how: Any) -> None:
            # The start must come from the checkpoint, so another one is given.
            model = make_model(seed=9) if model is None else model
            state = attempt(model, checkpoint=path, **how)
            _assert_same(model, expected[0])
            assert _history(state) == _history(expected[1])

        return go

    def test_a_checkpoint_changes_nothing(self, make_model, path, continued):
        continued(make_model())
        assert path.exists()

    @pytest.mark.parametrize("epoch", [1, 3, 5])
    def test_continued(self, epoch, path, attempt, continued):
        with pytest.raises(KeyboardInterrupt):
            attempt(checkpoint=path, progress=_stop_after(epoch))
        continued()

    def test_continued_twice(self, make_model, path, attempt, continued):
        for seed, epoch in ((0, 2), (8, 4)):
            with pytest.raises(KeyboardInterrupt):
                attempt(make_model(seed=seed), checkpoint=path, progress=_stop_after(epoch))
        continued()

    def test_after_the_end(self, path, attempt, continued):
        attempt(checkpoint=path)
        told = []
        continued(progress=lambda *args: told.append(args))
        assert not told

    def test_within_an_epoch_goes_back_to_its_start(
        self, make_model, path, monkeypatch, attempt, continued
    ):
        model, calls = make_model(), []
        terms = model.terms

        def interrupted(x: torch.Tensor) -> object:
            calls.append(len(x))
            if len(calls) == 13:  # 5 steps in each epoch: in the third
                raise KeyboardInterrupt
            return terms(x)

        monkeypatch.setattr(model, "terms", interrupted)
        with pytest.raises(KeyboardInterrupt):
            attempt(model, checkpoint=path)
        assert training.read_tensors(path)[1]["epoch"] == 2
        continued()

    def test_between_the_end_of_an_epoch_and_its_copy(self, path, monkeypatch, attempt, continued):
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
            attempt(checkpoint=path, progress=tell)
        monkeypatch.undo()
        assert training.read_tensors(path)[1]["epoch"] == 2
        continued()

    def test_in_the_first_epoch(self, make_model, path, attempt, continued):
        model = make_model()
        model.terms = _interrupt
        with pytest.raises(KeyboardInterrupt):
            attempt(model, checkpoint=path)
        continued()

    def test_killed_between_two_writings(self, path, monkeypatch, attempt, continued):
        """No chance to write at the end: the last timed checkpoint serves."""
        monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
        with pytest.raises(ZeroDivisionError):
            attempt(checkpoint=path, progress=_stop_after(4, error=ZeroDivisionError))
        assert training.read_tensors(path)[1]["epoch"] == 4
        continued()

    def test_not_written_more_often_than_stated(self, path, monkeypatch, attempt):
        clock, written = [0.0], []
        monkeypatch.setattr(training, "monotonic", lambda: clock[0])
        monkeypatch.setattr(
            training, "write_tensors", lambda _path, _tensors, words: written.append(words["epoch"])
        )

        def tick(*_args: object) -> None:
            clock[0] += 6.0

        attempt(checkpoint=path, progress=tick)
        # Epochs end at 0, 6, 12, ... seconds; the last is written because the fit is over.
        assert written == [3, 5, 6]

    def test_with_patience(self, quick, make_model, path, attempt, continued):
        settings = replace(quick, epochs=50, learning_rate=0.3, decay="constant", patience=4)
        expected = make_model()
        state = attempt(expected, settings)
        assert 4 < state.epoch < 50
        with pytest.raises(KeyboardInterrupt):
            attempt(settings=settings, checkpoint=path, progress=_stop_after(state.best_epoch + 2))
        continued(expected=(expected, state), settings=settings)

    @pytest.mark.parametrize("epoch", [1, 4])
    def test_with_its_average(self, *, epoch, with_settings, make_model, path, attempt, continued):
        settings, expected = with_settings(average=2.0), make_model()
        state = attempt(expected, settings)
        with pytest.raises(KeyboardInterrupt):
            attempt(settings=settings, checkpoint=path, progress=_stop_after(epoch))
        continued(expected=(expected, state), settings=settings)

    @pytest.mark.parametrize("name", sorted(set(NAMES) - {"dbk-rbf"}))
    def test_of_the_other_models(self, *, name, make_model, path, device, attempt, continued):
        expected = make_model(name).to(device)
        state = attempt(expected)
        with pytest.raises(KeyboardInterrupt):
            attempt(make_model(name).to(device), checkpoint=path, progress=_stop_after(2))
        model = make_model(name, seed=9).to(device)
        continued(model, (expected, state))

    def test_without_a_checkpoint_an_interruption_passes_through(self, tmp_path, attempt):
        with pytest.raises(KeyboardInterrupt):
            attempt(progress=_stop_after(1))
        assert not list(tmp_path.iterdir())


def _interrupt(_x: torch.Tensor) -> None:
    raise KeyboardInterrupt


class TestCheckpointsOfOthers:
    @pytest.fixture
    def path(self, tmp_path, attempt) -> Path:
        made = tmp_path / "checkpoint"
        with pytest.raises(KeyboardInterrupt):
            attempt(checkpoint=made, progress=_stop_after(2))
        return made

    @pytest.mark.parametrize(
        "changed",
        [
            {"epochs": 7},
            {"learning_rate": 2e-2},
            {"seed": 1},
            {"weights": Weights(0.1, 0.02)},
            {"decay": "constant"},
            {"head_rate": 3.0},
            {"clip": 10.0},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_other_settings(self, changed, path, quick, attempt):
        with pytest.raises(DataError, match="belongs to another fit"):
            attempt(settings=replace(quick, **changed), checkpoint=path)

    def test_other_rows_that_choose_the_epoch(self, path, attempt, monkeypatch):
        monkeypatch.setattr(training, "MOST_JUDGING", 9)
        with pytest.raises(DataError, match="belongs to another fit"):
            attempt(checkpoint=path)

    @pytest.mark.parametrize("part", ["x", "y"])
    @pytest.mark.parametrize("rows", ["train", "validation"])
    def test_other_data(self, *, part, rows, path, train, validation, attempt):
        data = {"train": train, "validation": validation}
        values = getattr(data[rows], part).copy()
        values.flat[7] += 1e-9
        data[rows] = replace(data[rows], **{part: values})
        with pytest.raises(DataError, match="belongs to another fit"):
            attempt(rows=data["train"], held=data["validation"], checkpoint=path)

    @pytest.mark.parametrize("other", [{"name": "sv-dkl"}, {"dtype": "float64"}])
    def test_another_model(self, other, path, make_model, attempt):
        with pytest.raises(DataError, match="belongs to another fit"):
            attempt(make_model(**other), checkpoint=path)

    def test_a_saved_model_is_no_checkpoint(self, tmp_path, make_model, attempt):
        save_model(make_model(), tmp_path / "model")
        with pytest.raises(DataError, match="belongs to another fit"):
            attempt(checkpoint=tmp_path / "model")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("epoch", -1),
            ("epoch", "2"),
            ("epoch", 10**6),
            ("best_epoch", 1.5),
            ("best_nll", None),
            ("best_nll", math.nan),
            ("best_nll", -math.inf),
            ("losses", ["a"]),
            ("validation_nll", []),
            ("another", 1),
            ("seconds", ...),
        ],
    )
    def test_a_state_that_no_fit_has(self, name, value, path, attempt):
        """Its hash is right: it was made so."""
        tensors, described = read_tensors(path)
        described[name] = value
        if value is ...:
            del described[name]
        write_tensors(path, tensors, described)
        with pytest.raises(DataError, match="does not match its model"):
            attempt(checkpoint=path)

    @pytest.mark.parametrize("part", ["model.", "best.", "optimiser."])
    @pytest.mark.parametrize("how", ["shape", "absent"])
    def test_tensors_that_are_not_the_fits(self, part, how, path, attempt):
        tensors, described = read_tensors(path)
        name = next(one for one, value in tensors.items() if one.startswith(part) and value.ndim)
        value = tensors.pop(name)
        if how == "shape":
            tensors[name] = torch.cat([value, value])
        write_tensors(path, tensors, described)
        with pytest.raises(DataError, match="does not match its model"):
            attempt(checkpoint=path)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("optimiser.0.step", torch.ones(3)),
            ("average.count", torch.tensor(math.nan, dtype=torch.float64)),
            ("average.1", torch.ones(())),
        ],
    )
    def test_tensors_that_would_be_spread_over_others(self, name, value, tmp_path, quick, attempt):
        path, settings = tmp_path / "averaged", replace(quick, average=2.0)
        stop = {"checkpoint": path, "progress": _stop_after(2)}
        with pytest.raises(KeyboardInterrupt):
            attempt(settings=settings, **stop)
        tensors, described = read_tensors(path)
        assert name in tensors
        write_tensors(path, {**tensors, name: value}, described)
        with pytest.raises(DataError, match="does not match its model"):
            attempt(settings=settings, checkpoint=path)

    def test_no_state_of_the_optimiser(self, path, attempt):
        tensors, described = read_tensors(path)
        kept = {name: value for name, value in tensors.items() if "optimiser." not in name}
        write_tensors(path, kept, described)
        with pytest.raises(DataError, match="no state of the optimiser"):
            attempt(checkpoint=path)

    def test_cut_short(self, path, attempt):
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match="not a complete file of tensors"):
            attempt(checkpoint=path)


class TestRefusals:
    # 1.1 has a standard deviation of 2e-16 over seven rows.
    @pytest.mark.parametrize(("value", "n"), [(3.0, 190), (1.1, 7), (0.0, 5), (2.5, 2)])
    def test_a_constant_target(self, value, n, make_data, attempt):
        data = make_data(n)
        constant = Data(data.x, np.full(n, value))
        with pytest.raises(DataError, match=f"same value in all {n} training rows"):
            attempt(rows=constant)

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

    def test_one_row(self, make_data, attempt):
        with pytest.raises(DataError, match="at least 2 training rows, found 1"):
            attempt(rows=make_data(1))

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(
        ("dtype", "other"), [("float32", torch.float64), ("float64", torch.float32)]
    )
    def test_a_parameter_of_another_dtype(self, name, dtype, other, make_model, attempt):
        model = make_model(name, dtype=dtype)
        model.basis.to(other)
        message = rf"all parameters on cpu with torch\.{dtype}, found basis\..* with {other}"
        with pytest.raises(RequestError, match=message):
            attempt(model)

    def test_a_parameter_on_another_device(self, make_model, attempt):
        model = make_model()
        model.posterior.to("meta")
        with pytest.raises(RequestError, match=r"on cpu .* found posterior\.m on meta"):
            attempt(model)

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_divergence(self, name, dtype, with_settings, make_model, attempt):
        # Without LayerNorm or a Cholesky factor values must leave the range of the dtype.
        rate = 1e200 if name in {"bll", "rich-bll"} else 1e6
        with pytest.raises(NumericalError):
            attempt(make_model(name, dtype=dtype), with_settings(learning_rate=rate))

    def test_a_loss_that_is_not_finite(self, monkeypatch, attempt):
        def objective(terms, y, _n, _weights):
            return 0 * terms.mean.sum() + math.inf * y.square().mean()

        _use(monkeypatch, objective)
        monkeypatch.setattr(torch.optim.AdamW, "step", lambda *_: None)
        with pytest.raises(NumericalError, match=r"diverged in epoch 1: .* Lower the learning"):
            attempt()


def test_a_fit_does_not_depend_on_how_numbers_are_held(train, quick, make_model, attempt):
    single = Data(train.x.astype(np.float32), train.y.astype(np.float32))
    double = Data(single.x.tolist(), torch.tensor(single.y))
    models = [make_model(), make_model()]
    for model, data in zip(models, (single, double), strict=True):
        attempt(model, replace(quick, epochs=2), rows=data)
    _assert_same(*models)


class TestGroups:
    def test_by_default_each_row_is_alone_and_each_test_has_its_device(self, make_data):
        data = make_data(5)
        assert data.groups.tolist() == [0, 1, 2, 3, 4]
        assert data.counts.tolist() == [[1, 1]] * 5
        tests = np.array([1.0, 3, 2, 9, 4])
        assert Data(data.x, data.y, tests).counts.tolist() == [[k, k] for k in tests]

    def test_rows_of_two_parts_share_no_group(self, make_data):
        first = replace(make_data(4), groups=np.array([7, -1, 7, 7]), devices=np.full(4, 1.0))
        other = replace(make_data(3, seed=1), groups=[7, 7, 9], tests=np.full(3, 2.0))
        both = first.joined(other)
        assert both.groups.tolist() == [1, 0, 1, 1, 2, 2, 3]
        assert both.tests.tolist() == [1, 1, 1, 1, 2, 2, 2]
        assert both.devices.tolist() == [1] * 7
        some = both.at(np.array([6, 1]))
        assert (some.groups.tolist(), some.tests.tolist()) == ([3, 0], [2, 1])
        np.testing.assert_array_equal(some.x, [other.x[2], first.x[1]])

    @pytest.mark.parametrize(
        ("groups", "found"),
        [(np.zeros(4), "float64 of shape (4,)"), (np.arange(3), "int64 of shape (3,)")],
    )
    def test_other_groups_are_refused(self, groups, found, make_data):
        with pytest.raises(
            DataError, match=re.escape(f"the group of each of 4 rows, found {found}")
        ):
            replace(make_data(4), groups=groups)


def test_views_and_read_only_arrays_are_taken(train, validation, make_model, attempt):
    plain, other = make_model(), make_model()
    frozen = train.x.copy()
    frozen.flags.writeable = False
    attempt(plain)
    attempt(other, rows=Data(frozen, train.y[::-1].copy()[::-1]))
    np.testing.assert_array_equal(
        plain.predict(validation.x).mean, other.predict(validation.x).mean
    )


class TestAverage:
    def test_what_is_kept_is_the_average_of_the_steps(
        self, validation, with_settings, make_model, monkeypatch, attempt
    ):
        """A span of 2 epochs of 5 batches, followed by hand."""
        model = make_model(dtype="float64")
        by_hand = {name: value.detach().clone() for name, value in model.named_parameters()}
        made, count, kept = training.make_optimiser, [0], []

        def watched(trained, settings):
            optimiser = made(trained, settings)

            def follow(*_: object) -> None:
                count[0] += 1
                share = max(1 / 10, 9 / (10 + count[0]))
                for name, value in trained.process.named_parameters():
                    by_hand[name] += share * (value.detach() - by_hand[name])
                if count[0] % 5 == 0:
                    kept.append({name: value.clone() for name, value in by_hand.items()})

            optimiser.register_step_post_hook(follow)
            return optimiser

        monkeypatch.setattr(training, "make_optimiser", watched)
        state = attempt(model, with_settings(epochs=30, average=2.0))
        assert len(kept) == 30
        for name, value in model.named_parameters():
            torch.testing.assert_close(value.detach(), kept[state.best_epoch - 1][name])
        score = model.predict(validation.x).log_score(validation.y).mean()
        assert score == pytest.approx(state.best_nll, abs=1e-12)

    def test_the_noise_has_its_own_rate(self, with_settings, make_model, attempt):
        still, moved = make_model(), make_model()
        before = still.noise.log_excess.item()
        attempt(still, with_settings(head_rate=3.0, noise_rate=0.0))
        attempt(moved, with_settings(head_rate=3.0))
        assert still.noise.log_excess.item() == before
        assert moved.noise.log_excess.item() != before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 0}, "found epochs 0"),
        ({"epochs": 2.5}, r"found epochs 2\.5"),
        ({"batch": 0}, "found batch 0"),
        ({"batch": -5, "seed": -1}, "found batch -5, seed -1"),
        ({"patience": 0}, "found patience 0"),
        ({"learning_rate": -1.0}, r"found learning_rate -1\.0"),
        ({"learning_rate": math.nan}, "found learning_rate nan"),
        ({"clip": 0.0}, r"found clip 0\.0"),
        ({"clip": -1.0}, r"found clip -1\.0"),
        ({"average": -1.0}, r"found average -1\.0"),
        ({"head_rate": math.inf}, "found head_rate inf"),
        ({"noise_rate": -2.0}, r"found noise_rate -2\.0"),
        ({"decay": "linear"}, "decay of cosine or constant.*found decay 'linear'"),
    ],
)
def test_settings_that_cannot_train_are_refused(changed, message):
    with pytest.raises(RequestError, match=message):
        FitSettings(**{"epochs": 3, **changed})


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_a_target_beyond_double_precision_is_refused(size, train, attempt):
    with pytest.raises(DataError, match="standard deviation is"):
        attempt(rows=Data(train.x, size * train.y))


def test_a_checkpoint_of_other_scaling_is_refused(train, quick, tmp_path, attempt):
    path, sizes = tmp_path / "checkpoint", Architecture(d=2, h=6, r=8, blocks=1)
    scaled = build("dbk-silu", sizes, train.x, scaling="minmax")
    attempt(scaled, replace(quick, epochs=1), checkpoint=path)
    plain = build("dbk-silu", sizes, train.x)
    with pytest.raises(DataError, match="belongs to another fit"):
        attempt(plain, replace(quick, epochs=1), checkpoint=path)
