"""Size, time and memory of the interactive page of a large region: Georgia, simulated.

    geogp simulate --out runs/simulated-GA --like GA --boundaries FOLDER --rows 20000 \
        --quarters 2022Q1..2023Q4
    python benchmarks/page_size.py runs/simulated-GA FOLDER GA

Fits the model for few epochs, predicts all tiles of zoom 16, makes the page's data and writes
page.json and sizes.json. FOLDER holds the boundaries, with counties and urban areas where there
are.
"""

import argparse
import json
import resource
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec import to_builtins

from geogp.evaluation.splits.row_parts import TRAIN, VALIDATION
from geogp.files import write_text
from geogp.maps.page.packing import text_bytes
from geogp.runs.pipeline.drawing import Drawing, draw
from geogp.runs.pipeline.fitting import fit_model, weights_of
from geogp.runs.pipeline.job import Job, prepare
from geogp.runs.pipeline.repair import repair_of
from geogp.runs.pipeline.validation import make_plan, map_calibration_rows, tuning_rows
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

MOST = 6_000_000
"""Bytes that the page of Georgia may take."""


def drawn(job: Job) -> Drawing:
    """Fit the job's model on the training rows of its first split, and draw its map."""
    plan = make_plan(job)
    weights, _ = weights_of(job, *tuning_rows(job, plan))
    name = job.request.splits[0]
    train, validation = (plan.rows(name, 0, part) for part in (TRAIN, VALIDATION))
    model = fit_model(job, "map", train, validation, weights)
    return draw(job, model, repair_of(job, model, map_calibration_rows(job)), {})


def sizes(data: dict[str, Any]) -> dict[str, Any]:
    """Return bytes of a page's data: of each part as JSON, and of base64 within."""
    quarters, shown = data["quarters"], data["shown"]
    kernel = data["kernel"]
    whole = {name: len(json.dumps(part, separators=(",", ":"))) for name, part in data.items()}
    return {
        "all": sum(whole.values()),
        "parts": whole,
        "shown_quarter": text_bytes(quarters[shown]),
        "levels": [text_bytes(plane) for plane in quarters[shown]["quantiles"] or []],
        "other_quarters": sum(map(text_bytes, quarters)) - text_bytes(quarters[shown]),
        "arrays": {name: text_bytes(packed) for name, packed in data["arrays"].items()},
        "slices": [text_bytes(packed) for packed in data["slices"]],
        "kernel": text_bytes(kernel["components"]) if kernel else 0,
    }


def stated(data: dict[str, Any]) -> dict[str, Any]:
    """Return the steps and errors that a page's data state."""
    kernel = data["kernel"] or {}
    return {
        "levels": data["levels"],
        "steps": data["steps"],
        "kernel": {
            name: kernel[name] for name in ("frame", "error", "error_in_middles") if name in kernel
        },
        "components": kernel["components"]["shape"] if kernel else None,
    }


def main(arguments: list[str]) -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("source")
    parser.add_argument("boundaries")
    parser.add_argument("region")
    parser.add_argument("--model", default="field")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--conformal", default="strata")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/page-size"))
    given = parser.parse_args(arguments)
    request = MapRequest(
        region=given.region,
        source=given.source,
        boundaries=given.boundaries,
        model=given.model,
        preset="quick",
        epochs=given.epochs,
        conformal=given.conformal,
        out=given.out / "run",
    )
    start = monotonic()
    drawing = drawn(prepare(request, ProgressListener()))
    drew = monotonic()
    data = drawing.data()
    made = monotonic()
    write_text(given.out / "page.json", json.dumps(data, separators=(",", ":")))
    found = {
        "map": to_builtins(drawing.record),
        "bytes": sizes(data),
        **stated(data),
        "seconds": {"fit and predict": round(drew - start, 1), "page": round(made - drew, 1)},
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    write_text(given.out / "sizes.json", json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    if found["bytes"]["all"] > MOST:
        sys.exit(f"the data of the page hold {found['bytes']['all']:,} bytes, more than {MOST:,}.")


if __name__ == "__main__":
    main(sys.argv[1:])
