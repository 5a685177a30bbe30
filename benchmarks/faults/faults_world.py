"""Data for trials of download faults: tiles and Census files, and what a run must read."""

import os
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geogp.geodata.places.census import Boundaries, read_region
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.store.cache import WHOLE, cache_items
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import Ingested, read_observations
from geogp.geodata.tiles.quarters import parse_quarters

QUARTERS = "2022Q1..2023Q4"

QUICK = Patience(
    attempts=4, first_wait_s=0.005, longest_wait_s=0.02, timeout_s=0.3, slowest=100_000.0
)
"""Short waits, so that a hundred trials end within a minute."""


STATES = "GENZ2018/shp/cb_2018_us_state_500k.zip"
URBAN = "GENZ2020/shp/cb_2020_us_ua20_500k.zip"


@dataclass
class World:
    """A simulated bucket, the same bucket with other values, and the right results for each."""

    folder: Path
    region: Region
    old: Ingested
    new: Ingested
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    def count(self, fault: str, outcome: str) -> None:
        """Count the outcome of a trial."""
        self.outcomes.setdefault(fault, Counter())[outcome] += 1


@dataclass(frozen=True)
class Reading:
    """A download under trial."""

    name: str
    label: str  # the beginning of the names of its trials
    read: Callable[[Folder | Web], Any]
    same: Callable[[Any, Any], bool]
    old: Any  # the right readings before and after the files are replaced
    new: Any
    lacks: Callable[[Any], str]  # what a reading or an error reports about a missing file
    requests: tuple[int, int]  # approximate numbers of GET and HEAD requests


def tiles(world: World, quarters: str = QUARTERS) -> Reading:
    """Return the reading of some quarters of tiles."""

    def read(source: Folder | Web) -> Ingested:
        return run(source, world.region, quarters)

    def lacks(found: Any) -> str:
        gap = isinstance(found, Ingested) and found.missing
        said = gap and any("no tiles" in text for text in found.warnings)
        return "the quarter said to be missing" if said else ""

    old, new = (read(Folder(world.folder / name)) for name in ("old", "new"))
    return Reading("file", "", read, same, old, new, lacks, (24, 8))


def census(world: World) -> Reading:
    """Write files as on the Census Bureau's site, with its folder names; return their `Reading`."""
    folders = [
        write_census(world.folder / f"census-{name}", world.folder / "boundaries", shift=shift)
        for name, shift in (("old", 0.0), ("new", 0.01))
    ]

    def read(source: Folder | Web) -> Boundaries:
        return read_region(source, "DEMO")

    def alike(one: Boundaries, other: Boundaries) -> bool:
        first, second = one.region.strata, other.region.strata
        if first is None or second is None:
            return False
        shapes = one.region.boundary.equals(other.region.boundary)
        return bool(
            shapes and first.area.equals(second.area) and np.array_equal(one.files, other.files)
        )

    def lacks(found: Any) -> str:
        if isinstance(found, Boundaries):
            gap = found.region.strata is None and found.warnings
            return "no urban areas, and said so" if gap else ""
        return f"{type(found).__name__}, as of a file that is not there"

    old, new = (read(Folder(folder)) for folder in folders)
    return Reading("Census file", "Census file: ", read, alike, old, new, lacks, (2, 2))


def write_census(folder: Path, boundaries: Path, *, shift: float = 0.0) -> Path:
    """Write the boundaries of the invented region in the form of the Census Bureau's site."""
    for source, name in (("states", STATES), ("urban_areas_DEMO", URBAN)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = gpd.read_parquet(boundaries / f"{source}.parquet")
        if source != "states":
            table = table.set_geometry(table.geometry.translate(xoff=shift))
        table.to_file(path.with_suffix(".shp"))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in sorted(path.parent.glob(f"{path.stem}.*")):
                if part != path:
                    archive.write(part, part.name)
                    part.unlink()
    return folder


def make_world(folder: Path, rows: int = 6000) -> World:
    """Write tiles of an invented region and far tiles, which row groups can separate."""
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
    # The region is read as by the command.
    read = read_region(Folder(folder / "boundaries"), "DEMO").region
    old, new = (run(Folder(folder / name), read) for name in ("old", "new"))
    return World(folder, read, old, new)


def run(source: Folder | Web, region: Region, quarters: str = QUARTERS) -> Ingested:
    """Read the observations, as a map does."""
    return read_observations(source, region, quarters=parse_quarters(quarters))


def same(one: Ingested, other: Ingested) -> bool:
    """Return whether two runs read the same rows, to the last bit."""
    first, second = vars(one.observations), vars(other.observations)
    return all(
        np.array_equal(first[name], value)
        for name, value in second.items()
        if isinstance(value, np.ndarray)
    )


@contextmanager
def fresh_cache(place: Path | None = None) -> Iterator[Path]:
    """Use an empty folder as the cache."""
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
    """Return whether every cache entry is complete; a partial download is not an entry."""
    return all(
        item.state == WHOLE
        for item in cache_items(check=True)
        if item.path.suffix not in {".parts", ".ranges"}
    )
