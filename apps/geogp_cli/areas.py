"""The command `geogp areas`: parse, call, print."""

import json
from typing import Any

from geogp.commands.run_requests import AreasRequest
from geogp.runs.question import sample_words
from geogp_cli import console
from geogp_cli.place import Json
from geogp_cli.setting_options import takes


@takes(AreasRequest)
def areas(request: AreasRequest, as_json: Json = False) -> None:
    """Compute the mean and median level of counties, urban areas or polygons, with intervals."""
    from geogp.commands.areas import make_areas

    with console.working() as listener:
        result = make_areas(request, listener)
    if as_json:
        print(json.dumps(result.described_with("areas")))
        return
    described, level = result.described, request.question == "level"
    kind = "level_mean" if level else "tile_mean"
    what = (
        "level, without measurement noise"
        if level
        else f"averages of {_sample(described)} in each tile, with noise"
    )
    table = console.table(
        f"{described['at']}, {described['unit']}. mean: geometric mean over the tiles; values: "
        f"{what}",
        "area, tiles, measured, tests, mean, 95 % interval, median level, 95 % interval",
        (
            (
                row["area"],
                *(f"{row[name]:,}" for name in ("tiles", "measured_tiles", "tests")),
                *_interval(row, kind, described["unit"].lower()),
                *_interval(row, "level_median", described["unit"].lower()),
            )
            for row in result.table.to_dict(orient="records")
        ),
    )
    console.tell(table, *result.files)


def _sample(described: dict[str, Any]) -> str:
    tests, devices = described["tests_per_tile"], described["devices_per_tile"]
    return sample_words(tests, devices) if tests else "the usual number of tests"


def _interval(row: dict[str, float], name: str, end: str) -> tuple[str, str]:
    low, high = (row[f"{name}_{side}_{end}"] for side in ("lower", "upper"))
    return f"{row[f'{name}_{end}']:.1f}", f"{low:.1f} to {high:.1f}"
