"""Small regions with the preset `quick`: log score of model and baseline, and coverage.

    python benchmarks/small_regions.py --source ookla-open-data --boundaries census

Each region is mapped as by `geogp map` (download, random split, seed 0) into its own folder under
--out; a finished run in this folder is used as it is. Writes a Markdown and a JSON file.
"""

import sys
from collections.abc import Sequence

from trial import Figures, command, parser, percent, table, write_results

import geogp

REGIONS = ("GU", "VI")
QUARTERS = "2019Q1..2023Q4"


def scored(run: geogp.Run) -> Figures:
    """Return the figures of a run's test rows."""
    record = run.record
    found, baseline = record.metrics["random"]["all"], record.baseline["random"]["all"]
    return {
        "region": record.region,
        "rows": sum(entry.rows_used for entry in record.inputs if "tiles" in entry.name),
        "test_rows": found.n,
        "log_score": found.nll,
        "baseline": baseline.nll,
        "coverage_95": found.coverage_95,
    }


def page(rows: Sequence[Figures]) -> str:
    """Return the Markdown of the figures."""
    header = ("region", "rows", "test rows", "log score", "baseline", "in the 95 % interval")
    lines = [
        (
            *(row["region"], f"{row['rows']:,}", f"{row['test_rows']:,}"),
            *(f"{row['log_score']:.3f}", f"{row['baseline']:.3f}"),
            percent(row["coverage_95"], "%"),
        )
        for row in rows
    ]
    return f"""# Small regions

    python benchmarks/small_regions.py --source ookla-open-data --boundaries census

`field`, preset `quick`, download, mobile, {QUARTERS}, random split, seed 0; log
scores in log10 Mbps over the test rows, and those of a quarter's mean and variance.

{table(header, lines)}"""


@command
def main() -> None:
    """Map the regions and write their figures."""
    asked = parser(__doc__, out="small-regions", table="small-regions")
    asked.add_argument("--source", required=True, help="Ookla's files")
    asked.add_argument("--boundaries", required=True)
    options = asked.parse_args()
    given = {"source": options.source, "boundaries": options.boundaries, "quarters": QUARTERS}
    rows = [
        scored(geogp.make_map(region, preset="quick", out=options.out / region, **given))
        for region in REGIONS
    ]
    write_results(options.table, page(rows), rows)


if __name__ == "__main__":
    sys.exit(main())
