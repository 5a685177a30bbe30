"""The command `geogp next`: parse, call, print."""

import json
from dataclasses import replace

from geogp.commands.run_requests import NextRequest
from geogp.runs.question import sample_words
from geogp_cli import console
from geogp_cli.place import Json
from geogp_cli.setting_options import takes

_SHOWN = 10


@takes(NextRequest)
def next_command(request: NextRequest, as_json: Json = False) -> None:
    """Choose the tiles whose measurement would reduce the variance of the level most."""
    from geogp.runs.run_names import find_run

    request = replace(request, run=find_run(str(request.run)))
    from geogp.commands.next_tiles import choose_tiles

    with console.working() as listener:
        result = choose_tiles(request, listener)
    if as_json:
        print(json.dumps(result.described_with("chosen")))
        return
    described, chosen = result.described, result.table
    tests, devices = described["tests"], described["devices"]
    measured = (
        f"{sample_words(tests, devices)} in each tile"
        if tests
        else "as many tests in each tile as in the data"
    )
    places = [name for name in ("county", "stratum") if name in chosen]
    table = console.table(
        f"{described['at']}, {measured}; first {min(_SHOWN, len(chosen))} of {len(chosen)} tiles",
        ", ".join(
            ["rank, longitude, latitude", *places, "tests so far, sd, after, variance removed"]
        ),
        (
            (
                str(row["rank"]),
                f"{row['longitude']:.4f}",
                f"{row['latitude']:.4f}",
                *(row[name] for name in places),
                f"{row['tests']:,}",
                f"{row['sd_before_log10']:.3f}",
                f"{row['sd_after_log10']:.3f}",
                f"{row['removed']:.2%}",
            )
            for row in chosen.head(_SHOWN).to_dict(orient="records")
        ),
        left=places,
    )
    console.tell(
        table,
        f"Measuring all {len(chosen)} tiles removes {described['removed']:.2%} of the variance of "
        f"the level, summed over {described['counted']} ({described['counted_tiles']:,}). Choosing "
        "the tile with the widest remaining interval each time would remove "
        f"{described['removed_by_widest']:.2%}.",
        *result.files,
    )
