"""A region: its boundary, strata and tiles."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import shapely
import shapely.affinity
from numpy.typing import ArrayLike, NDArray
from shapely.geometry import MultiPolygon, Polygon
from shapely.geometry.base import BaseGeometry

from geogp.arguments import checked_arguments, numbers_of, places_of
from geogp.choices import whole_number
from geogp.errors import DataError, RequestError
from geogp.geodata.places.stratum_names import STRATA, UNKNOWN
from geogp.geodata.tiles import quadkeys

MAX_ZOOM = 30  # of tiles whose columns and rows are counted in a region
MAX_BOX_TILES = 2**33  # of the bounding box of a region, most of which take hours to test


@dataclass(frozen=True)
class Tiles:
    """Tiles of one zoom level, as columns and rows of the tile grid, int64 (n,)."""

    column: NDArray[np.int64]
    row: NDArray[np.int64]
    zoom: int

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, rows: NDArray[Any] | slice) -> "Tiles":
        """Return the tiles with the given indices."""
        return Tiles(self.column[rows], self.row[rows], self.zoom)

    @cached_property
    def centres(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Longitudes and latitudes of the tiles' centroids, in degrees."""
        return quadkeys.tile_centres(self.column, self.row, self.zoom)

    @property
    def quadkeys(self) -> NDArray[np.object_]:
        """Quadkeys of the tiles, with columns within one turn of the Earth."""
        codes = quadkeys.tiles_to_codes(self.column % (1 << self.zoom), self.row, self.zoom)
        return quadkeys.format_quadkeys(codes, self.zoom).astype(object)


@dataclass(frozen=True)
class Strata:
    """Two strata with names: the places in `area`, and the places in `rest`.

    Places in neither have the stratum ``unknown``. If `rest` is None, the second stratum is all
    places outside `area`. `words` is a phrase for the area in legends, such as ``urban areas (2020
    Census)``, and `vintage` is the census year of urban areas.
    """

    area: MultiPolygon
    rest: MultiPolygon | None = None
    names: tuple[str, str] = STRATA
    words: str = "urban areas"
    vintage: int | None = None

    @classmethod
    def of_urban_areas(cls, area: BaseGeometry, vintage: int | None) -> "Strata":
        """Return the strata ``urban`` and ``rural``."""
        words = "urban areas" + (f" ({vintage} Census)" if vintage else "")
        return cls(MultiPolygon(polygonal_parts(area)), words=words, vintage=vintage)

    def moved(self, middle: float) -> "Strata":
        """Return the strata with each polygon moved to within 180 degrees of a longitude."""

        def near(shape: MultiPolygon) -> MultiPolygon:
            west, _, east, _ = shapely.bounds(shapely.get_parts(shape)).T
            turns = np.ceil(((west + east) / 2 - middle - 180) / 360)
            if not turns.any():
                return shape
            turned = [
                shapely.affinity.translate(part, xoff=-360 * turn) if turn else part
                for part, turn in zip(shape.geoms, turns, strict=True)
            ]
            return MultiPolygon(polygonal_parts(shapely.union_all(turned)))

        rest = None if self.rest is None else near(self.rest)
        return replace(self, area=near(self.area), rest=rest)

    def of(self, longitude: NDArray[np.float64], latitude: NDArray[np.float64]) -> NDArray[np.str_]:
        """Return the stratum of each point, (n,); a point in both strata belongs to the first."""
        width = max(map(len, (*self.names, UNKNOWN)))
        stratum = np.full(longitude.shape, self.names[1], dtype=f"<U{width}")
        if self.rest is not None:
            stratum[~_inside(self.rest, longitude, latitude)] = UNKNOWN
        stratum[_inside(self.area, longitude, latitude)] = self.names[0]
        return stratum


