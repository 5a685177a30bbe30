"""Inject each fault of a download many times, and check what the next run finds.

Everything runs on this machine, with a server on the loopback address and a simulated bucket in a
temporary folder. Run from the folder of the project:

    python -m benchmarks faults.faults --repeats 20 --kills 100
"""

import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.faults.faults_kills import census_kills, kills
from benchmarks.faults.faults_world import (
    QUARTERS,
    QUICK,
    Reading,
    World,
    census,
    fresh_cache,
    make_world,
    run,
    same,
    sound,
    tiles,
)
from benchmarks.faults.faulty_server import Fault, FaultyServer, Manner, serving
from benchmarks.markdown import table
from benchmarks.script import parser, write_results
from geogp.errors import GeogpError, NetworkError, OutputError
from geogp.geodata.store.cache import DAMAGED, cache_items, note_of
from geogp.geodata.store.sources import Web

PASSING = ("drop", "cut", "short", "long", "slow", "misplaced", "429", "500", "503")
LASTING = (*PASSING, "403", "404", "size")
NAMES = {
    "drop": "connection dropped before the answer",
    "cut": "connection dropped within the answer",
    "short": "short body, Content-Length of what came",
    "long": "Content-Length above what came",
    "slow": "slow bytes",
    "misplaced": "another part than asked for",
    "size": "another size of the whole than before",
}


def trial(world: World, server: FaultyServer, of: Reading, label: str) -> None:
    """Read under the server's faults, read again without faults, and judge both readings."""
    with fresh_cache():
        try:
            found = of.read(Web(server.url, QUICK))
        except NetworkError:
            told = "error said; the next run right"
        except GeogpError as error:
            told = _of_a_gap(of, label, error) or f"WRONG: {type(error).__name__}"
        else:
            right = of.same(found, of.old)
            told = "right data at once" if right else _of_a_gap(of, label, found) or "WRONG data"
        if not sound():
            told = "WRONG: a damaged entry"
        server.tell()
        if not of.same(of.read(Web(server.url, QUICK)), of.old) or not sound():
            told = "WRONG data in the next run"
    world.count(label, told)


def _of_a_gap(of: Reading, label: str, found: object) -> str:
    lacks = of.lacks(found) if "404" in label else ""
    return f"{lacks}; the next run right" if lacks else ""


def network_faults(
    world: World, server: FaultyServer, of: Reading, repeats: int, random: Any
) -> None:
    """Let answers fail at random requests, for a while or for ever."""
    for kind, lasting in product(LASTING, (False, True)):
        if not lasting and kind not in PASSING:
            continue
        name = NAMES.get(kind, f"status {kind}")
        label = f"{of.label}{name}, {'lasting' if lasting else 'passing'}"
        for _ in range(repeats):
            by_head = kind in {"403", "404", "429", "500"} and random.random() < 0.3
            times = 10**6 if lasting else int(random.integers(1, 4))
            if by_head and kind == "404":
                times = 1
            first = int(random.integers(of.requests[by_head]))
            server.tell(Fault(kind, first, times, "HEAD" if by_head else "GET"))
            trial(world, server, of, label)


