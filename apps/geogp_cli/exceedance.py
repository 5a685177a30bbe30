"""The command `geogp exceedance`: parse, call, print."""

import json
from typing import Any

from geogp.commands.run_requests import ExceedanceRequest
from geogp_cli import console
from geogp_cli.place import Json
from geogp_cli.setting_options import takes


@takes(ExceedanceRequest)
def exceedance(request: ExceedanceRequest, as_json: Json = False) -> None:
    """Compute the share of area below each threshold, and where the level meets the threshold."""
    from geogp.commands.exceedance import make_exceedance

    with console.working() as listener:
        result = make_exceedance(request, listener)
    if as_json:
        files = [str(path) for path in result.files]
        print(json.dumps({"files": files, "thresholds": list(result.described)}))
        return
    for described in result.described:
        table = console.table(
            f"{described['at']}, share of the area where the level is {described['falls_short']}",
            "area, tiles, km², share, 95 % interval",
            (
                (
                    row["area"],
                    f"{row['tiles']:,}",
                    f"{row['area_km2']:,.0f}",
                    f"{100 * row['mean']:.1f} %",
                    f"{100 * row['lower']:.1f} to {100 * row['upper']:.1f} %",
                )
                for row in described["share_falling_short"]
            ),
        )
        console.tell(
            table, *(_words(one, described) for one in described["joint_regions"].values())
        )
    console.tell(*result.files)


def _words(region: dict[str, Any], described: dict[str, Any]) -> str:
    """Return the size and the certainty of a joint region, in words."""
    low, high = region["tiles_interval"]
    if not region["tiles"]:
        return (
            f"{region['is']}: the joint region has no tile (other random draws give up to "
            f"{high:,})."
        )
    return (
        f"{region['is']}: the joint region has {region['tiles']:,} of {described['tiles']:,} tiles "
        f"(other random draws give {low:,} to {high:,}). In {100 * region['probability']:.1f} % of "
        f"{described['draws']} draws, the level is {region['is']} in all of these tiles."
    )
