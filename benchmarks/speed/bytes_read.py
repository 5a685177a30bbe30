"""Bytes read compared with bytes stored, seconds and memory, for one state of a national quarter.

The quarter is simulated. Tiles are spread evenly over the land of the United States, and the file
has the schema of current files, including the text of the geometry. A server on this machine
serves the file.

    python -m benchmarks.speed.bytes_read --boundaries census --state NM
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from benchmarks.faults.faulty_server import serving
from benchmarks.trial import Figures, command, parser, say, table, write_results
from geogp.geodata.places.polygons import read_polygons
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_index
from geogp.geodata.tiles.tile_files import tile_file

QUARTER = "2023Q4"
BATCH = 1 << 16

HEADINGS = (
    *("file", "rows", "rows a group", "read from", "rows used", "MB read", "of MB stored"),
    *("share", "seconds", "peak MB", "before"),
)


def national_codes(boundaries: Path, rows: int, seed: int) -> Any:
    """Return codes of tiles over the land of all states, sorted."""
    random = np.random.default_rng(seed)
    states = read_polygons(boundaries / "states.parquet")
    land = states.geometry.simplify(0.02).union_all()
    parts = [part for part in shapely.get_parts(land) if part.area > 1e-4]
    areas = np.array([part.area * np.cos(np.deg2rad(part.centroid.y)) for part in parts])
    codes = np.zeros(0, np.uint64)
    for part in parts:
        shapely.prepare(part)
    while len(codes) < rows:
        found = [codes]
        for part, count in zip(
            parts, random.multinomial(rows // 2, areas / areas.sum()), strict=True
        ):
            west, south, east, north = part.bounds
            x, y = random.uniform(west, east, 2 * count), random.uniform(south, north, 2 * count)
            inside = shapely.contains_xy(part, x, y)
            x, y = x[inside][:count], y[inside][:count]
            found.append(quadkeys.tiles_to_codes(*quadkeys.tiles_at(x, y)))
        codes = np.unique(np.concatenate(found))
    return np.sort(random.choice(codes, rows, replace=False))


def write_national(path: Path, codes: Any, group: int, seed: int) -> None:
    """Write the quarter with `group` rows per row group, compressed by Snappy as pandas does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    schema = national_rows(codes[:1], np.random.default_rng(0)).schema
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, len(codes), group):
            parts = [
                national_rows(codes[at : min(at + BATCH, start + group)], random)
                for at in range(start, min(start + group, len(codes)), BATCH)
            ]
            writer.write_table(pa.concat_tables(parts), row_group_size=group)


def national_rows(codes: Any, random: Any) -> pa.Table:
    """Return rows of some tiles, in the current schema."""
    n = len(codes)
    column, row = quadkeys.codes_to_tiles(codes)
    edge = quadkeys.tile_bounds(column, row)
    w, e, s, n_ = (
        pa.array(np.round(part, 13)).cast(pa.string())
        for part in (edge.west, edge.east, edge.south, edge.north)
    )
    corners = [
        pc.binary_join_element_wise(*pair, " ") for pair in ((w, n_), (e, n_), (e, s), (w, s))
    ]
    ring = pc.binary_join_element_wise(*corners, corners[0], ", ")
    outline = pc.binary_join_element_wise("POLYGON((", ring, "))", "")
    slow = (random.integers(50, 999, n) + np.where(random.random(n) < 0.3, 0, np.nan) for _ in "ab")
    devices = random.integers(1, 20, n)
    return pa.table(
        {
            "quadkey": pa.array(quadkeys.format_quadkeys(codes), pa.string()),
            "tile": outline,
            "tile_x": (edge.west + edge.east) / 2,
            "tile_y": (edge.south + edge.north) / 2,
            "avg_d_kbps": np.exp(random.normal(11, 1, n)).astype(np.int64) + 1,
            "avg_u_kbps": np.exp(random.normal(9, 1, n)).astype(np.int64) + 1,
            "avg_lat_ms": random.integers(5, 200, n),
            "avg_lat_down_ms": next(slow),
            "avg_lat_up_ms": next(slow),
            "tests": devices + random.integers(0, 30, n),
            "devices": devices,
        }
    )


