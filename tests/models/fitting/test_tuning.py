"""The search for the weights: what it tries, what it sees, and how it is interrupted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geogp.errors import NumericalError, RequestError
from geogp.models.catalogue.rows import CATALOGUE
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import tuning
from geogp.models.fitting.loop import FitState, fit
from geogp.models.fitting.tuning import Trial, choose_weights, grid
from geogp.models.options import Weights
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess

VALUES = [0.0, 0.01, 0.1, 1.0]


@pytest.fixture
def settings() -> FitSettings:
    return FitSettings(epochs=3, batch=64, learning_rate=1e-2, weights=Weights(5.0, 7.0))


@pytest.fixture
def make(make_model) -> Callable[[], LowRankProcess]:
    """The untrained model of the tests that need one: the four pairs of PPGP."""
    return lambda: make_model("pp-dkl", dtype="float64")


def _diverge(*betas: float) -> Callable[..., tuple[Any, FitState]]:
    """The fit, which diverges for some values of beta."""

    def broken(
        model: LowRankProcess, train: Data, validation: Data, given: FitSettings, **rest: Any
    ):
        if given.weights.beta in betas:
            raise NumericalError("the fit diverged")
        return fit(model, train, validation, given, **rest)

    return broken


DPPGP = ["dbk-rbf", "dbk-silu", "dbk-fourier", "dbk-spline"]


class TestGrid:
    @pytest.mark.parametrize("name", DPPGP)
    def test_dppgp_has_sixteen_pairs(self, name):
        found = grid(name)
        assert found == [Weights(alpha, beta) for alpha in VALUES for beta in VALUES]

    def test_ppgp_has_four_and_leaves_alpha_alone(self):
        assert grid("pp-dkl") == [Weights(Weights().alpha, beta) for beta in VALUES]

    @pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {*DPPGP, "pp-dkl"}))
    def test_no_other_objective_has_any(self, name):
        assert grid(name) == []

    def test_an_unknown_model_is_refused(self):
        with pytest.raises(RequestError, match=r"unknown model 'dbk-sil'\. Nearest: dbk-silu"):
            grid("dbk-sil")


class TestSearch:
    def test_the_best_validation_score_comes_first(self, make, train, validation, settings):
        trials = choose_weights(make, train, validation, settings)
        assert [trial.nll for trial in trials] == sorted(trial.nll for trial in trials)
        assert len({trial.nll for trial in trials}) == 4
        assert {trial.weights for trial in trials} == set(grid("pp-dkl"))

    def test_each_score_is_that_of_a_fit_with_these_weights(
        self, make, train, validation, settings
    ):
        for trial in choose_weights(make, train, validation, settings)[::3]:
            alone = FitSettings(epochs=3, batch=64, learning_rate=1e-2, weights=trial.weights)
            model = make()
            fit(model, train, validation, alone)
            score = model.predict(validation.x).log_score(validation.y).mean()
            assert score == trial.nll

    def test_it_fits_to_the_rows_it_is_given_and_to_no_others(
        self, make, train, validation, settings, monkeypatch
    ):
        seen = []

        def watched(model: LowRankProcess, *given: Any, **rest: Any) -> tuple[Any, FitState]:
            seen.append(given)
            return fit(model, *given, **rest)

        monkeypatch.setattr(tuning, "fit", watched)
        choose_weights(make, train, validation, settings)
        assert all(a is train and b is validation for a, b, _ in seen)
        # Nothing but the weights differs from the settings, and those of the settings are unused.
        kept = {(s.epochs, s.batch, s.learning_rate, s.seed) for _, _, s in seen}
        assert kept == {(3, 64, 1e-2, 0)}
        assert [s.weights for _, _, s in seen] == grid("pp-dkl")

    def test_the_order_follows_the_validation_rows_and_not_the_training_rows(
        self, make, train, validation, settings, monkeypatch
    ):
        # Scores made up here: the training loss says the opposite.
        scores = dict(zip(VALUES, (3.0, 1.0, 4.0, 2.0), strict=True))
        monkeypatch.setattr(
            tuning,
            "fit",
            lambda model, _t, _v, s, **_: (
                model,
                FitState(best_nll=scores[s.weights.beta], losses=[-scores[s.weights.beta]]),
            ),
        )
        trials = choose_weights(make, train, validation, settings)
        assert [trial.weights.beta for trial in trials] == [0.01, 1.0, 0.0, 0.1]

    def test_each_trial_starts_from_a_new_model(self, make, train, validation, settings):
        made = []
        choose_weights(lambda: made.append(make()) or made[-1], train, validation, settings)
        moved = [model for model in made if model.posterior.m.any()]
        assert len({id(model) for model in moved}) == 4

    def test_trials_and_epochs_are_told_as_they_come(self, make, train, validation, settings):
        epochs, told = [], []
        trials = choose_weights(
            make,
            train,
            validation,
            settings,
            progress=lambda state, total: epochs.append((state.epoch, total)),
            tell=told.append,
        )
        assert epochs == 4 * [(1, 3), (2, 3), (3, 3)]
        assert [trial.weights for trial in told] == grid("pp-dkl")
        assert sorted(told, key=lambda trial: trial.nll) == trials

    @pytest.mark.parametrize("name", ["sv-rbf", "dbk-exact", "dnn"])
    def test_without_weights_there_is_no_trial_and_no_fit(
        self, *, name, make_model, train, validation, settings, monkeypatch
    ):
        monkeypatch.setattr(tuning, "fit", lambda *_, **__: pytest.fail("nothing to choose"))
        assert choose_weights(lambda: make_model(name), train, validation, settings) == []


class TestDivergence:
    def test_a_diverged_trial_is_infinitely_bad_and_last(
        self, make, train, validation, settings, monkeypatch
    ):
        monkeypatch.setattr(tuning, "fit", _diverge(0.0))
        told: list[Trial] = []
        trials = choose_weights(make, train, validation, settings, tell=told.append)
        assert trials[-1] == Trial(Weights(beta=0.0), float("inf"))
        assert told[0] == trials[-1]
        assert np.isfinite([trial.nll for trial in trials[:-1]]).all()

    def test_all_diverging_is_refused(self, make, train, validation, settings, monkeypatch):
        monkeypatch.setattr(tuning, "fit", _diverge(*VALUES))
        with pytest.raises(NumericalError, match="all 4 fits of the search failed; the last error"):
            choose_weights(make, train, validation, settings)

    def test_a_rate_that_is_far_too_large_is_refused(self, make, train, validation):
        wild = FitSettings(epochs=3, batch=64, learning_rate=1e6)
        with pytest.raises(NumericalError, match="all 4 fits of the search failed; the last error"):
            choose_weights(make, train, validation, wild)

    def test_another_error_is_not_swallowed(self, make, train, validation, settings, monkeypatch):
        def refuse(*_: Any, **__: Any) -> FitState:
            raise RequestError("not this")

        monkeypatch.setattr(tuning, "fit", refuse)
        with pytest.raises(RequestError, match="not this"):
            choose_weights(make, train, validation, settings)


class TestInterruption:
    @pytest.mark.parametrize("stop", [2, 4, 8])
    def test_an_interrupted_search_ends_as_if_it_had_not_been(
        self, *, make, train, validation, settings, tmp_path: Path, stop
    ):
        whole = choose_weights(make, train, validation, settings)
        done = 0

        def interrupt(_state: FitState, _total: int) -> None:
            nonlocal done
            done += 1
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            choose_weights(make, train, validation, settings, folder=tmp_path, progress=interrupt)
        epochs = []
        continued = choose_weights(
            make,
            train,
            validation,
            settings,
            folder=tmp_path,
            progress=lambda state, _: epochs.append(state.epoch),
        )
        assert continued == whole
        assert len(epochs) == 12 - stop  # no epoch was done again

    def test_a_finished_search_is_read_back_without_a_step(
        self, make, train, validation, settings, tmp_path: Path
    ):
        first = choose_weights(make, train, validation, settings, folder=tmp_path)
        again = choose_weights(
            make,
            train,
            validation,
            settings,
            folder=tmp_path,
            progress=lambda *_: pytest.fail("a step was taken"),
        )
        assert again == first

    def test_every_pair_has_a_checkpoint_of_its_own(
        self, make_model, train, validation, tmp_path: Path
    ):
        settings = FitSettings(epochs=1, batch=190)
        choose_weights(lambda: make_model("dbk-silu"), train, validation, settings, folder=tmp_path)
        assert len(list(tmp_path.iterdir())) == 16

    def test_without_a_folder_nothing_is_written(
        self, *, make, train, validation, settings, tmp_path: Path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        choose_weights(make, train, validation, settings)
        assert not list(tmp_path.iterdir())
