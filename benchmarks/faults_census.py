"""Faults of the Census Bureau's files, with its names, and what the next run finds."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
from faults_world import QUICK, World, fresh_cache
from faulty_server import Fault, FaultyServer, Manner

from geogp.errors import GeogpError, NetworkError
from geogp.geodata.places.census import Boundaries, read_region
from geogp.geodata.store.cache_contents import DAMAGED, WHOLE, cache_items
from geogp.geodata.store.sources import Folder, Web

KINDS = ("drop", "cut", "short", "long", "slow", "403", "404", "429", "500", "503")

STATES = "GENZ2018/shp/cb_2018_us_state_500k.zip"
URBAN = "GENZ2020/shp/cb_2020_us_ua20_500k.zip"

_CODE = """
import sys
from geogp.geodata.places.census import read_region
from geogp.geodata.store.sources import Web
read_region(Web(sys.argv[1]), "DEMO")
"""


def write_census(folder: Path, boundaries: Path, *, shift: float = 0.0) -> Path:
    """Write the boundaries of the made-up region as the Bureau's site has them."""
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


def census_faults(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Every fault of an answer, files replaced midway, copies damaged, and kills."""
    old = write_census(world.folder / "census-old", world.folder / "boundaries")
    new = write_census(world.folder / "census-new", world.folder / "boundaries", shift=0.01)
    server.folder, server.replacement = old, new
    wanted, other = (read_region(Folder(folder), "DEMO") for folder in (old, new))
    for kind in KINDS:
        for _ in range(repeats):
            times = int(random.choice([1, 10**6]))
            method = "HEAD" if kind.isdecimal() and random.random() < 0.3 else "GET"
            server.tell(Fault(kind, int(random.integers(2)), times, method))
            world.count(f"Census file: {kind}", _trial(server, wanted))
    for etag in ("strong", "weak", "none"):
        for _ in range(repeats):
            manner = Manner(etag=etag, dated=etag != "none")
            server.tell(Fault("replace", int(random.integers(2))), manner=manner)
            with fresh_cache():
                found = read_region(Web(server.url, QUICK), "DEMO")
                which = "old" if _same(found, wanted) else "new" if _same(found, other) else ""
                good = which and _sound()
            told = f"all of the {which} file" if good else "WRONG: a mixture"
            world.count(f"Census file replaced midway, {etag} ETag", told)
    _damaged(world, server, wanted, repeats, random)
    _kills(world, server, wanted, repeats, random)


def _trial(server: FaultyServer, wanted: Boundaries) -> str:
    with fresh_cache():
        try:
            found = read_region(Web(server.url, QUICK), "DEMO")
            told = "right data at once" if _same(found, wanted) else "other data"
        except NetworkError:
            told = "error said; the next run right"
        except GeogpError as error:
            told = f"{type(error).__name__}, as of a file that is not there; the next run right"
        if told == "other data":
            missing = found.region.strata is None and found.warnings
            told = "no urban areas, and said so; the next run right" if missing else "WRONG data"
        if not _sound():
            return "WRONG: a damaged file"
        server.tell()
        right = _same(read_region(Web(server.url, QUICK), "DEMO"), wanted) and _sound()
    return told if right else "WRONG data in the next run"


def _damaged(
    world: World, server: FaultyServer, wanted: Boundaries, repeats: int, random: Any
) -> None:
    server.tell()
    with fresh_cache() as cache:
        read_region(Web(server.url, QUICK), "DEMO")
        for _ in range(repeats * 3):
            paths = sorted(cache.rglob("*.zip"))
            path = paths[random.integers(len(paths))]
            content = bytearray(path.read_bytes())
            content[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
            path.write_bytes(content)
            found = [item.path for item in cache_items(check=True) if item.state == DAMAGED]
            right = _same(read_region(Web(server.url, QUICK), "DEMO"), wanted) and _sound()
            good = found == [path] and right
            told = "found by verify; not read, fetched again" if good else "WRONG"
            world.count("Census file, cached bytes damaged", told)


def _kills(
    world: World, server: FaultyServer, wanted: Boundaries, repeats: int, random: Any
) -> None:
    for _ in range(repeats):
        with fresh_cache() as cache:
            server.tell(manner=Manner(delay_s=0.02))
            environment = {**os.environ, "GEOGP_CACHE": str(cache)}
            process = subprocess.Popen([sys.executable, "-c", _CODE, server.url], env=environment)
            wait = int(random.integers(1, 10))
            while len(server.told.requests) < wait and process.poll() is None:
                pass
            process.kill()
            process.wait()
            bad = [item for item in cache_items(check=True) if item.state == DAMAGED]
            server.tell()
            right = _same(read_region(Web(server.url, QUICK), "DEMO"), wanted) and _sound()
            told = "the next run right" if right and not bad else "WRONG"
            world.count("kill -9 while Census files come", told)
    shutil.rmtree(world.folder / "census-new")


def _same(one: Boundaries, other: Boundaries) -> bool:
    first, second = one.region.strata, other.region.strata
    if first is None or second is None:
        return False
    shapes = one.region.boundary.equals(other.region.boundary) and first.area.equals(second.area)
    return bool(shapes and np.array_equal(one.files, other.files))


def _sound() -> bool:
    return all(item.state == WHOLE for item in cache_items(check=True))
