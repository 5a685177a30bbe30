"""alpha and beta chosen by validation, as a part of the main job."""

import numpy as np
import pytest

from geogp import fitting
from geogp.models.tuning import GRID
from geogp.watcher import Watcher
from geogp.workflow import make_map


class Counter(Watcher):
    """Counts the epochs of the search, and may interrupt it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.epochs, self.stop_at, self.warnings = 0, stop_at, []

    def progress(self, text: str, _done: int, _total: int, _note: str) -> None:
        if text.startswith("weights"):
            self.epochs += 1
            if self.epochs == self.stop_at:
                raise KeyboardInterrupt

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def test_the_preset_decides_unless_asked(finished):
    assert finished.run["weights"] == {"alpha": 0.01, "beta": 0.01, "chosen_by": "preset"}


def test_chosen_once_for_both_splits_and_continued(small, tmp_path):
    request = small.request(tmp_path / "run", tune_weights=True, split="both", model="dbk-silu")
    stopped, again = Counter(stop_at=11), Counter()
    with pytest.raises(KeyboardInterrupt):
        make_map(request, stopped)
    found = make_map(request, again).run["weights"]
    # Two epochs of each of 16 fits, none of them twice.
    assert stopped.epochs + again.epochs == 2 * len(GRID) ** 2
    scores = [trial["validation_nll"] for trial in found["trials"]]
    assert len(scores) == 16
    assert scores == sorted(scores)
    assert np.isfinite(scores).all()
    assert {name: found["trials"][0][name] for name in ("alpha", "beta")} == {
        name: found[name] for name in ("alpha", "beta")
    }
    whole = make_map(small.request(tmp_path / "whole", tune_weights=True, model="dbk-silu")).run
    assert whole["weights"] == found
    assert whole["settings"]["tune_weights"] is True


def test_the_chosen_weights_are_those_of_the_fit(small, tmp_path, monkeypatch):
    used = []
    fit = fitting.fit

    def watched(model, rows, held, settings, **options):
        used.append(settings.weights)
        return fit(model, rows, held, settings, **options)

    monkeypatch.setattr(fitting, "fit", watched)
    request = small.request(tmp_path / "run", tune_weights=True, epochs=1, model="dbk-silu")
    found = make_map(request).run["weights"]
    assert {(w.alpha, w.beta) for w in used} == {(found["alpha"], found["beta"])}


def test_a_model_without_weights_says_so(small, tmp_path):
    hears = Counter()
    run = make_map(small.request(tmp_path / "run", tune_weights=True, model="vbll"), hears).run
    assert hears.epochs == 0
    assert run["weights"]["trials"] == []
    assert any("has no weights to choose" in text for text in hears.warnings)
    assert any("has no weights to choose" in text for text in run["warnings"])
