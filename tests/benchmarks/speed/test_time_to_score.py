"""Which of our fits is as good as a peer, and how much sooner."""

import pytest
from benchmark_scripts import load, run

bench = load("speed.time_to_score")

N = {"train": 80, "validation": 10, "test": 10}


def _fit(model, epochs, seconds, score) -> dict:
    return {"model": model, "epochs": epochs, "seconds": seconds, "log_score": score, "n": N}


OURS = [_fit("field", 1, 30.0, 0.6), _fit("field", 2, 20.0, 0.5), _fit("field", 4, 40.0, 0.4)]


@pytest.mark.parametrize(("goal", "epochs"), [(0.7, 2), (0.5, 2), (0.45, 4), (0.3, None)])
def test_the_shortest_that_scores_no_worse(goal, epochs):
    found = bench.first_as_good(OURS, goal)
    assert (None if found is None else found["epochs"]) == epochs


def test_a_peer_is_compared_with_the_first_as_good_or_with_none():
    peers = [_fit("lightgbm", None, 60.0, 0.45), _fit("gpytorch-svgp", None, 300.0, 0.2)]
    lines = bench.compared({"field": OURS}, peers)
    assert [line["seconds_over_ours"] for line in lines] == [1.5, None]


def test_a_folder_that_is_not_there_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "tune_process", lambda: None)  # it cannot be put back
    options = ["--source", tmp_path / "no", "--boundaries", tmp_path, "--quarters", "2023Q1"]
    assert run("speed.time_to_score", "PR", *options, "--out", tmp_path / "o") == 3
    assert "no folder" in capsys.readouterr().err
