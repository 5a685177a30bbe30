"""Compare maps of the demo region in double and in single precision, on the CPU.

    python -m benchmarks speed.precision

A run that is already in the folder of the runs is not made again.
"""

from typing import Any

import geogp
from benchmarks.markdown import percent, table
from benchmarks.script import Figures, machine, options_of, write_results
from geogp.commands.demo import demo_folder
from geogp.models.options import PRECISIONS

MODELS = ("field", "dbk-rbf", "sv-rbf", "nystrom-mixed", "t-process")
"""One model of each way to use double precision: rows near each other, anchors, kernels."""

SCORES = ("nll", "crps", "mae", "coverage_95", "width_95")


def main() -> None:
    """Make the maps, and write the table."""
    options = options_of(__doc__, out="precision", table="precision", models=MODELS)
    found: list[Figures] = []
    for model in options.models:
        for precision in PRECISIONS:
            run = geogp.make_map(
                "DEMO",
                source=str(demo_folder()),
                boundaries=str(demo_folder() / "boundaries"),
                preset="quick",
                model=model,
                precision=precision,
                device="cpu",
                out=options.out / f"{model}-{precision}",
            )
            scores = run.content["metrics"]["random"]["all"]
            own = {name: scores[name] for name in ("n", *SCORES)}
            found.append({"model": model, "precision": precision, **own})
    results = {"machine": machine(), "scores": found}
    text = page(results)
    write_results(options.table, text, results)
    print(text)


def page(results: Figures) -> str:
    """Return the table as Markdown."""
    return (
        "# Double and single precision\n\n"
        "The demo region, preset `quick`, seed 0, "
        f"{results['scores'][0]['n']:,} test rows, on a CPU. Both precisions have the same rows,\n"
        "and the same start of the network. Lower scores are better.\n\n"
        + table(
            ["model", "precision", "log score", "CRPS", "MAE", "in 95 %", "width"],
            [_line(one) for one in results["scores"]],
            left=(0, 1),
        )
    )


def _line(one: dict[str, Any]) -> list[str]:
    nll, crps, mae, coverage, width = (one[name] for name in SCORES)
    numbers = [f"{nll:.4f}", f"{crps:.4f}", f"{mae:.4f}", percent(coverage), f"{width:.3f}"]
    return [f"`{one['model']}`", one["precision"], *numbers]
