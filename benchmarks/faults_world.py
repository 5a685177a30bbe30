"""What the faults of downloads are tried on: a simulated bucket, and what a run on it must give."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geogp.geodata.places.census import read_region
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.store.cache_contents import WHOLE, cache_items
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import Ingested, read_observations
from geogp.geodata.tiles.quarters import parse_quarters

QUARTERS = "2022Q1..2023Q4"

QUICK = Patience(
    attempts=4, first_wait_s=0.005, longest_wait_s=0.02, timeout_s=0.3, slowest=100_000.0
)
"""So that a hundred trials end within a minute."""


@dataclass
class World:
    """A simulated bucket, the same with other values, and what a run on each must give."""

    folder: Path
    region: Region
    old: Ingested
    new: Ingested
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, fault: str, outcome: str) -> None:
        """Note what a trial found."""
        self.outcomes.setdefault(fault, Counter())[outcome] += 1


def make_world(folder: Path, rows: int = 6000) -> World:
    """Write tiles of a made-up region, among far ones, so that row groups tell them apart."""
    region = simple_region()
    quarters = parse_quarters(QUARTERS).all
    write_simulation(simulate(region, rows=rows, quarters=quarters, seed=1), region, folder / "old")
    (folder / "old" / "simulation.json").unlink()
    shutil.copytree(folder / "old" / "boundaries", folder / "boundaries")
    far = [np.arange(1500, dtype=np.uint64) + np.uint64(at) for at in (10**6, 4**16 - 1501)]
    texts = quadkeys.format_quadkeys(np.concatenate(far)).tolist()
    for path in sorted((folder / "old").rglob("*_tiles.parquet")):
        table = pq.read_table(path)
        beyond = table.take(pa.array(np.resize(np.arange(len(table)), len(texts))))
        place = table.column_names.index("quadkey")
        kind = table.schema.field(place)
        beyond = beyond.set_column(place, kind, pa.array(texts, pa.string()).cast(kind.type))
        whole = pa.concat_tables([beyond[:1500], table.sort_by("quadkey"), beyond[1500:]])
        pq.write_table(whole, path, row_group_size=200, compression="none")
        beside = folder / "new" / path.relative_to(folder / "old")
        beside.parent.mkdir(parents=True, exist_ok=True)
        place = whole.column_names.index("avg_d_kbps")
        faster = pa.array(np.asarray(whole["avg_d_kbps"]) + 7)
        changed = whole.set_column(place, "avg_d_kbps", faster)
        pq.write_table(changed, beside, row_group_size=200, compression="none")
    # The region as the command reads it.
    read = read_region(Folder(folder / "boundaries"), "DEMO").region
    old, new = (run(Folder(folder / name), read) for name in ("old", "new"))
    return World(folder, read, old, new)


def run(source: Folder | Web, region: Region, quarters: str = QUARTERS) -> Ingested:
    """Read the observations, as a map does."""
    return read_observations(source, region, quarters=parse_quarters(quarters))


def same(one: Ingested, other: Ingested) -> bool:
    """Tell whether two runs read the same rows, to the last bit."""
    first, second = vars(one.observations), vars(other.observations)
    return all(
        np.array_equal(first[name], value)
        for name, value in second.items()
        if isinstance(value, np.ndarray)
    )


@contextmanager
def fresh_cache(place: Path | None = None) -> Iterator[Path]:
    """Let the cache be an empty folder."""
    before = os.environ.get("GEOGP_CACHE")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        os.environ["GEOGP_CACHE"] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["GEOGP_CACHE"]
            else:
                os.environ["GEOGP_CACHE"] = before


def sound() -> bool:
    """Tell whether every entry of the cache is whole; the copy of a stopped download is none."""
    return all(
        item.state == WHOLE
        for item in cache_items(check=True)
        if item.path.suffix not in {".parts", ".ranges"}
    )
