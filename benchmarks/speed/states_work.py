"""Run one stage of the benchmark of states in a separate process, and print its costs as JSON.

    python -m benchmarks.speed.states_work '{"kind": "ingest", "state": "RI", ...}'

The last line of standard output has the figures, or ``refused`` with the text of the error. Modules
that load torch are imported late, so they do not add to the memory of stages without torch.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peak_memory import peak_bytes
from benchmarks.speed.states_people import rows_that_fit
from geogp.errors import GeogpError
from geogp.geodata.places.census import read_region, state_codes
from geogp.geodata.places.region import Strata
from geogp.geodata.simulation.made_up_towns import ground_km2, made_up_towns
from geogp.geodata.simulation.simulated_tiles import simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.store.sources import open_source
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters

ZOOM = 16
_COUNTED = 1_000_000  # tiles are counted exactly in boxes of up to four times as many


class Clock:
    """Elapsed and processor seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        start, spent = time.monotonic(), time.process_time()
        yield
        self.seconds[name] = time.monotonic() - start
        self.cpu[name] = time.process_time() - spent

    def told(self) -> dict[str, Any]:
        """Return the figures, and the peak of the process's memory."""
        return {"seconds": self.seconds, "cpu": self.cpu, "peak_bytes": peak_bytes()}


def regions(asked: dict[str, Any]) -> dict[str, Any]:
    """Return tiles and land area of all states in the boundaries."""
    from geogp.records.map_settings import MAX_TILES  # noqa: PLC0415

    source = open_source(asked["boundaries"])
    held, found = set(state_codes(source)), {}
    for code in asked["states"]:
        if code in held:
            region = read_region(source, code).region
            tiles = region.about_tiles(ZOOM, _COUNTED // 4)
            drawn = tiles
            while drawn > MAX_TILES:  # `geogp map` also chooses a coarser zoom
                drawn //= 4
            ground = ground_km2(region.boundary)
            found[code] = {"tiles": tiles, "map_tiles": drawn, "km2": ground}
    return found


def simulated(asked: dict[str, Any]) -> dict[str, Any]:
    """Simulate a state: the stages of ``geogp simulate --made-up-towns``."""
    clock, out = Clock(), Path(asked["folder"])
    quarters = parse_quarters(asked["quarters"]).all
    with clock.stage("boundaries"):
        region = read_region(open_source(asked["boundaries"]), asked["state"]).region
        made_up = region.strata is None
        if made_up:
            towns = made_up_towns(region, asked["seed"])
            region = region.with_strata(Strata.of_urban_areas(towns, 2020))
        tiles = region.about_tiles(ZOOM, _COUNTED)
    rows = rows_that_fit(asked["rows"], tiles, len(quarters))
    with clock.stage("draw"):
        made = simulate(region, rows=rows, quarters=quarters, seed=asked["seed"])
    with clock.stage("write"):
        files = write_simulation(made, region, out, made_up_towns=made_up)
    told = clock.told()
    if asked["oracles"]:
        from geogp.commands.simulate import oracle_table  # noqa: PLC0415

        with clock.stage("oracles"):
            oracle_table(made, asked["seed"])
        told |= {"oracles_peak_bytes": peak_bytes()}
    return told | {
        "rows": rows,
        "tiles": tiles,
        "made_up_towns": made_up,
        "quarters": len(quarters),
        "source_bytes": sum(path.stat().st_size for path in files if "_tiles" in path.name),
        "bytes": sum(path.stat().st_size for path in files),
    }


def ingested(asked: dict[str, Any]) -> dict[str, Any]:
    """Read a simulated state's rows, with its files dropped from the page cache."""
    clock, folder = Clock(), Path(asked["folder"])
    for path in folder.rglob("*.parquet"):
        _forget(path)
    with clock.stage("boundaries"):
        region = read_region(open_source(str(folder / "boundaries")), asked["state"]).region
    with clock.stage("ingest"):
        found = read_observations(
            open_source(str(folder)), region, service="mobile", target="download", quarters=None
        )
    return clock.told() | {"rows": len(found.observations)}


def _forget(path: Path) -> None:
    """Drop a file from the page cache, so that it is read from the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def mapped(asked: dict[str, Any]) -> dict[str, Any]:
    """Make a map; the seconds of its stages are those of run.json."""
    from geogp.models.presets import find_preset  # noqa: PLC0415
    from geogp.records.map_settings import MapSettings  # noqa: PLC0415
    from geogp.runs.pipeline.run_map import run_map  # noqa: PLC0415

    folder = Path(asked["folder"])
    clock, out = Clock(), folder / "run"
    with clock.stage("map"):
        made = run_map(
            MapSettings(
                region=asked["state"],
                source=str(folder),
                boundaries=str(folder / "boundaries"),
                model=asked["model"],
                preset=asked["preset"],
                epochs=asked["epochs"],
                zoom=asked["zoom"],
                device="cpu",
                out=out,
            )
        ).record
    told = clock.told()
    counts = [count.train for count in made.n.values()]
    n = made.n["random"]
    if find_preset(asked["preset"], asked["model"]).refit:
        counts.append(n.train + n.test)
    return told | {
        "stages": made.seconds,
        "rows": n.rows,
        "fitted_rows": sum(counts),
        "tiles": made.map.tiles,
        "bytes": sum(path.stat().st_size for path in out.rglob("*") if path.is_file()),
    }


KINDS = {"regions": regions, "simulate": simulated, "ingest": ingested, "map": mapped}


def work() -> None:
    """Run the requested stage."""
    asked = json.loads(sys.argv[1])
    try:
        found = KINDS[asked["kind"]](asked)
    except GeogpError as error:
        found = {"refused": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    work()
