"""Files in the layout of Ookla's bucket, and a server for them, written by the tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geogp.geodata.places.region import Region
from geogp.geodata.store.sources import Source
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import Ingested, read_observations
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.tile_files import tile_file

OLD = ("quadkey", "tile", "avg_d_kbps", "avg_u_kbps", "avg_lat_ms", "tests", "devices")
NEW = (
    *("quadkey", "tile", "tile_x", "tile_y", "avg_d_kbps", "avg_u_kbps", "avg_lat_ms"),
    *("avg_lat_down_ms", "avg_lat_up_ms", "tests", "devices"),
)

# The mainland with a lake, and an island; one town inside.
LAKE = [(-66.12, 18.18), (-66.08, 18.18), (-66.08, 18.22), (-66.12, 18.22)]
MAINLAND = shapely.Polygon(shapely.box(-66.2, 18.1, -66.0, 18.3).exterior.coords, [LAKE])
ISLAND = shapely.box(-65.9, 18.15, -65.88, 18.17)
TOWN = shapely.box(-66.2, 18.1, -66.15, 18.15)


def small_region(*, urban: bool = True) -> Region:
    boundary = shapely.MultiPolygon([MAINLAND, ISLAND])
    if not urban:
        return Region.from_geometry("XX", "Testland", boundary)
    return Region.from_geometry("XX", "Testland", boundary, TOWN, 2010)


def tiles_around(step: int = 2) -> list[str]:
    """Quadkeys of every `step`th tile of a box around the region, sorted."""
    columns, rows = quadkeys.tiles_at([-66.3, -65.8], [18.4, 18.0])
    column, row = np.meshgrid(
        np.arange(columns[0], columns[1], step), np.arange(rows[0], rows[1], step)
    )
    codes = quadkeys.tiles_to_codes(column.ravel(), row.ravel())
    return quadkeys.format_quadkeys(np.sort(codes)).tolist()


def tile_columns(tiles: Sequence[str], seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Columns of a file with eleven columns; `changes` replaces some."""
    random = np.random.default_rng(seed)
    n = len(tiles)
    devices = random.integers(1, 20, n)
    columns = {
        "quadkey": list(tiles),
        "tile": ["no polygon at all"] * n,
        "tile_x": random.normal(size=n),
        "tile_y": random.normal(size=n),
        "avg_d_kbps": random.integers(100, 300_000, n),
        "avg_u_kbps": random.integers(100, 50_000, n),
        "avg_lat_ms": random.integers(5, 200, n),
        "avg_lat_down_ms": pa.nulls(n, pa.int32()),
        "avg_lat_up_ms": pa.nulls(n, pa.float64()),
        "tests": devices + random.integers(0, 30, n),
        "devices": devices,
    }
    return columns | changes


def write_quarter(
    folder: Path,
    quarter: str,
    columns: Mapping[str, Any],
    *,
    names: Sequence[str] = OLD,
    service: str = "mobile",
    rows: int = 200,
    **options: Any,
) -> Path:
    """Write one file into the bucket's layout, `rows` rows a group."""
    path = folder / tile_file(service, quarter_index(quarter))
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: columns[name] for name in names})
    pq.write_table(table, path, row_group_size=rows, **options)
    return path


def spoil_chunk(path: Path, group: int, column: str) -> None:
    """Overwrite the stored bytes of one column of one row group."""
    metadata = pq.read_metadata(path)
    chunk = metadata.row_group(group).column(metadata.schema.names.index(column))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)


def national_tiles(far: int = 4000) -> list[str]:
    """Quadkeys of `tiles_around` between `far` tiles at both ends of the world."""
    low, high = (np.arange(far, dtype=np.uint64) + np.uint64(at) for at in (10**6, 4**16 - far - 1))
    near = quadkeys.parse_quadkeys(tiles_around())
    return quadkeys.format_quadkeys(np.concatenate([low, near, high])).tolist()


def read(source: Source, region: Region, quarters: str = "2020Q1") -> Ingested:
    """Observations of some quarters."""
    return read_observations(source, region, quarters=parse_quarters(quarters))


def values(found: Ingested) -> dict[str, np.ndarray]:
    """Arrays of the observations, by name."""
    return {k: v for k, v in vars(found.observations).items() if isinstance(v, np.ndarray)}


def same(one: Ingested, other: Ingested) -> bool:
    """Whether the observations are the same."""
    first, second = values(one), values(other)
    return all(np.array_equal(first[name], second[name]) for name in second)