@dataclass(frozen=True)
class Region:
    """A region to map.

    Longitudes are unwrapped, which means continuous: a region that crosses the antimeridian, such
    as Alaska, has some longitudes below -180 degrees.

    Attributes
    ----------
    code
        Short name, such as the postal code ``PR``.
    name
        Full name, such as ``Puerto Rico``.
    boundary
        The region with all its islands and holes, longitude and latitude in degrees (WGS 84).
    strata
        Urban and rural, or two strata of the user; None if the strata are unknown. A region
        without any urban area has strata, too.
    invented
        Whether the region does not exist, so that no real town lies in it.
    """

    code: str
    name: str
    boundary: MultiPolygon
    strata: Strata | None = None
    invented: bool = False

    @classmethod
    @checked_arguments
    def from_geometry(
        cls,
        code: str,
        name: str,
        boundary: BaseGeometry,
        urban_areas: BaseGeometry | None = None,
        urban_vintage: int | None = None,
    ) -> "Region":
        """Return a region from polygons in degrees; its longitudes are unwrapped.

        Raises DataError if `boundary` has no area, is not in degrees, or extends beyond latitude
        85.05.
        """
        parts = polygonal_parts(boundary)
        if not parts:
            raise DataError(f"the boundary of {name} contains no polygon; a region needs an area.")
        west, south, east, north = boundary.bounds
        if max(-south, north) > quadkeys.NORTHMOST or max(-west, east) > 360:
            raise DataError(
                f"expected the boundary of {name} in degrees, at latitudes from "
                f"{-quadkeys.NORTHMOST:.2f} to {quadkeys.NORTHMOST:.2f}, found {boundary.bounds}. "
                "Are the coordinates in metres?"
            )
        region = cls(code, name, _joined(parts, _antimeridian_cut(parts)))
        if urban_areas is None:
            return region
        return region.with_strata(Strata.of_urban_areas(urban_areas, urban_vintage))

    def with_strata(self, strata: Strata | None) -> "Region":
        """Return the region with other strata, which are moved to the longitudes of the region."""
        west, _, east, _ = self.bounds
        moved = None if strata is None else strata.moved((west + east) / 2)
        return replace(self, strata=moved)

    @cached_property
    def wrapped(self) -> MultiPolygon:
        """The boundary with longitudes from -180 to 180, cut at the antimeridian."""
        parts = self.boundary.geoms
        return MultiPolygon([piece for part in parts for piece in cut_at_antimeridian(part)])

    @property
    def heading(self) -> str:
        """The name for headings; words if the name is that of a file, such as ``drive_log``."""
        if self.name != self.code:
            return self.name
        words = self.name.replace("_", " ").strip()
        return words[:1].upper() + words[1:]

    @property
    def urban_vintage(self) -> int | None:
        """Census year of the urban areas; None if the strata are not urban and rural."""
        return None if self.strata is None else self.strata.vintage

    @property
    def strata_names(self) -> tuple[str, str]:
        """Names of the two strata; ``urban`` and ``rural`` if the region has no strata."""
        return STRATA if self.strata is None else self.strata.names

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east and north of the boundary, in degrees."""
        return self.boundary.bounds

    @cached_property
    def code_ranges(self) -> NDArray[np.int64]:
        """Ranges of quadkey codes (first, last) that cover the bounding box, (n, 2)."""
        return quadkeys.code_ranges(*self.bounds)

    def unwrap(self, longitude: ArrayLike) -> NDArray[np.float64]:
        """Return longitudes, moved to within 180 degrees of the region's middle longitude."""
        middle = (self.bounds[0] + self.bounds[2]) / 2
        degrees = numbers_of(longitude, "longitudes")
        return (degrees - middle + 180) % 360 - 180 + middle

    def contains(self, longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each point in degrees, (n,), lies in the region and not in a hole."""
        x, y = places_of(longitude, latitude)
        return _inside(self.boundary, self.unwrap(x), y)

    def stratum(self, longitude: ArrayLike, latitude: ArrayLike) -> NDArray[np.str_]:
        """Return the stratum of each point, (n,); ``unknown`` if the region has no strata."""
        x, y = places_of(longitude, latitude)
        if self.strata is None:
            return np.full(x.shape, UNKNOWN, dtype=f"<U{len(UNKNOWN)}")
        return self.strata.of(self.unwrap(x), y)

    def tiles(self, zoom: int = quadkeys.ZOOM) -> Tiles:
        """Return the tiles whose centre lies in the region, row by row from the north-west.

        Raises RequestError if the zoom is not a whole number from 0 to 30, or there would be far
        too many tiles.
        """
        whole_number("zoom", zoom, 0, MAX_ZOOM)
        if self._box_tiles(zoom) > MAX_BOX_TILES:
            raise RequestError(
                f"{self.name} has too many tiles of zoom {zoom}; choose a lower zoom."
            )
        kept = list(self._strips(zoom, 2_000_000))
        column, row = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        return Tiles(column, row, zoom)

    def check_zoom(self, zoom: int) -> None:
        """Raise RequestError if the region contains no centre of a tile at this zoom level."""
        if not any(len(column) for column, _ in self._strips(zoom, 20_000)):
            raise RequestError(
                f"no tile of zoom {zoom} has its centre in {self.name}; choose a higher zoom."
            )

    def zoom_within(self, zoom: int, most: int) -> int:
        """Return the highest zoom level, up to `zoom`, with at most about `most` tiles."""
        while zoom > 1 and self.about_tiles(zoom, most) > most:
            zoom -= 1
        return zoom

    def about_tiles(self, zoom: int, most: int) -> int:
        """Return the exact or approximate number of the region's tiles at a zoom level.

        The number is exact if the bounding box has at most 4 * `most` tiles. Otherwise geogp counts
        the tiles of a lower zoom level, and multiplies the count by 4 for each level of difference.
        """
        coarse = zoom
        while coarse > 1 and self._box_tiles(coarse) > 4 * most:
            coarse -= 1
        return len(self.tiles(coarse)) << 2 * (zoom - coarse)

    def _strips(
        self, zoom: int, size: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the columns and rows of the region's tiles, in strips of about `size` tiles."""
        west, south, east, north = self.bounds
        columns, rows = quadkeys.tiles_at([west, east], [north, south], zoom)
        across = np.arange(columns[0], columns[1] + 1)
        strip = max(1, size // len(across))
        for top in range(int(rows[0]), int(rows[1]) + 1, strip):
            down = np.arange(top, min(top + strip, int(rows[1]) + 1))
            row, column = (numbers.ravel() for numbers in np.meshgrid(down, across, indexing="ij"))
            inside = self.contains(*quadkeys.tile_centres(column, row, zoom))
            yield column[inside], row[inside]

    def _box_tiles(self, zoom: int) -> int:
        west, south, east, north = self.bounds
        columns, rows = quadkeys.tiles_at([west, east], [north, south], zoom)
        return int((columns[1] - columns[0] + 1) * (rows[1] - rows[0] + 1))


def _inside(
    shape: MultiPolygon, longitude: NDArray[np.float64], latitude: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether each point lies in a shape, which is prepared first to save time."""
    shapely.prepare(shape)
    return np.asarray(shapely.contains_xy(shape, longitude, latitude), np.bool_)


def polygonal_parts(geometry: BaseGeometry) -> list[Polygon]:
    """Return the polygons of a geometry, made valid; lines and points are dropped."""
    parts = shapely.get_parts(shapely.make_valid(geometry))
    polygons: list[Polygon] = []
    for part in parts:
        if isinstance(part, Polygon):
            polygons.append(part)
        elif hasattr(part, "geoms"):
            polygons.extend(polygonal_parts(part))
    return [part for part in polygons if part.area > 0]


def cut_at_antimeridian(part: Polygon) -> list[Polygon]:
    """Cut a polygon at the antimeridian; return pieces with longitudes from -180 to 180."""
    west, south, east, north = part.bounds
    turns = range(math.floor((west + 180) / 360), math.ceil((east + 180) / 360))
    pieces: list[Polygon] = []
    for turn in turns:
        inside = [part]
        if len(turns) > 1:
            window = shapely.box(360 * turn - 180, south - 1, 360 * turn + 180, north + 1)
            inside = polygonal_parts(part.intersection(window))
        pieces += [
            shapely.affinity.translate(piece, xoff=-360 * turn) if turn else piece
            for piece in inside
        ]
    return pieces


def _antimeridian_cut(parts: list[Polygon]) -> float:
    """Return the longitude in the middle of the widest gap between the polygons."""
    edges = sorted((part.bounds[0], part.bounds[2]) for part in parts)
    widest, cut = edges[0][0] + 360 - max(east for _, east in edges), -180.0
    reach = edges[0][1]
    for west, east in edges[1:]:
        if west - reach > widest:
            widest, cut = west - reach, (west + reach) / 2
        reach = max(reach, east)
    return cut


def _joined(parts: list[Polygon], cut: float) -> MultiPolygon:
    """Return the union of polygons; polygons east of `cut` are first moved west by 360 degrees."""
    if cut == -180.0:
        return MultiPolygon(parts)
    moved = [
        part if sum(part.bounds[::2]) / 2 < cut else shapely.affinity.translate(part, xoff=-360)
        for part in parts
    ]
    return MultiPolygon(polygonal_parts(shapely.union_all(moved)))
