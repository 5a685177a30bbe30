"""The tiles of many runs as one GeoParquet, run by run."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from geogp.commands.batch.batch_place import Place
from geogp.errors import DataError
from geogp.files import writing

TILES_FILE = "tiles.parquet"

REGION = "region"
"""The column that tells the regions apart."""

ROWS = 65_536
"""Rows of a row group, and of what is in memory at once."""


@dataclass(frozen=True)
class _Part:
    """The table of one run: its schema, what GeoParquet says of it, and whom the data are by."""

    name: str
    region: str
    schema: pa.Schema
    geo: dict[str, Any]
    attribution: str


def join_tables(place: Place, runs: Sequence[tuple[str, str]], out: Path) -> int:
    """Write the tiles of several runs as one table, in the order of the runs.

    Columns are those of `tile_table.py`, after a first one, ``region``; where one run has a
    column that another has not (counties), the other's are null. At most `ROWS` rows are in memory.

    Parameters
    ----------
    place
        Where the runs are.
    runs
        Name and region of each.
    out
        The file.

    Returns
    -------
    int
        Rows.

    Raises
    ------
    DataError
        A run's table is damaged, or the types of its columns are not those of another's.
    OutputError, NetworkError
        A file cannot be read or written.
    """
    parts = [_part(place, name, region) for name, region in runs]
    schema = _joined(parts)
    rows = 0
    with ExitStack() as stack:
        stream = stack.enter_context(writing(out))
        writer = stack.enter_context(
            parquet.ParquetWriter(
                stream,
                schema,
                compression="zstd",
                use_dictionary=[one.name for one in schema if pa.types.is_string(one.type)],
                column_encoding={
                    one.name: "BYTE_STREAM_SPLIT" for one in schema if pa.types.is_float32(one.type)
                },
            )
        )
        for part in parts:
            for batch in _batches(place, part, schema):
                writer.write_table(batch, row_group_size=ROWS)
                rows += len(batch)
    return rows


def _part(place: Place, name: str, region: str) -> _Part:
    with place.opened(name, TILES_FILE) as stream:
        try:
            schema = parquet.read_schema(stream)
            geo = json.loads(schema.metadata[b"geo"])
            box = [float(edge) for edge in geo["columns"][geo["primary_column"]]["bbox"]]
            about = json.loads(schema.metadata.get(b"geogp", b"{}"))
            attribution = str(about.get("attribution", ""))
            if len(box) != 4:
                raise DataError(f"expected four edges in bbox, found {len(box)}.")
        except (pa.ArrowException, ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(place, name, error) from error
    return _Part(name, region, schema, geo, attribution)


def _batches(place: Place, part: _Part, schema: pa.Schema) -> Iterator[pa.Table]:
    with place.opened(part.name, TILES_FILE) as stream:
        try:
            for batch in parquet.ParquetFile(stream).iter_batches(ROWS):
                columns = {
                    one.name: batch.column(one.name)
                    if one.name in batch.schema.names
                    else pa.nulls(len(batch), one.type)
                    for one in schema
                    if one.name != REGION
                }
                columns[REGION] = pa.array([part.region] * len(batch), pa.string())
                yield pa.Table.from_arrays([columns[one.name] for one in schema], schema=schema)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(place, part.name, error) from error


def _joined(parts: Sequence[_Part]) -> pa.Schema:
    """Return the columns of all parts, each once; the geometry last."""
    columns: dict[str, pa.Field] = {}
    for part in parts:
        for one in part.schema:
            there = columns.setdefault(one.name, one)
            if there.type != one.type:
                raise DataError(
                    f"expected {one.name} of {part.name} as {there.type}, found {one.type}."
                )
    geometry = columns.pop(str(parts[0].geo["primary_column"]))
    geo = json.loads(json.dumps(parts[0].geo))
    boxes = [part.geo["columns"][part.geo["primary_column"]]["bbox"] for part in parts]
    west, south, east, north = zip(*boxes, strict=True)
    geo["columns"][geometry.name]["bbox"] = [min(west), min(south), max(east), max(north)]
    sources = sorted({part.attribution for part in parts} - {""})
    told = {"runs": [part.name for part in parts], "attribution": " ".join(sources)}
    first = pa.field(REGION, pa.string())
    return pa.schema(
        [first, *columns.values(), geometry],
        metadata={"geo": json.dumps(geo), "geogp": json.dumps(told)},
    )


def _damaged(place: Place, name: str, error: Exception) -> DataError:
    return DataError(
        f"{place.show(name, TILES_FILE)} is damaged ({error}). Delete the folder and resume."
    )