READ = """
import json, re, sys, time
from pathlib import Path
from geogp.geodata.places.census import read_region
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.geodata.store.sources import Folder, open_source
def peak_mb():
    told = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", told)[1]) / 1024
where, boundaries, state, quarter = sys.argv[1:]
region = read_region(Folder(Path(boundaries)), state).region
before = peak_mb()
start = time.monotonic()
found = read_observations(open_source(where), region, quarters=parse_quarters(quarter))
seconds = time.monotonic() - start
peak = peak_mb()
file = found.files[0]
print(json.dumps({"seconds": seconds, "peak_mb": peak, "before_mb": before,
    "rows_used": file.rows_used, "rows": file.rows, "bytes_read": file.bytes_read,
    "bytes_stored": file.bytes_stored, "sum": float(found.observations.y.sum())}))
"""


def measured(where: str, options: argparse.Namespace, cache: Path) -> Figures:
    """Read the state in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READ, where, str(options.boundaries), options.state, QUARTER],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GEOGP_CACHE": str(cache)},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def one_file(options: argparse.Namespace, codes: Any, group: int, label: str) -> list[Figures]:
    """Write the quarter, and read it from the folder, from the server, and from the cache."""
    lines = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "bucket"
        path = folder / tile_file("mobile", quarter_index(QUARTER))
        started = time.monotonic()
        write_national(path, codes, group, seed=1)
        say(f"{label}: written in {time.monotonic() - started:.0f} s")
        stored, cache = path.stat().st_size, Path(place) / "cache"
        with serving(folder) as server:
            for how, where in (
                ("folder", str(folder)),
                ("HTTP", server.url),
                ("HTTP, from the cache", server.url),
            ):
                found = measured(where, options, cache)
                line = {"file": label, "group": group, "from": how, "stored": stored, **found}
                if how.endswith("cache"):
                    line["bytes_read"] = 0
                    line["entry_bytes"] = max(
                        one.stat().st_size for one in cache.rglob("*.parquet")
                    )
                lines.append(line)
                say(line)
    sums = {line["sum"] for line in lines}
    if len(sums) != 1:
        raise RuntimeError(f"the sources disagree: {sums}")
    return lines


def markdown(lines: list[Figures], state: str) -> str:
    """Return the table."""
    rows = []
    for line in lines:
        read = line["bytes_read"]
        rows.append(
            (
                *(line["file"], f"{line['rows']:,}", f"{line['group']:,}", line["from"]),
                f"{line['rows_used']:,}",
                "in place" if read is None else f"{read / 1e6:.1f}",
                f"{line['stored'] / 1e6:.1f}",
                "" if read is None else f"{read / line['stored']:.1%}",
                *(f"{line['seconds']:.1f}", f"{line['peak_mb']:.0f}", f"{line['before_mb']:.0f}"),
            )
        )
    return f"""# Bytes read against bytes stored: {state} out of a national quarter

`benchmarks/speed/bytes_read.py`: a simulated quarter of the United States in the current schema of
eleven columns (Snappy, with the text of the geometry), on a server on the same machine.
`peak MB` is the peak memory of the whole process, and `before` the memory that it uses
when it starts to read (Python, libraries, boundaries).

{table(HEADINGS, rows, left=range(len(HEADINGS)))}"""


@command
def main() -> None:
    """Run it."""
    asked = parser(__doc__, table="bytes-read", state="NM", rows=4_000_000, large=6_000_000)
    asked.add_argument("--boundaries", type=Path, required=True)
    options = asked.parse_args()
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    codes = national_codes(options.boundaries, options.large, seed=0)
    mixed = np.random.default_rng(2).permutation(codes)
    fewer = np.sort(mixed[: options.rows])
    lines: list[Figures] = []
    for some, group, label in (
        (fewer, 1 << 16, "sorted"),
        (fewer, 1 << 20, "sorted"),
        (mixed[: options.rows], 1 << 16, "shuffled"),
        (mixed, 1 << 20, "shuffled"),
    ):
        lines += one_file(options, some, group, label)
        write_results(options.table, markdown(lines, options.state), lines)


if __name__ == "__main__":
    sys.exit(main())
