"""Simulated tiles and boundaries, with the best scores that any model can reach."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from geogp.commands.data_requests import SimulationRequest
from geogp.errors import DataError, RequestError
from geogp.evaluation.splits.split_rows import block_split, random_split
from geogp.files import check_folder, read_json, write_bytes, write_text
from geogp.geodata.places.region import Region, Strata
from geogp.geodata.simulation.made_up_towns import made_up_towns
from geogp.geodata.simulation.oracles import Oracle, known_oracle, predictive_oracle
from geogp.geodata.simulation.simulated_tiles import Simulation, simple_region, simulate
from geogp.geodata.simulation.simulation_files import (
    compact_table,
    simulation_files,
    write_simulation,
)
from geogp.geodata.tiles.quarters import parse_quarters, quarter_label
from geogp.runs.output_files import OutputFiles
from geogp.runs.progress import ProgressListener

ORACLE_TARGET = "download"
"""Target that the oracles predict."""

_ORACLES = ("oracles.parquet", "oracles.json")

MADE_UP_VINTAGE = 2020
"""Census year in the column names of the file of simulated towns."""


def make_simulation(
    request: SimulationRequest, listener: ProgressListener | None = None
) -> dict[str, Any]:
    """Simulate tiles with a known truth, and score two oracles on the test rows of each split.

    Returns the number of rows, the region, the quarters, whether towns were simulated, and if
    requested, the mean log scores of the oracles by split (see `oracle_table`).

    Raises RequestError if the output path is a file or a folder with other contents, or if the
    request is not possible, and the errors of `OutputFiles`. Raises DataError or NetworkError if
    boundaries cannot be read, and OutputError if a file cannot be written.
    """
    listener = listener or ProgressListener()
    out = request.out
    check_folder(out)
    quarters = parse_quarters(request.quarters).all
    region, drawn = _region(request, listener)
    _check_output(request, quarters, region, drawn=drawn)
    listener.stage(f"simulating {request.rows:,} rows in {region.name}")
    made = simulate(
        region, rows=request.rows, quarters=quarters, seed=request.seed, service=request.service
    )
    oracles = _oracles(made, request, listener) if not request.no_oracles else None
    write_simulation(made, region, out, made_up_towns=drawn)
    described: dict[str, Any] = {
        "rows": len(made.tiles),
        "region": region.code,
        "quarters": request.quarters,
        "made_up_towns": drawn,
    }
    return described if oracles is None else {**described, "oracles": _write_oracles(oracles, out)}


def _oracles(
    made: Simulation, request: SimulationRequest, listener: ProgressListener
) -> pd.DataFrame:
    listener.stage("scoring the oracles")
    try:
        return oracle_table(made, request.seed)
    except DataError as error:
        raise RequestError(
            f"expected enough test rows to score the oracles, found {request.rows:,} rows: "
            f"{error} Choose more --rows, or leave the oracles out with --no-oracles."
        ) from error


def _write_oracles(oracles: pd.DataFrame, out: Path) -> dict[str, dict[str, float]]:
    """Write the predictions of the oracles; return their mean log scores by split and name."""
    scores: dict[str, dict[str, float]] = {}
    for split, rows in oracles.groupby("split", sort=False):
        for name in ("known", "predictive"):
            oracle = Oracle(rows[f"{name}_mean"].to_numpy(), rows[f"{name}_sd"].to_numpy())
            score = oracle.log_score(rows["y"].to_numpy()).mean()
            scores.setdefault(str(split), {})[name] = float(score)
    table, summary = (out / name for name in _ORACLES)
    write_bytes(table, compact_table(oracles))
    write_text(summary, json.dumps(scores, indent=1) + "\n")
    return scores


def _check_output(
    request: SimulationRequest, quarters: tuple[int, ...], region: Region, *, drawn: bool
) -> None:
    """Raise RequestError if the simulation would overwrite anything except the same simulation."""
    out, description = request.out, request.out / "simulation.json"
    same = _is_same(description, request, quarters, region, drawn=drawn)
    others = out.is_dir() and any(path.name != "README.md" for path in out.iterdir())
    # The tiles of two simulations in one folder would be one source.
    if others and not same and (description.exists() or not request.force):
        raise RequestError(
            f"{out} contains files that are not part of this simulation; choose another folder "
            f"with --out{'' if description.exists() else ', or add --force'}."
        )
    names = [*simulation_files(request.service, quarters, region), *_ORACLES]
    inputs = request.boundaries, request.region_file
    files = (out / name for name in names)
    OutputFiles("simulate", files, reads=inputs, own=same, force=request.force)


def _is_same(
    description: Path,
    request: SimulationRequest,
    quarters: tuple[int, ...],
    region: Region,
    *,
    drawn: bool,
) -> bool:
    """Return whether a simulation.json describes the requested simulation."""
    try:
        stored = read_json(description)
        requested = {"seed": request.seed, "rows": request.rows, "service": request.service}
        requested["quarters"] = [quarter_label(quarter) for quarter in quarters]
        return (
            all(stored[key] == value for key, value in requested.items())
            and stored["region"]["code"] == region.code
            and stored["region"].get("made_up_towns", False) == drawn  # older simulations lack it
        )
    except (OSError, ValueError, LookupError, TypeError):
        return False


def oracle_table(simulation: Simulation, seed: int) -> pd.DataFrame:
    """Return predictions of the download speed by two oracles, for the test rows of two splits.

    The oracle ``known`` uses the true field, tile effects and noise variance. The oracle
    ``predictive`` uses the true field, noise variance and covariance of tile effects, and learns
    tile effects from training rows. Columns: split, quadkey, quarter, y, each oracle's mean and sd.
    """
    truth, tiles = simulation.truth, simulation.tiles
    splits = {
        "random": random_split(tiles["quadkey"].to_numpy(), tiles["quarter"].to_numpy(), seed),
        "blocks": block_split(truth["longitude"], truth["latitude"], seed),
    }
    law = simulation.laws[ORACLE_TARGET]
    tables: list[pd.DataFrame] = []
    for name, parts in splits.items():
        # Validation rows have no scores; leaving them out saves time.
        rows = truth[parts != "validation"].reset_index(drop=True)
        test = parts[parts != "validation"] == "test"
        known = known_oracle(rows, ORACLE_TARGET)
        predictive = predictive_oracle(rows, ~test, law)
        table: pd.DataFrame = rows.loc[test, ["quadkey", "quarter", "y"]].copy()
        table.insert(0, "split", name)
        for label, oracle in (("known", known), ("predictive", predictive)):
            table[f"{label}_mean"] = oracle.mean[test]
            table[f"{label}_sd"] = oracle.sd[test]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _region(request: SimulationRequest, listener: ProgressListener) -> tuple[Region, bool]:
    """Return the region, and whether its towns were simulated."""
    if request.place is None:
        region = simple_region()
    else:
        boundaries = request.place.read()
        for text in boundaries.warnings:
            listener.warn(text)
        region = boundaries.region
    if not request.made_up_towns:
        return region, False
    if region.strata is not None:
        listener.warn(f"{region.name} already has urban areas: --made-up-towns has no effect.")
        return region, False
    listener.stage(f"simulating towns in {region.name}")
    towns = made_up_towns(region, request.seed)
    return region.with_strata(Strata.of_urban_areas(towns, MADE_UP_VINTAGE)), True
