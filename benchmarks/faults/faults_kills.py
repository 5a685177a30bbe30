"""Kill `geogp fetch` and a reading of Census files, and check what the next run finds."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from benchmarks.faults.faults_world import (
    QUARTERS,
    QUICK,
    Reading,
    World,
    fresh_cache,
    run,
    same,
    sound,
)
from benchmarks.faults.faulty_server import FaultyServer, Manner
from benchmarks.faults.fork_command import start
from benchmarks.script import forking
from geogp.geodata.places.census import read_region
from geogp.geodata.store.cache import DAMAGED, WHOLE, cache_items
from geogp.geodata.store.sources import Web


def kills(world: World, server: FaultyServer, count: int, random: Any) -> None:
    """Kill -9 at random moments of `geogp fetch`; every other kill while it gets new files."""
    with fresh_cache() as cache, tempfile.TemporaryDirectory() as logs:
        arguments = ["fetch", "DEMO", "--quarters", QUARTERS, "--source", server.url, "--json"]
        arguments += ["--boundaries", str(world.folder / "boundaries")]

        def fetch(*more: str) -> ForkServerProcess:
            return start([*arguments, *more], Path(logs), {"GEOGP_CACHE": str(cache)})

        server.tell()
        process = fetch()
        process.join()
        if process.exitcode:
            raise RuntimeError((Path(logs) / "errors").read_text())
        most = len(server.told.requests)
        for number in range(count):
            wanted = int(random.integers(1, most + 1))
            later = float(random.uniform(0, 0.03))
            _kill(world, server, fetch, (wanted, later), refresh=number % 2 == 1)


def _kill(
    world: World,
    server: FaultyServer,
    fetch: Callable[..., ForkServerProcess],
    moment: tuple[int, float],
    *,
    refresh: bool,
) -> None:
    """Fetch, kill, check, fetch again; with `refresh`, starting from a full cache of older files.

    The moment of the kill is a number of requests plus some seconds, because the speed of a busy
    machine varies.
    """
    cache = Path(os.environ["GEOGP_CACHE"])
    shutil.rmtree(cache / "tiles", ignore_errors=True)
    server.folder = world.folder / "old"
    server.tell(manner=Manner(delay_s=0.004))
    if refresh:
        run(Web(server.url, QUICK), world.region)
        server.folder = world.folder / "new"
        server.tell(manner=Manner(delay_s=0.004))
    more = ["--refresh"] if refresh else []
    process = fetch(*more)
    started = time.monotonic()
    while len(server.told.requests) < moment[0] and time.monotonic() - started < 5:
        time.sleep(0.001)
    time.sleep(moment[1])
    process.kill()
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    items = cache_items(check=True)
    whole = sum(item.state == WHOLE for item in items)
    wrong = not refresh and any(item.state == DAMAGED for item in items)
    now = world.new if refresh else world.old
    server.tell()
    again = fetch(*more)
    again.join()
    fetched = sum(name.endswith(".parquet") for method, name in server.told.requests) > 0
    found = run(Web(server.url, QUICK), world.region)
    good = again.exitcode == 0 and fetched and not wrong and same(found, now) and sound()
    label = "kill -9 of geogp fetch" + (" --refresh" if refresh else "")
    if not good:
        world.count(label, "WRONG")
    elif not killed:
        world.count(label, "had ended already; the next run right")
    elif refresh:
        world.count(label, "the next run took all new files")
    else:
        part = "no" if not whole else "some" if whole < 8 else "all"
        world.count(label, f"{part} quarters whole; the next run completed them")


def census_kills(world: World, server: FaultyServer, of: Reading, count: int, random: Any) -> None:
    """Kill -9 at random moments of a reading of Census files."""
    for _ in range(count):
        with fresh_cache() as cache:
            server.tell(manner=Manner(delay_s=0.02))
            given = (str(cache), server.url)
            process = forking("benchmarks.faults.fork_command").Process(
                target=_read_census, args=given, daemon=True
            )
            process.start()
            wait = int(random.integers(1, 10))
            while len(server.told.requests) < wait and process.is_alive():
                time.sleep(0.001)
            process.kill()
            process.join()
            bad = [item for item in cache_items(check=True) if item.state == DAMAGED]
            server.tell()
            right = of.same(of.read(Web(server.url, QUICK)), of.old) and sound()
            told = "the next run right" if right and not bad else "WRONG"
            world.count("kill -9 while Census files come", told)


def _read_census(cache: str, url: str) -> None:
    os.environ["GEOGP_CACHE"] = cache
    read_region(Web(url), "DEMO")
