"""Benefit of collapsing rows with equal inputs: time of an epoch, and score at equal time.

    python benchmarks/repeats.py PR --source ookla-open-data --boundaries census \
        --quarters 2019Q1..2023Q4

Models with place as the only input are fitted to the training rows of the random split, with single
rows, and with collapsed rows for twice the epochs. Writes a Markdown table.
"""

import sys
from dataclasses import replace
from unittest import mock

import numpy as np
from region_trial import prepare, split
from trial import OUT, command, parser, table

from geogp.files import write_text
from geogp.models.catalogue.build_model import build
from geogp.models.core.architecture import Architecture
from geogp.models.training.schedule import FitSettings
from geogp.models.training.steps import ByInputs
from geogp.models.training.training_data import Data
from geogp.models.training.training_loop import FitState, fit


def fitted(name: str, rows: dict[str, Data], settings: FitSettings) -> FitState:
    """Return the state of a finished fit."""
    train, validation = rows["train"], rows["validation"]
    model = build(name, Architecture(d=2), train.x, noise_start=0.5, placement="farthest")
    return fit(model, train, validation, settings)


@command
def main() -> None:
    """Fit both ways and write the table."""
    asked = parser(__doc__, table="repeats", region=True, epochs=8)
    asked.add_argument("--models", nargs="+", default=["dbk-rbf", "dbk-silu"])
    options = asked.parse_args()
    job = prepare(options, OUT / "repeats", inputs="place", model=options.models[0])
    rows = {part: job.data(chosen) for part, chosen in split(job).items()}
    places = len(np.unique(rows["train"].x, axis=0))
    plain = FitSettings(epochs=options.epochs, batch=1024, learning_rate=2e-2)
    lines = []
    for name in options.models:
        with mock.patch.object(ByInputs, "gathered", lambda _self, given: given):
            one = fitted(name, rows, plain)
        both = fitted(name, rows, replace(plain, epochs=2 * plain.epochs))
        lines += [
            (
                f"`{name}`",
                how,
                state.epoch,
                f"{state.seconds / state.epoch:.1f}",
                f"{state.seconds:.0f}",
                f"{state.best_nll:.4f}",
            )
            for how, state in (("one by one", one), ("put together", both))
        ]
    header = ("model", "rows", "epochs", "seconds an epoch", "seconds", "log score")
    text = f"""# Rows with equal inputs collapsed

{options.region}, {len(rows["train"].y):,} training rows at {places:,} places; made by
`benchmarks/repeats.py`. Validation log scores on the scale of log10 Mbps.

{table(header, lines, left=(0, 1))}"""
    write_text(options.table / f"{options.region}.md", text)


if __name__ == "__main__":
    sys.exit(main())
