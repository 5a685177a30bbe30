"""Small regions with the preset `quick`: log score beside the baseline's, and coverage.

    python benchmarks/small_regions.py --source ookla-open-data --boundaries census

Each region is mapped as `geogp map` does it (download, random split, seed 0) into a folder of its
own under --out, where a finished run is taken as it is. Writes a Markdown and a JSON file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geogp.errors import GeogpError
from geogp.files import write_text
from geogp.records.run_record import RunRecord
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.settings import MapRequest

REGIONS = ("GU", "VI")
QUARTERS = "2019Q1..2023Q4"


def scored(run: RunRecord) -> dict[str, Any]:
    """Return the figures of a run's test rows."""
    found, baseline = run.metrics["random"]["all"], run.baseline["random"]["all"]
    return {
        "region": run.region,
        "rows": sum(entry.rows_used for entry in run.inputs if "tiles" in entry.name),
        "test_rows": found.n,
        "log_score": found.nll,
        "baseline": baseline.nll,
        "coverage_95": found.coverage_95,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the Markdown of the figures."""
    lines = [
        "# Small regions",
        "",
        "    python benchmarks/small_regions.py --source ookla-open-data --boundaries census",
        "",
        f"`field`, preset `quick`, download, mobile, {QUARTERS}, random split, seed 0; log",
        "scores in log10 Mbps over the test rows, beside those of a quarter's mean and variance.",
        "",
        "| region | rows | test rows | log score | baseline | in the 95 % interval |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['region']} | {row['rows']:,} | {row['test_rows']:,} "
            f"| {row['log_score']:.3f} | {row['baseline']:.3f} | {row['coverage_95']:.1%} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Map the regions and write their figures."""
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="Ookla's files")
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--out", type=Path, default=here / "out" / "small-regions")
    parser.add_argument("--table", type=Path, default=here / "results" / "small-regions")
    options = parser.parse_args(arguments)
    try:
        runs = [
            make_map(
                MapRequest(
                    region=region,
                    source=options.source,
                    boundaries=options.boundaries,
                    quarters=QUARTERS,
                    preset="quick",
                    out=options.out / region,
                )
            ).record
            for region in REGIONS
        ]
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    rows = [scored(run) for run in runs]
    write_text(options.table / "table.md", table(rows))
    write_text(options.table / "results.json", json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
