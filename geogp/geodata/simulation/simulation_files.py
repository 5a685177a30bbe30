"""Writing of a simulation as files: tiles and boundaries that geogp can read, and true values."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import geopandas
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from geogp.files import write_bytes, write_text
from geogp.geodata.places.region import Region
from geogp.geodata.places.state_names import INVENTED
from geogp.geodata.places.stratum_names import STRATA
from geogp.geodata.simulation.simulated_tiles import Simulation
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.tile_files import GEOMETRY, QUADKEY, VALUES, tile_file

ROW_GROUP = 2048  # number of rows of a row group in Ookla's files

_OTHERS = ("truth.parquet", "simulation.json")

_STEPS = 2.0**14  # true values are stored in steps of 1 / _STEPS

_CRS = 4269  # NAD83, as in the Census Bureau's files

_TILES = pa.schema(
    [(QUADKEY, pa.string()), (GEOMETRY, pa.string()), *((name, pa.int64()) for name in VALUES)]
)

# Columns of numbers and names of urban areas, by census year.
_URBAN_COLUMNS = {2000: ("UA", "NAME"), 2010: ("UACE10", "NAME10"), 2020: ("UACE20", "NAME20")}


def write_simulation(
    simulation: Simulation, region: Region, folder: Path, *, made_up_towns: bool = False
) -> list[Path]:
    """Write a simulation as files that geogp can read, and return the paths of the files.

    ``parquet/performance/type=.../year=.../quarter=.../...tiles.parquet``
        Tiles in Ookla's layout, with its seven columns, sorted by quadkey, in row groups of 2,048,
        compressed with zstd.
    ``truth.parquet``
        The table `Simulation.truth`, with true values rounded to multiples of 2^-14, about 6e-5.
    ``simulation.json``
        The request, the region, the models, and whether the urban areas are made up.
    ``boundaries/states.parquet``, ``boundaries/urban_areas_<CODE>.parquet``
        GeoParquet in EPSG:4269; no file of urban areas if the region has no urban stratum. Only an
        invented region has the column `INVENTED`.

    Other files in the folder are not changed. Raises OutputError if a file cannot be written.
    """
    contents = dict(_tile_files(simulation))
    truth, description = _OTHERS
    contents[truth] = compact_table(simulation.truth)
    contents |= _boundary_files(region)
    paths = []
    for name, content in contents.items():
        write_bytes(folder / name, content)
        paths.append(folder / name)
    write_text(folder / description, _description(simulation, region, made_up_towns))
    return [*paths, folder / description]


def simulation_files(service: str, quarters: Sequence[int], region: Region) -> list[str]:
    """Return the names of the files that `write_simulation` may write."""
    tiles = [tile_file(service, quarter) for quarter in quarters]
    return [*tiles, *_OTHERS, *_boundary_files(region)]


def tile_polygons(codes: quadkeys.Codes) -> NDArray[np.object_]:
    """Return the outlines of tiles as WKT text, (n,), exactly as Ookla writes the outlines.

    The corners are north-west, north-east, south-east, south-west and again north-west, with 15
    significant digits.
    """
    column, row = quadkeys.codes_to_tiles(codes)
    west, south, east, north = map(_texts, quadkeys.tile_bounds(column, row))
    corners = [(west, north), (east, north), (east, south), (west, south), (west, north)]
    text: NDArray[np.object_] = np.full(len(west), "POLYGON((", dtype=object)
    for position, (longitude, latitude) in enumerate(corners):
        text = text + (", " if position else "") + longitude + " " + latitude
    return np.asarray(text + "))", dtype=object)


def _texts(degrees: NDArray[np.float64]) -> NDArray[np.object_]:
    """Return numbers as text with 15 significant digits; each distinct number is formatted once."""
    distinct, where = np.unique(degrees, return_inverse=True)
    return np.array([f"{value:.15g}" for value in distinct], dtype=object)[where]


def _tile_files(simulation: Simulation) -> Iterator[tuple[str, bytes]]:
    for quarter in simulation.quarters:
        rows = simulation.tiles[simulation.tiles["quarter"] == quarter]
        codes = rows["quadkey"].to_numpy(np.uint64)
        columns: dict[str, object] = {
            QUADKEY: quadkeys.format_quadkeys(codes).astype(object),
            GEOMETRY: tile_polygons(codes),
        }
        columns |= {name: rows[name].to_numpy(np.int64) for name in VALUES}
        table = pa.table(columns, schema=_TILES)
        yield tile_file(simulation.service, quarter), _parquet(table)


def compact_table(table: pd.DataFrame) -> bytes:
    """Return a table of results as a Parquet file, with real numbers as float32.

    True values are rounded to multiples of 2^-14, far below any standard deviation. This halves the
    size of the file.
    """
    real = table.select_dtypes("float64").columns
    true = [name for name in real if "_true" in name]
    rounded = table.assign(**{name: np.round(table[name] * _STEPS) / _STEPS for name in true})
    narrow = rounded.astype(dict.fromkeys(real, np.float32))
    return _parquet(pa.Table.from_pandas(narrow, preserve_index=False), row_group=1 << 20)


def _parquet(table: pa.Table, row_group: int = ROW_GROUP) -> bytes:
    """Return a table as a Parquet file without metadata, which would name the program."""
    stream = io.BytesIO()
    real = [column.name for column in table.schema if pa.types.is_floating(column.type)]
    pa.parquet.write_table(
        table.replace_schema_metadata(),
        stream,
        row_group_size=row_group,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in real],
        column_encoding=dict.fromkeys(real, "BYTE_STREAM_SPLIT"),
    )
    return stream.getvalue()


def _boundary_files(region: Region) -> dict[str, bytes]:
    state: dict[str, list[str | bool]] = {
        "STUSPS": [region.code],
        "NAME": [region.name],
        "STATEFP": ["00"],
    }
    if region.invented:
        state[INVENTED] = [True]
    files = {"boundaries/states.parquet": _geoparquet(state, [region.boundary])}
    if region.strata is not None and region.strata.names == STRATA:
        areas = list(region.strata.area.geoms)
        number, name = _URBAN_COLUMNS[region.strata.vintage or 2020]
        columns = {
            number: [f"{position:05d}" for position in range(1, len(areas) + 1)],
            name: [f"{region.name} {position}" for position in range(1, len(areas) + 1)],
        }
        files[f"boundaries/urban_areas_{region.code}.parquet"] = _geoparquet(columns, areas)
    return files


def _geoparquet(
    columns: Mapping[str, Sequence[str | bool]], geometry: Sequence[BaseGeometry]
) -> bytes:
    stream = io.BytesIO()
    geopandas.GeoDataFrame(columns, geometry=list(geometry), crs=_CRS).to_parquet(
        stream, index=False, compression="zstd"
    )
    return stream.getvalue()


def _description(simulation: Simulation, region: Region, made_up_towns: bool) -> str:
    content = {
        "seed": simulation.seed,
        "service": simulation.service,
        "rows": len(simulation.tiles),
        "quarters": [quarter_label(quarter) for quarter in simulation.quarters],
        "region": {
            "code": region.code,
            "name": region.name,
            "bounds": list(region.bounds),
            "urban_vintage": region.urban_vintage,
            "made_up_towns": made_up_towns,
        },
        "laws": {target: asdict(law) for target, law in simulation.laws.items()},
    }
    return json.dumps(content, indent=2) + "\n"
