"""All models on one region at an equal budget, as one table.

    python benchmarks/regions.py PR --source ookla-open-data --boundaries census --epochs 20

Every model is mapped by `make_map` with the same splits, for both targets; models of
networks have the same widths, rank, batches and passes over the rows, the field model and those
with anchors what their preset says. Each run is a process of its own, whose peak memory is kept
beside its folder; the table is made from the run folders, and the same command again continues
where it stopped.
"""

import argparse
import json
import multiprocessing
import shlex
import sys
from itertools import product
from pathlib import Path
from typing import Any

from geogp.errors import GeogpError
from geogp.files import write_text
from geogp.models.catalogue.model_names import MODELS as KNOWN
from geogp.runs.open_run import open_run
from geogp.runs.pipeline.make_map import make_map
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest

SPLITS = ("random", "blocks")
STRATA = ("all", "urban", "rural")

MODELS = [name for name, spec in KNOWN.items() if not spec.counts]
"""All but the models of counts, which have a target of their own."""


class Lines(ProgressListener):
    """Says stages and warnings on standard error."""

    def stage(self, text: str) -> None:
        """Say what begins."""
        print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Say what the user should know."""
        print(f"warning: {text}", file=sys.stderr, flush=True)


def request_of(options: argparse.Namespace, model: str, target: str) -> MapRequest:
    """Return the request of one run."""
    epochs = options.epochs if KNOWN[model].family == "deep" else None
    name = f"{options.region}-{target}-{model}-{options.preset}-{epochs or 'preset'}"
    return MapRequest(
        region=options.region,
        source=options.source,
        boundaries=options.boundaries,
        quarters=options.quarters,
        target=target,
        model=model,
        preset=options.preset,
        epochs=epochs,
        split="both",
        zoom=options.zoom,
        seed=options.seed,
        device=options.device,
        out=options.out / name,
    )


def made(request: MapRequest) -> dict[str, Any]:
    """Make a run in a process of its own, and return its run.json with `peak_bytes`.

    Raises
    ------
    GeogpError
        As `make_map` says.
    """
    assert request.out is not None, "a run has a folder"
    peak = request.out.with_suffix(".peak.json")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seen = pool.apply(_make, (request,))
    before = json.loads(peak.read_text()) if peak.exists() else None
    if seen is not None:
        write_text(peak, json.dumps(max(seen, before or 0)))
    run = open_run(request.out).content
    return {**run, "peak_bytes": max(seen or 0, before or 0) or None}


def _make(request: MapRequest) -> int | None:
    """Return the peak memory of the process after a run, None where it was there already."""
    if make_map(request, Lines()).already_there:
        return None
    # Not ru_maxrss, which begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def lines_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a run's figures, one line for each split."""
    lines = []
    for split in SPLITS:
        own, other = run["metrics"][split], run["baseline"][split]
        line = {"target": run["target"], "split": split, "model": run["model"]}
        line["fit_seconds"] = run["seconds"]["fit"]
        line["peak_bytes"] = run["peak_bytes"]
        for stratum in STRATA:
            line[f"nll_{stratum}"] = own[stratum]["nll"]
            pair = own[stratum]["nll"], other[stratum]["nll"]
            line[f"difference_{stratum}"] = None if None in pair else pair[0] - pair[1]
            line[f"coverage_95_{stratum}"] = own[stratum]["coverage_95"]
            line[f"mae_{stratum}"] = own[stratum]["mae"]
            line[f"crps_{stratum}"] = own[stratum]["crps"]
        lines.append(line)
    return lines


def markdown(lines: list[dict[str, Any]], command: str, runs: list[dict[str, Any]]) -> str:
    """Return the table with what made it."""
    first = next((run for run in runs if KNOWN[run["model"]].family == "deep"), runs[0])
    n, settings = first["n"]["random"], first["settings"]
    head = (
        f"# {first['region_name']}, {first['service']}, {first['quarters'][0]} to "
        f"{first['quarters'][-1]}: all models\n\n"
        f"`{command}`\n\n"
        f"geogp {first['geogp']}, torch {first['versions']['torch']}, device {first['device']}, "
        f"seed {first['seed']}; {n['train'] + n['validation'] + n['test']} rows; inputs "
        f"{settings['inputs']}. Models of networks: h {settings['h']}, r {settings['r']}, "
        f"{settings['epochs']} passes over the training rows in batches of {settings['batch']} "
        "(models of the marginal likelihood take one step a pass); the field model and models "
        f"with anchors as the preset {first['preset']} has them. Log scores on the test rows in "
        "log10 units, lower is better; `less baseline` is the difference from the mean and "
        "variance of each quarter on the same rows; `holds` is the coverage of the 95 % interval; "
        "`peak` is the largest memory of the run's process, program and map included. "
        "Where runs were made beside other work, seconds compare only roughly.\n"
    )
    targets = dict.fromkeys(line["target"] for line in lines)
    return head + "".join(
        f"\n## {target}, {split} split\n\n" + _table(lines, target, split)
        for target, split in product(targets, SPLITS)
    )


def _table(lines: list[dict[str, Any]], target: str, split: str) -> str:
    names = ("model", "log score", "less baseline", "urban", "rural", "CRPS", "holds, urban")
    head = "| " + " | ".join((*names, "holds, rural", "fit, both splits (s)", "peak (GB)")) + " |"
    chosen = [line for line in lines if line["target"] == target and line["split"] == split]
    rows = [
        (
            f"| `{line['model']}` | {line['nll_all']:.4f} | {line['difference_all']:+.4f} | "
            f"{_signed(line['difference_urban'])} | {_signed(line['difference_rural'])} | "
            f"{line['crps_all']:.4f} | "
            f"{_percent(line['coverage_95_urban'])} | {_percent(line['coverage_95_rural'])} | "
            f"{line['fit_seconds']:.0f} | {_gigabytes(line['peak_bytes'])} |"
        )
        for line in sorted(chosen, key=lambda line: line["nll_all"])
    ]
    return "\n".join([head, "| --- |" + " ---: |" * 9, *rows]) + "\n"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.4f}"


def _gigabytes(value: int | None) -> str:
    return "" if value is None else f"{value / 1e9:.1f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("region")
    parser.add_argument("--source", required=True)
    parser.add_argument("--boundaries", required=True)
    parser.add_argument("--quarters")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--targets", nargs="+", default=["download", "upload"])
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--zoom", type=int, default=16, help="of the maps, which have no figures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "out" / "regions", help="run folders")
    parser.add_argument("--table", type=Path, default=here / "results" / "regions")
    return parser.parse_args()


def main() -> int:
    """Map with every model and write the table."""
    options = parse()
    runs = []
    try:
        for target in options.targets:
            runs += [made(request_of(options, model, target)) for model in options.models]
    except GeogpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    lines = [line for run in runs for line in lines_of(run)]
    command = shlex.join(["python", "benchmarks/regions.py", *sys.argv[1:]])
    options.table.mkdir(parents=True, exist_ok=True)
    write_text(options.table / f"{options.region}.md", markdown(lines, command, runs))
    write_text(options.table / f"{options.region}.json", json.dumps(lines, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
