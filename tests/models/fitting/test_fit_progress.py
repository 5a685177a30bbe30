"""What a user who waits for a fit reads."""

import io
import sys

import pytest

from geogp.models.fitting.fit_progress import FitProgress, duration
from geogp.models.fitting.loop import FitState


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _printed(out, monkeypatch, epochs):
    monkeypatch.setattr(sys, "stderr", out)
    with FitProgress("FieldGP") as shown:
        shown.stage("a stage")
        for k in range(1, epochs + 1):
            shown.epoch(FitState(epoch=k, validation_nll=[0.5 / k], seconds=2.0 * k), epochs)
    return out.getvalue()


def test_the_line_of_a_terminal_changes(monkeypatch):
    stage, epochs, last = _printed(_Terminal(), monkeypatch, 30).split("\n")
    assert stage == "FieldGP: a stage"
    lines = epochs.split("\r")
    assert len(lines) == 31
    assert lines[0] == "FieldGP: epoch 1 of 30, validation log score 0.5000, at most 58 s left"
    assert lines[29].rstrip().endswith("finishing")
    assert lines[30].rstrip() == "FieldGP: fitted in 1 s"
    assert len(lines[30]) >= len(lines[29].rstrip())
    assert last == ""


def test_a_log_has_up_to_ten_lines_of_epochs(monkeypatch):
    lines = _printed(io.StringIO(), monkeypatch, 300).splitlines()
    assert lines[0] == "FieldGP: a stage"
    assert lines[1].startswith("FieldGP: epoch 30 of 300, ")
    assert lines[-2].startswith("FieldGP: epoch 300 of 300, ")
    assert len(lines) == 12


def test_a_fit_that_fails_has_an_end(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with pytest.raises(KeyboardInterrupt), FitProgress("FieldGP"):
        raise KeyboardInterrupt
    assert out.getvalue() == "FieldGP: stopped after 1 s\n"


def test_durations_in_words():
    assert [duration(one) for one in (59.6, 3599)] == ["1 min 0 s", "59 min 59 s"]
