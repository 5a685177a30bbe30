"""The table of precisions says what its file says."""

import json

from benchmark_scripts import load

from benchmarks.trial import RESULTS


def test_the_table_is_that_of_the_results():
    results = json.loads((RESULTS / "precision" / "results.json").read_text("utf-8"))
    text = load("speed.precision").page(results)
    assert text == (RESULTS / "precision" / "table.md").read_text("utf-8")
    first = results["scores"][0]
    assert f"| `{first['model']}` | double | {first['nll']:.4f} |" in text
