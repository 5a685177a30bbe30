r"""All models on one region with an equal budget, as one table.

    python -m benchmarks accuracy.regions PR --source ookla-open-data --boundaries census \
        --epochs 20

Every model is mapped by `geogp.make_map` with the same splits, for both targets. Models of networks
have the same widths, rank, batches and passes over the rows; the field model and models with
anchors have the values of their preset. Each run is a separate process, whose peak memory is stored
beside the run folder. The table is made from the run folders, and the same command continues where
it stopped.
"""

import argparse
import json
import multiprocessing
from itertools import product

import geogp
from benchmarks.markdown import percent, table
from benchmarks.peak_memory import peak_bytes
from benchmarks.script import Figures, command_given, options_of, say, write_results
from geogp.files import write_text
from geogp.models.names import MODELS as KNOWN
from geogp.records.map_settings import MapSettings
from geogp.records.run_settings import upgraded
from geogp.runs.pipeline.run_map import run_map

SPLITS = ("random", "blocks")
STRATA = ("all", "urban", "rural")

MODELS = [name for name, spec in KNOWN.items() if not spec.counts]
"""All models except those of counts, which have another target."""

HEADER = (
    *("model", "log score", "less baseline", "urban", "rural", "CRPS", "holds, urban"),
    *("holds, rural", "fit, both splits (s)", "peak (GB)"),
)


def request_of(options: argparse.Namespace, model: str, target: str) -> MapSettings:
    """Return the request of one run."""
    epochs = options.epochs if KNOWN[model].family == "deep" else None
    name = f"{options.region}-{target}-{model}-{options.preset}-{epochs or 'preset'}"
    same = ("region", "source", "boundaries", "quarters", "preset", "zoom", "seed", "device")
    return MapSettings(
        **{field: getattr(options, field) for field in same},
        target=target,
        model=model,
        epochs=epochs,
        split="both",
        out=options.out / name,
    )


def made(request: MapSettings) -> Figures:
    """Make a run in a separate process, and return its run.json with `peak_bytes`."""
    assert request.out is not None, "a run needs a folder"
    path = request.out.with_suffix(".peak.json")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak = max(
            pool.apply(_make, (request,)), json.loads(path.read_text()) if path.exists() else 0
        )
    write_text(path, json.dumps(peak))
    return {**geogp.open_run(request.out).content, "peak_bytes": peak or None}


def _make(request: MapSettings) -> int:
    """Return the peak memory of the process after a run, 0 if the run existed already."""
    say(f"mapping {request.target} by {request.model}")
    if run_map(request).already_there:
        return 0
    return peak_bytes()


def lines_of(run: Figures) -> list[Figures]:
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


def page(lines: list[Figures], made_by: str, runs: list[Figures]) -> str:
    """Return the tables with a description of the runs."""
    first = next((run for run in runs if KNOWN[run["model"]].family == "deep"), runs[0])
    n, settings = first["n"]["random"], upgraded(first)["settings"]["model"]
    head = (
        f"# {first['region_name']}, {first['service']}, {first['quarters'][0]} to "
        f"{first['quarters'][-1]}: all models\n\n"
        f"`{made_by}`\n\n"
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
        f"\n## {target}, {split} split\n\n"
        + _table([one for one in lines if (one["target"], one["split"]) == (target, split)])
        for target, split in product(targets, SPLITS)
    )


def _table(lines: list[Figures]) -> str:
    def signed(value: float | None) -> str:
        return "" if value is None else f"{value:+.4f}"

    cells = [
        (
            f"`{line['model']}`",
            f"{line['nll_all']:.4f}",
            *(signed(line[f"difference_{stratum}"]) for stratum in STRATA),
            f"{line['crps_all']:.4f}",
            *(percent(line[f"coverage_95_{stratum}"]) for stratum in STRATA[1:]),
            f"{line['fit_seconds']:.0f}",
            f"{line['peak_bytes'] / 1e9:.1f}" if line["peak_bytes"] else "",
        )
        for line in sorted(lines, key=lambda line: line["nll_all"])
    ]
    return table(HEADER, cells)


def main() -> None:
    """Map with every model and write the table."""
    options = options_of(
        __doc__,
        out="regions",
        table="regions",
        region=True,
        preset="quick",
        epochs=20,
        seed=0,
        device="auto",
        zoom=16,
        models=MODELS,
        targets=("download", "upload"),
    )
    asked_runs = product(options.targets, options.models)
    runs = [made(request_of(options, model, target)) for target, model in asked_runs]
    lines = [line for run in runs for line in lines_of(run)]
    write_results(options.table, page(lines, command_given(), runs), lines, options.region)
