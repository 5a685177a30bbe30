"""Every fault that a download can meet, injected many times; and what the next run finds.

Everything runs on this machine: a server on the loopback address, a simulated bucket in a temporary
folder. Run from the folder of the project:

    python benchmarks/faults.py --repeats 20 --kills 100
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from faults_census import census_faults
from faults_kills import kills
from faults_world import QUARTERS, QUICK, World, fresh_cache, make_world, run, same, sound
from faulty_server import Fault, FaultyServer, Manner, serving

from geogp.errors import GeogpError, NetworkError, OutputError
from geogp.files import write_text
from geogp.geodata.store.cache_contents import DAMAGED, cache_items
from geogp.geodata.store.sources import Folder, Web

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


def trial(world: World, server: FaultyServer, label: str) -> None:
    """Run under the faults that the server was told; then without; and judge both."""
    with fresh_cache():
        try:
            found = run(Web(server.url, QUICK), world.region)
        except NetworkError:
            first = "error"
        except GeogpError as error:
            first = f"WRONG: {type(error).__name__}"
        else:
            gap = bool(found.missing) and any("no tiles" in text for text in found.warnings)
            if same(found, world.old):
                first = "right data at once"
            elif gap and "404" in label:
                first = "the quarter said to be missing; the next run right"
            else:
                first = "WRONG data"
        if not sound():
            first = "WRONG: a damaged entry"
        server.tell()
        if not same(run(Web(server.url, QUICK), world.region), world.old) or not sound():
            first = "WRONG data in the next run"
    world.count(label, first if first != "error" else "error said; the next run right")


def network_faults(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Answers that fail, at random requests, for a while and for good."""
    for kind in LASTING:
        for lasting in (False, True):
            if not lasting and kind not in PASSING:
                continue
            name = NAMES.get(kind, f"status {kind}")
            label = f"{name}, {'lasting' if lasting else 'passing'}"
            for _ in range(repeats):
                method = (
                    "HEAD"
                    if kind in {"403", "404", "429", "500"} and random.random() < 0.3
                    else "GET"
                )
                most = 8 if method == "HEAD" else 24
                times = 10**6 if lasting else int(random.integers(1, 4))
                if (kind, method) == ("404", "HEAD"):
                    times = 1
                server.tell(Fault(kind, int(random.integers(most)), times, method))
                trial(world, server, label)


def poor_servers(world: World, server: FaultyServer, repeats: int) -> None:
    """Servers that do less than they might."""
    for label, manner in {
        "no parts: whole files only": Manner(ranges=False),
        "no HEAD": Manner(heads=False),
        "weak ETag": Manner(etag="weak"),
        "no ETag, no date": Manner(etag="none", dated=False),
        "no parts, no ETag, no date": Manner(ranges=False, etag="none", dated=False),
    }.items():
        for _ in range(max(1, repeats // 4)):
            server.tell(manner=manner)
            trial(world, server, label)


def replaced(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Replace a file while it is read: the old or the new one comes, never both."""
    quarter = QUARTERS[:6]
    old, new = (run(Folder(world.folder / name), world.region, quarter) for name in ("old", "new"))
    for etag, dated, ranges in (
        ("strong", True, True),
        ("weak", True, True),
        ("none", False, True),
        ("strong", True, False),
    ):
        kind = "no ETag" if etag == "none" else f"{etag} ETag"
        label = f"file replaced midway, {kind}{'' if ranges else ', no parts'}"
        for _ in range(repeats):
            manner = Manner(etag=etag, dated=dated, ranges=ranges)
            server.tell(Fault("replace", int(random.integers(8))), manner=manner)
            with fresh_cache():
                source = Web(server.url, QUICK)
                found = run(source, world.region, quarter)
                again = run(source, world.region, quarter)
                which = "new" if same(found, new) else "old" if same(found, old) else ""
                good = which and same(again, found) and sound()
            world.count(label, f"all of the {which} file" if good else "WRONG: a mixture")


def damaged(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Bytes of cached files changed at random: found, refused, fetched again."""
    server.tell()
    with fresh_cache():
        run(Web(server.url, QUICK), world.region)
        for _ in range(repeats * 5):
            paths = [item.path for item in cache_items()]
            entry = paths[random.integers(len(paths))]
            path = entry.with_suffix(".json") if random.random() < 0.3 else entry
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
            right = same(run(Web(server.url, QUICK), world.region), world.old) and sound()
            good = found == [entry] and right
            world.count(
                "cached bytes damaged",
                "found by verify; not read, fetched again" if good else "WRONG",
            )


def full_disk(world: World, server: FaultyServer, repeats: int, random: Any) -> None:
    """Let a small file system be the cache (needs root), then give it room."""
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


def markdown(world: World, seconds: float) -> str:
    """Return the table."""
    lines = [
        "# Faults of downloads, and what the next run found",
        "",
        "`benchmarks/faults.py`, on one machine: a server on the loopback address serves a",
        "simulated bucket of 8 quarters; a run reads a region's rows and is compared, bit by bit,",
        "with the same rows read from the folder (Census files: the region and its urban areas).",
        "After each fault the cache is checked byte by",
        f"byte and the run is made again without it. {seconds:.0f} seconds.",
        "",
        "| fault | times | what was found |",
        "| --- | ---: | --- |",
    ]
    for fault, found in world.outcomes.items():
        told = "; ".join(f"{count} {outcome}" for outcome, count in found.most_common())
        lines.append(f"| {fault} | {found.total()} | {told} |")
    wrong = wrongs(world)
    total = sum(found.total() for found in world.outcomes.values())
    lines += [
        "",
        f"{total} faults; {wrong} times something was lost or taken for good that was not.",
    ]
    return "\n".join(lines) + "\n"


def wrongs(world: World) -> int:
    """Count what must never be."""
    return sum(
        count
        for found in world.outcomes.values()
        for outcome, count in found.items()
        if "WRONG" in outcome
    )


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--of", choices=("tiles", "census", "all"), default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results" / "faults")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    random, started = np.random.default_rng(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        world = make_world(Path(place))
        tiles: list[Callable[[FaultyServer], None]] = [
            lambda server: network_faults(world, server, options.repeats, random),
            lambda server: poor_servers(world, server, options.repeats),
            lambda server: replaced(world, server, options.repeats, random),
            lambda server: damaged(world, server, options.repeats, random),
            lambda server: kills(world, server, options.kills, random),
        ]
        if os.geteuid() == 0:
            tiles.append(lambda server: full_disk(world, server, options.repeats, random))
        census = [lambda server: census_faults(world, server, options.repeats, random)]
        parts = {"tiles": tiles, "census": census, "all": [*tiles, *census]}[options.of]
        for part in parts:
            with serving(Path(place) / "old", Path(place) / "new") as server:
                part(server)
            print(f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    results = {
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "faults": {fault: dict(found) for fault, found in world.outcomes.items()},
        "wrong": wrongs(world),
    }
    write_text(options.table / "results.json", json.dumps(results, indent=1) + "\n")
    write_text(options.table / "table.md", markdown(world, seconds))
    return 1 if wrongs(world) else 0


if __name__ == "__main__":
    sys.exit(main())
