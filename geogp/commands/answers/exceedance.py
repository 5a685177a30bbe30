"""Where the level meets thresholds: shares of the area with intervals, and joint regions."""

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from geogp.commands.answers.run_answer import plain_rows, reopened
from geogp.commands.run_requests import ExceedanceRequest
from geogp.files import write_text
from geogp.maps.csv_tables import write_csv
from geogp.maps.figures.excursion_figures import write_excursions
from geogp.runs.progress import ProgressListener
from geogp.runs.questions.threshold_shares import LEVEL, Excursion, threshold_shares
from geogp.runs.reopen import WHOLE, Reopened, weights_tag

NOTES = (
    (
        "The level is the value around which measurements scatter; it contains no measurement "
        "noise. Each share is a share of the area. The interval of a share comes from draws "
        "from the joint distribution of all tiles."
    ),
    (
        "With a probability of 95 %, the level is on the stated side of the threshold in all "
        "tiles of a joint region at once. This probability holds for each joint region "
        "alone. For both joint regions together, the probability is 90 % or more. Tiles far from "
        "any measurement (--far-km of the map) are in no joint region."
    ),
    "The intervals do not include the uncertainty of the learned basis.",
)


@dataclass(frozen=True)
class ExceedanceResult:
    """The written files, and the result for each threshold, also as an object for JSON."""

    files: tuple[Path, ...]
    excursions: tuple[Excursion, ...]
    described: tuple[dict[str, Any], ...]


def make_exceedance(
    request: ExceedanceRequest, listener: ProgressListener | None = None
) -> ExceedanceResult:
    """Compare the level of a run with thresholds, and write the result into the run folder.

    Raises the errors of `reopened` and `threshold_shares`, and OutputError if a file cannot be
    written.
    """
    started = monotonic()
    with reopened(request, listener, at=request.at) as opened:
        found = threshold_shares(opened, request)
        opened.listener.stage("writing shares and joint regions")
        common = {
            "run": str(request.run),
            "for": request.question,
            "at": opened.question.at,
            "zoom": opened.tiles.zoom,
            "tiles": len(opened.tiles),
            "draws": request.draws,
            "seed": request.seed,
            "weights": request.weights,
            "level": LEVEL,
            "notes": list(NOTES),
            "warnings": opened.listener.warnings,
            "seconds": round(monotonic() - started, 1),
        }
        described = tuple({**common, **_described(one)} for one in found)
        files = [
            path
            for one, description in zip(found, described, strict=True)
            for path in _write(opened, one, description)
        ]
    return ExceedanceResult(tuple(files), found, described)


def _described(found: Excursion) -> dict[str, Any]:
    """Return the JSON object of one threshold."""
    threshold = found.threshold
    regions = {"met": (found.met, threshold.met), "short": (found.short, threshold.missed)}
    return {
        "target": threshold.target,
        "threshold": threshold.value,
        "meets": threshold.met,
        "falls_short": threshold.missed,
        "share_falling_short": plain_rows(found.shares),
        "joint_regions": {
            name: {
                "is": words,
                "tiles": int(region.inside.sum()),
                "tiles_interval": [region.fewest, region.most],
                "probability": region.probability,
                "probability_interval": [region.lower, region.upper],
            }
            for name, (region, words) in regions.items()
        },
    }


def _write(opened: Reopened, found: Excursion, described: dict[str, Any]) -> list[Path]:
    """Write the files of one threshold; return their paths.

    The names contain target, question, quarter and threshold, such as
    ``exceedance_download_level_2023Q4_35_mbps.csv``; with weights also these.
    """
    folder = opened.path
    tag = f"{opened.settings.target}_{described['for']}_{described['at']}_{found.threshold.tag}"
    tag += weights_tag(described["weights"])
    paths = [folder / f"exceedance_{tag}.json"]
    write_text(paths[0], json.dumps(described, indent=1, allow_nan=False) + "\n")
    for name, table in found.shares.groupby("layer", sort=False):
        end = "" if name == WHOLE else f"_{name}"
        paths.append(folder / f"exceedance_{tag}{end}.csv")
        write_csv(paths[-1], table.drop(columns="layer"))
    return paths + write_excursions(
        folder,
        opened.inputs.region,
        opened.tiles,
        (found.met, found.short),
        found.threshold,
        tag=tag,
        subtitle=f"{opened.inputs.region.name}, {opened.question.label()}; level",
        about_data=opened.inputs.ingested.credits,
    )
