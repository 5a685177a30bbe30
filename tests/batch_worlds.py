"""Three small simulated states as one source, and requests for them that take seconds."""

import io
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shapely.affinity import translate

from geogp.commands.batch.batch_plan import BatchRequest
from geogp.commands.batch.batch_work import WorkOrder, WorkOutcome, make_run
from geogp.commands.batch.cluster import WorkerPool
from geogp.files import write_bytes, write_text
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import ROW_GROUP, write_simulation
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.maps.scales import paletted_png
from geogp.records.record_reading import run_text
from geogp.runs.run_names import RUN_FILE

CODES = ("AA", "BB", "CC")
NAMES = tuple(f"{code}-mobile-download" for code in CODES)


STEP = 1.3
"""Degrees from one state to the next, which is a little more than its width."""

BOUNDARIES = "boundaries"


def states_side_by_side(codes: Sequence[str]) -> list[Region]:
    """Return copies of the demo's region, each farther east than the one before."""
    demo = simple_region()
    return [
        Region.from_geometry(
            code,
            f"State {code}",
            translate(demo.boundary, STEP * place),
            translate(demo.strata.area, STEP * place),
            2020,
        )
        for place, code in enumerate(codes)
    ]


def write_states(
    folder: Path, states: Sequence[Region], rows: int, quarters: str = "2023Q3..2023Q4"
) -> Path:
    """Write one source with the tiles and boundaries of several states, `rows` rows each."""
    parts = []
    for place, state in enumerate(states):
        part = folder / f".{place}"
        made = simulate(state, rows=rows, quarters=parse_quarters(quarters).all, seed=place)
        write_simulation(made, state, part)
        parts.append(part)
    for name in sorted(
        {p.relative_to(part) for part in parts for p in part.rglob("*_tiles.parquet")}
    ):
        table = pa.concat_tables([pq.read_table(part / name) for part in parts])
        stream = io.BytesIO()
        pq.write_table(table.sort_by("quadkey"), stream, row_group_size=ROW_GROUP)
        write_bytes(folder / name, stream.getvalue())
    boundaries = folder / BOUNDARIES
    boundaries.mkdir(parents=True, exist_ok=True)
    tables = [gpd.read_parquet(part / BOUNDARIES / "states.parquet") for part in parts]
    together = pd.concat(tables, ignore_index=True)
    together["STATEFP"] = [f"{place:02d}" for place in range(len(together))]
    together.to_parquet(boundaries / "states.parquet")
    for part in parts:
        for path in (part / BOUNDARIES).glob("urban_areas_*.parquet"):
            shutil.move(path, boundaries / path.name)
        shutil.move(part / "simulation.json", folder / "simulation.json")
        shutil.rmtree(part)
    return folder


@dataclass(frozen=True)
class States:
    """A source of three states of 700 rows in two quarters."""

    folder: Path

    @property
    def options(self) -> list[str]:
        """What the command needs to map them quickly."""
        return [
            *("--source", str(self.folder), "--boundaries", str(self.folder / "boundaries")),
            *("--preset", "quick", "--epochs", "2", "--zoom", "12", "--model", "dbk-silu"),
        ]

    def request(self, states: str = "all", **changes: object) -> BatchRequest:
        """Return a request of some states."""
        own = ("services", "targets", "quarters", "each_quarter")
        given = {name: changes.pop(name) for name in own if name in changes}
        maps = {
            "source": str(self.folder),
            "boundaries": str(self.folder / "boundaries"),
            "preset": "quick",
            "epochs": 2,
            "zoom": 12,
            "model": "dbk-silu",
        }
        return BatchRequest(states, **given, maps=maps | changes)


class Direct(Executor):
    """Does at once what it is given; keeps the orders, and raises the faults of a name in turn."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.faults: dict[str, list[BaseException]] = {}

    def submit(self, function, order):
        """Call a function; what interrupts it is not of the future."""
        future = Future()
        self.orders.append(order.run.name)
        try:
            self._fail(order.run.name)
            future.set_result(function(order))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future

    def _fail(self, name):
        if self.faults.get(name):
            raise self.faults[name].pop(0)


@contextmanager
def working_here(patch: pytest.MonkeyPatch) -> Iterator[Direct]:
    """Let batches compute in this process, one run after the other."""
    direct = Direct()

    @contextmanager
    def workers(*_):
        yield WorkerPool(direct, lambda: 1)

    patch.setattr("geogp.commands.batch.make_batch.workers", workers)
    yield direct


def leave_out_pictures(patch: pytest.MonkeyPatch) -> None:
    """Make runs whose pictures hold nothing: drawing them takes half the time of a small run."""
    nothing = paletted_png(np.zeros((1, 1), np.uint8), np.zeros((1, 4), np.uint8))
    patch.setattr("geogp.maps.figures.map_figures.map_figure", lambda *_, **__: nothing)
    patch.setattr("geogp.maps.figures.figure_layout.Canvas.png", lambda *_: nothing)
    patch.setattr("geogp.reports.report_figures.drawn", lambda *_: "data:image/svg+xml;base64,")


def shorten_field_fits(patch: pytest.MonkeyPatch) -> None:
    """Let field models start from the usual values, and learn their errors in few iterations."""
    patch.setattr("geogp.models.field.fit.start_covariance", lambda *_: None)
    patch.setattr("geogp.models.field.predictive_law.ITERATIONS", 3)


def make_run_without_pictures(order: WorkOrder) -> WorkOutcome:
    """Make a run in a worker's process, which is then rid of pictures for good."""
    leave_out_pictures(pytest.MonkeyPatch())
    return make_run(order)


def make_nothing(order: WorkOrder) -> WorkOutcome:
    """Make a run that is a run.json alone."""
    from run_worlds import made_up_run

    write_text(order.folder / order.run.name / RUN_FILE, run_text(made_up_run()))
    return WorkOutcome("made", 1.0, 10**9, "here:1")
