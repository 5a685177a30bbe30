"""What putting rows of equal inputs together saves: time of an epoch, and score at equal time.

    python benchmarks/repeats.py PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4

Models of place alone on the training rows of the random split, with rows put together for twice the
epochs and one by one. Writes a Markdown table.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from geogp.evaluation.splits.split_rows import random_split
from geogp.files import write_text
from geogp.models.catalogue.build_model import build
from geogp.models.core.architecture import Architecture
from geogp.models.training.schedule import FitSettings
from geogp.models.training.steps import ByInputs
from geogp.models.training.training_loop import Data, FitState, fit
from geogp.runs.pipeline.job import prepare
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest


def fitted(name: str, rows: dict[str, Data], settings: FitSettings) -> FitState:
    """Return how a fit went."""
    train, validation = rows["train"], rows["validation"]
    model = build(name, Architecture(d=2), train.x, noise_start=0.5, placement="farthest")
    return fit(model, train, validation, settings)


def main() -> int:
    """Fit both ways and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters")
    parser.add_argument("--models", nargs="+", default=["dbk-rbf", "dbk-silu"])
    parser.add_argument("--epochs", type=int, default=8)
    here = Path(__file__).parent
    parser.add_argument("--table", type=Path, default=here / "results" / "repeats")
    options = parser.parse_args()
    request = MapRequest(
        region=options.region,
        source=options.source,
        boundaries=options.boundaries,
        quarters=options.quarters,
        inputs="place",
        model=options.models[0],
        out=here / "out" / "repeats",
    )
    job = prepare(request, ProgressListener())
    seen = job.observations
    parts = random_split(seen.quadkey, seen.quarter, request.seed)
    rows = {part: job.data(parts == part) for part in ("train", "validation")}
    places = len(np.unique(rows["train"].x, axis=0))
    plain = FitSettings(epochs=options.epochs, batch=1024, learning_rate=2e-2)
    lines = [
        "# Rows of equal inputs put together\n",
        f"{request.region}, {len(rows['train'].y):,} training rows at {places:,} places; made by",
        "`benchmarks/repeats.py`. Validation log scores on the scale of log10 Mbps.\n",
        "| model | rows | epochs | seconds an epoch | seconds | log score |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in options.models:
        with mock.patch.object(ByInputs, "gathered", lambda _self, given: given):
            one = fitted(name, rows, plain)
        both = fitted(name, rows, replace(plain, epochs=2 * plain.epochs))
        for how, state in (("one by one", one), ("put together", both)):
            lines.append(
                f"| `{name}` | {how} | {state.epoch} | {state.seconds / state.epoch:.1f} | "
                f"{state.seconds:.0f} | {state.best_nll:.4f} |"
            )
    options.table.mkdir(parents=True, exist_ok=True)
    write_text(options.table / f"{request.region}.md", "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
