"""Every fault that a download can meet, injected many times; and what the next run finds.

Everything runs on this machine: a server on the loopback address, a simulated bucket in a temporary
folder. Run from the folder of the project:

    python benchmarks/faults.py --repeats 20 --kills 100
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import Fault, FaultyServer, Manner, serving

from geogp.errors import GeogpError, NetworkError, OutputError
from geogp.files import write_text
from geogp.geodata import quadkeys
from geogp.geodata.cache_contents import DAMAGED, WHOLE, cache_items
from geogp.geodata.census import read_region
from geogp.geodata.ookla import Ingested, read_observations
from geogp.geodata.quarters import parse_quarters
from geogp.geodata.region import Region
from geogp.geodata.remote import Patience
from geogp.geodata.simulate import simple_region, simulate
from geogp.geodata.simulation_files import write_simulation
from geogp.geodata.sources import Folder, Web

QUARTERS = "2022Q1..2023Q4"

QUICK = Patience(
    attempts=4, first_wait_s=0.005, longest_wait_s=0.02, timeout_s=0.3, slowest=100_000.0
)
"""So that a hundred trials end within a minute."""

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
    """Tell whether every entry of the cache is whole."""
    return all(item.state == WHOLE for item in cache_items(check=True))


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


class Command:
    """The command in processes of its own; see fork_command.py."""

    def __init__(self, cache: Path, log: Path) -> None:
        self._environment = {"GEOGP_CACHE": str(cache)}
        self._log = log
        script = Path(__file__).parent / "fork_command.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *arguments: str) -> int:
        """Start it, and return its process id."""
        asked = {
            "arguments": arguments,
            "environment": self._environment,
            "log": str(self._log),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> int:
        """Wait for its end, and return the exit code; below 0 for a signal."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process that the copies are made of."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def kills(world: World, server: FaultyServer, count: int, random: Any) -> None:
    """Kill -9 at random moments of `geogp fetch`; each other one while it takes new files."""
    with fresh_cache() as cache, tempfile.TemporaryDirectory() as logs:
        command = Command(cache, Path(logs) / "log")
        arguments = ["fetch", "DEMO", "--quarters", QUARTERS, "--source", server.url, "--json"]
        arguments += ["--boundaries", str(world.folder / "boundaries")]
        try:
            server.tell()
            command.start(*arguments)
            if command.end():
                raise RuntimeError((Path(logs) / "log").read_text())
            most = len(server.told.requests)
            for number in range(count):
                wanted = int(random.integers(1, most + 1))
                later = float(random.uniform(0, 0.03))
                _kill(world, server, command, arguments, (wanted, later), refresh=number % 2 == 1)
        finally:
            command.close()


def _kill(
    world: World,
    server: FaultyServer,
    command: Command,
    arguments: list[str],
    moment: tuple[int, float],
    *,
    refresh: bool,
) -> None:
    """Fetch, kill, look, fetch again; with `refresh`, over a full cache of older files.

    The moment is so many requests and so many seconds after: a busy machine has no fixed pace.
    """
    cache = Path(os.environ["GEOGP_CACHE"])
    shutil.rmtree(cache / "tiles", ignore_errors=True)
    server.folder = world.folder / "old"
    server.tell(manner=Manner(delay_s=0.004))
    if refresh:
        run(Web(server.url, QUICK), world.region)
        server.folder = world.folder / "new"
        server.tell(manner=Manner(delay_s=0.004))
        arguments = [*arguments, "--refresh"]
    process = command.start(*arguments)
    started = time.monotonic()
    while len(server.told.requests) < moment[0] and time.monotonic() - started < 5:
        time.sleep(0.001)
    time.sleep(moment[1])
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    killed = command.end() == -signal.SIGKILL
    items = cache_items(check=True)
    whole = sum(item.state == WHOLE for item in items)
    wrong = not refresh and any(item.state == DAMAGED for item in items)
    now = world.new if refresh else world.old
    server.tell()
    command.start(*arguments)
    finished = command.end() == 0
    fetched = sum(name.endswith(".parquet") for method, name in server.told.requests) > 0
    found = run(Web(server.url, QUICK), world.region)
    good = finished and fetched and not wrong and same(found, now) and sound()
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


def markdown(world: World, seconds: float) -> str:
    """Return the table."""
    lines = [
        "# Faults of downloads, and what the next run found",
        "",
        "`benchmarks/faults.py`, on one machine: a server on the loopback address serves a",
        "simulated bucket of 8 quarters; a run reads a region's rows and is compared, bit by bit,",
        "with the same rows read from the folder. After each fault the cache is checked byte by",
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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results" / "faults")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    random, started = np.random.default_rng(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        world = make_world(Path(place))
        parts: list[Callable[[FaultyServer], None]] = [
            lambda server: network_faults(world, server, options.repeats, random),
            lambda server: poor_servers(world, server, options.repeats),
            lambda server: replaced(world, server, options.repeats, random),
            lambda server: damaged(world, server, options.repeats, random),
            lambda server: kills(world, server, options.kills, random),
        ]
        if os.geteuid() == 0:
            parts.append(lambda server: full_disk(world, server, options.repeats, random))
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