def poor_servers(world: World, server: FaultyServer, of: Reading, repeats: int) -> None:
    """Read from servers that lack usual features."""
    for label, manner in {
        "no parts: whole files only": Manner(ranges=False),
        "no HEAD": Manner(heads=False),
        "weak ETag": Manner(etag="weak"),
        "no ETag, no date": Manner(etag="none", dated=False),
        "no parts, no ETag, no date": Manner(ranges=False, etag="none", dated=False),
    }.items():
        for _ in range(max(1, repeats // 4)):
            server.tell(manner=manner)
            trial(world, server, of, of.label + label)


def replaced(world: World, server: FaultyServer, of: Reading, repeats: int, random: Any) -> None:
    """Replace a file while it is read; the result must be the old or the new file, no mixture."""
    for etag, ranges in (("strong", True), ("weak", True), ("none", True), ("strong", False)):
        kind = "no ETag" if etag == "none" else f"{etag} ETag"
        label = f"{of.name} replaced midway, {kind}{'' if ranges else ', no parts'}"
        for _ in range(repeats):
            manner = Manner(etag=etag, dated=etag != "none", ranges=ranges)
            first = int(random.integers(of.requests[1]))
            server.tell(Fault("replace", first), manner=manner)
            with fresh_cache():
                source = Web(server.url, QUICK)
                found, again = of.read(source), of.read(source)
                which = "new" if of.same(found, of.new) else "old" if of.same(found, of.old) else ""
                good = which and of.same(again, found) and sound()
            world.count(label, f"all of the {which} file" if good else "WRONG: a mixture")


def damaged(world: World, server: FaultyServer, of: Reading, repeats: int, random: Any) -> None:
    """Change random bytes of cached files, which must be found, refused and fetched again."""
    server.tell()
    with fresh_cache():
        of.read(Web(server.url, QUICK))
        for _ in range(repeats * 5):
            paths = [item.path for item in cache_items()]
            entry = paths[random.integers(len(paths))]
            path = note_of(entry) if random.random() < 0.3 else entry
            content = bytearray(path.read_bytes())
            place = int(random.integers(len(content)))
            how = random.integers(3)
            if how == 0:
                content[place] ^= 1 << int(random.integers(8))
            elif how == 1:
                del content[place:]
            else:
                content[place : place + 512] = bytes(len(content[place : place + 512]))
                content[-1] ^= 1
            path.write_bytes(content)
            found = [item.path for item in cache_items(check=True) if item.state == DAMAGED]
            right = of.same(of.read(Web(server.url, QUICK)), of.old) and sound()
            good = found == [entry] and right
            world.count(
                f"{of.label}cached bytes damaged",
                "found by verify; not read, fetched again" if good else "WRONG",
            )


def full_disk(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Use a small file system as the cache (needs root), then free space on it."""
    label = "full disk"
    with tempfile.TemporaryDirectory() as place:
        for _ in range(repeats):
            size = int(random.integers(4, 30) * 4)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", place], check=True
            )
            try:
                with fresh_cache(Path(place)):
                    server.tell()
                    try:
                        run(Web(server.url, QUICK), world.region)
                        first = "had room"
                    except OutputError:
                        first = "error said"
                    bad = [item for item in cache_items(check=True) if item.state == DAMAGED]
                    more = ["mount", "-o", "remount,size=50m", place]
                    subprocess.run(more, check=True)
                    right = same(run(Web(server.url, QUICK), world.region), world.old)
                    good = right and sound() and not bad
                    world.count(label, f"{first}; the next run right" if good else "WRONG")
            finally:
                subprocess.run(["umount", place], check=True)


def page(world: World, seconds: float) -> str:
    """Return the table."""
    lines = [
        (fault, found.total(), "; ".join(f"{count} {told}" for told, count in found.most_common()))
        for fault, found in world.outcomes.items()
    ]
    return f"""# Faults of downloads, and what the next run found

`benchmarks/faults/faults.py`, on one machine: a server on the loopback address serves a
simulated bucket of 8 quarters. A run reads a region's rows, which are compared bit by bit
with the same rows read from the folder (for Census files: the region and its urban areas).
After each fault the cache is checked byte by
byte, and the run is repeated without the fault. {seconds:.0f} seconds.

{table(("fault", "times", "what was found"), lines, left=(0, 2))}
{sum(times for _, times, _ in lines)} faults; {wrongs(world)} times data were lost or wrong \
data accepted.
"""


def wrongs(world: World) -> int:
    """Count outcomes that must never occur."""
    return sum(
        count
        for found in world.outcomes.values()
        for outcome, count in found.items()
        if "WRONG" in outcome
    )


def main() -> int:
    """Run it."""
    asked = parser(__doc__, table="faults", repeats=20, kills=100, seed=0)
    asked.add_argument("--of", choices=("tiles", "census", "all"), default="all")
    options = asked.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    random, started = np.random.default_rng(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        world = make_world(Path(place))
        given = options.repeats, random
        if options.of != "census":
            whole, first = tiles(world), tiles(world, QUARTERS[:6])
            with serving(world.folder / "old", world.folder / "new") as server:
                network_faults(world, server, whole, *given)
                poor_servers(world, server, whole, options.repeats)
                replaced(world, server, first, *given)
                damaged(world, server, whole, *given)
                if os.geteuid() == 0:
                    full_disk(world, server, *given)
                kills(world, server, options.kills, random)
        if options.of != "tiles":
            files = census(world)
            with serving(world.folder / "census-old", world.folder / "census-new") as server:
                for trials in (network_faults, replaced, damaged, census_kills):
                    trials(world, server, files, *given)
    seconds = time.monotonic() - started
    results = {
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "faults": {fault: dict(found) for fault, found in world.outcomes.items()},
        "wrong": wrongs(world),
    }
    write_results(options.table, page(world, seconds), results)
    return 1 if wrongs(world) else 0
