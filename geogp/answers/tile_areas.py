"""The areas that a question is about, and the tiles of the map in each area."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from shapely.geometry import MultiPolygon
from shapely.geometry.base import BaseGeometry

from geogp.errors import RequestError
from geogp.geodata.places.area_kinds import BY_STRATUM
from geogp.geodata.places.hexagons import hexagons_of, resolution_of
from geogp.geodata.places.region import cut_at_antimeridian, polygonal_parts
from geogp.runs.pipeline.draw import tests_on
from geogp.runs.reopen import Reopened, tag_of

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TileAreas:
    """The k areas that contain the centre of a tile.

    `tag` names the kind of areas in file names. `keys` are short identifiers, such as the GEOID of
    a county. `shapes` are in degrees. `tiles` are the numbers of the tiles in each area.
    """

    tag: str
    labels: tuple[str, ...]
    keys: tuple[str, ...]
    shapes: tuple[BaseGeometry, ...]
    tiles: tuple[Indices, ...]

    @classmethod
    def with_tiles(
        cls,
        tag: str,
        labels: Sequence[str],
        keys: Sequence[str],
        shapes: Sequence[BaseGeometry],
        tiles: Sequence[Indices],
    ) -> "TileAreas":
        """Return the areas that have a tile."""
        there = [k for k, inside in enumerate(tiles) if len(inside)]
        return cls(
            tag,
            tuple(labels[k] for k in there),
            tuple(keys[k] for k in there),
            tuple(shapes[k] for k in there),
            tuple(tiles[k] for k in there),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def are_apart(self) -> bool:
        """Whether each tile lies in one area at most."""
        tiles = np.concatenate(self.tiles)
        return len(np.unique(tiles)) == len(tiles)

    def shares(self, size: Floats) -> sparse.csc_array:
        """Return the share of each tile in the total `size` (n,) of each area, (n, k).

        The shares of an area with a total of 0 are NaN.
        """
        rows = np.concatenate(self.tiles)
        columns = np.repeat(np.arange(len(self)), [len(inside) for inside in self.tiles])
        total = np.bincount(columns, size[rows])
        with np.errstate(invalid="ignore"):
            values = size[rows] / total[columns]
        return sparse.csc_array((values, (rows, columns)), shape=(len(size), len(self)))

    def means(self, count: int) -> sparse.csc_array:
        """Return the weights of `count` tiles in the mean over the tiles of each area, (n, k)."""
        return self.shares(np.ones(count))

    def totals(self, values: NDArray[Any]) -> list[Any]:
        """Return the sum of values (n,) over the tiles of each area, (k,)."""
        return [values[inside].sum().item() for inside in self.tiles]

    def table(self, opened: Reopened) -> pd.DataFrame:
        """Return the areas, with the number of their tiles and tests, and the share far from data.

        The columns are ``area``, ``key``, ``tiles``, ``measured_tiles``, ``tests`` (in all
        quarters) and ``far_share``, the share of the tiles far from any measurement.
        """
        tests = tests_on(opened.tiles, opened.mapped)
        tiles = np.array([len(inside) for inside in self.tiles])
        return pd.DataFrame(
            {
                "area": self.labels,
                "key": self.keys,
                "tiles": tiles,
                "measured_tiles": self.totals(tests > 0),
                "tests": self.totals(tests),
                "far_share": np.array(self.totals(opened.far)) / tiles,
            }
        )


def tile_areas(opened: Reopened, by: str, crs: str | None = None) -> TileAreas:
    """Return the areas of ``--by``: stratum, h3:RESOLUTION, county, urban, or a file of polygons.

    `crs` is the CRS of a file that has none. Raises RequestError if no tile lies in an area, and
    the errors of `hexagons_of` and `Reopened.layer`.
    """
    centres = opened.tiles.centres
    resolution = resolution_of(by)
    if by == BY_STRATUM:
        return _strata(opened)
    if resolution is not None:
        hexagons = hexagons_of(*centres, resolution)
        tag = by.replace(":", "-")
        inside = _grouped(hexagons.number, len(hexagons.names))
        return TileAreas.with_tiles(tag, hexagons.names, hexagons.names, hexagons.shapes, inside)
    layer = opened.layer(by, crs)
    number = layer.index(*centres)
    if not (number >= 0).any():
        raise RequestError(
            f"no tile of {opened.inputs.region.name} lies in an area of --by {by}. Choose other "
            "areas."
        )
    keys, inside = layer.keys or layer.labels, _grouped(number, len(layer))
    return TileAreas.with_tiles(tag_of(by, layer), layer.labels, keys, layer.shapes, inside)


def _grouped(number: Indices, count: int) -> list[Indices]:
    """Return the tiles of each of `count` areas; `number` (n,) is the area of a tile, or -1."""
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(count + 1))
    return [order[start:end] for start, end in pairwise(ends)]


def _strata(opened: Reopened) -> TileAreas:
    """Return the region and its strata (without strata, only the region) as areas."""
    region, tiles = opened.inputs.region, opened.tiles
    stratum = region.stratum(*tiles.centres)
    labels, inside = [region.name], [np.arange(len(tiles))]
    shapes: list[BaseGeometry] = [region.wrapped]
    if region.strata is not None:
        whole, strata = region.boundary, region.strata
        rest = whole if strata.rest is None else whole.intersection(strata.rest)
        parts = whole.intersection(strata.area), rest.difference(strata.area)
        for name, shape in zip(strata.names, parts, strict=True):
            labels.append(name)
            inside.append(np.flatnonzero(stratum == name))
            shapes.append(_wrapped(shape))
    return TileAreas.with_tiles(BY_STRATUM, labels, ("all", *labels[1:]), shapes, inside)


def _wrapped(shape: BaseGeometry) -> MultiPolygon:
    """Return polygons with longitudes from -180 to 180, cut at the antimeridian."""
    parts = polygonal_parts(shape)
    return MultiPolygon([piece for polygon in parts for piece in cut_at_antimeridian(polygon)])
