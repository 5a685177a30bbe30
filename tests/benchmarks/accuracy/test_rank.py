"""The cost of the rank, on a small simulated source."""

import json

from benchmark_scripts import told


def test_every_rank_is_fitted_and_scored(small, tmp_path):
    options = ["--boundaries", small.folder / "boundaries", "--ranks", "5", "40", "--epochs", "1"]
    options += ["--out", tmp_path / "out", "--table", tmp_path / "table"]
    told("accuracy.rank", "DEMO", "--source", small.folder, *options)
    lines = json.loads((tmp_path / "table" / "DEMO-nystrom-mixed.json").read_text())
    assert [line["r"] for line in lines] == [5, 40]
    assert lines[0]["nll"] != lines[1]["nll"]
    assert lines[0]["baseline"] == lines[1]["baseline"]
    assert 0.8 < lines[1]["coverage_95"] <= 1
    text = (tmp_path / "table" / "DEMO-nystrom-mixed.md").read_text()
    assert f"| 40 | {lines[1]['nll']:.4f} |" in text
