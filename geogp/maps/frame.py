"""The frame of a raster of tiles: the outer edges, and the pixel of each tile."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from numpy.typing import ArrayLike, NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Tiles
from geogp.geodata.tiles import quadkeys

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """A rectangle of tiles of one zoom, in which each tile is one pixel.

    `column` and `row` are the numbers of the tile in the north-west corner, which is pixel (0, 0).
    Columns may lie beyond the world's edge. `width` and `height` are numbers of tiles.
    """

    zoom: int
    column: int
    row: int
    width: int
    height: int

    @classmethod
    def of_tiles(cls, tiles: Tiles) -> "Frame":
        """Return the smallest frame around tiles; raise DataError if there is no tile."""
        if len(tiles) == 0:
            raise DataError("expected at least one tile to map, found none. Is the zoom too low?")
        west, east = int(tiles.column.min()), int(tiles.column.max())
        top, bottom = int(tiles.row.min()), int(tiles.row.max())
        return cls(tiles.zoom, west, top, east - west + 1, bottom - top + 1)

    @classmethod
    def of_grid(cls, grid: xr.Dataset) -> "Frame":
        """Return the frame of a grid made by `build_grid`."""
        zoom = int(grid.attrs["zoom"])
        size = quadkeys.tile_size_m(zoom)
        column = round((float(grid["x"][0]) + quadkeys.HALF_WORLD_M) / size - 0.5)
        row = round((quadkeys.HALF_WORLD_M - float(grid["y"][0])) / size - 0.5)
        return cls(zoom, column, row, grid.sizes["x"], grid.sizes["y"])

    @property
    def x(self) -> Floats:
        """Eastings of the pixels' centres, in EPSG:3857 metres, ascending, shape (width,)."""
        size = quadkeys.tile_size_m(self.zoom)
        return (
            np.arange(self.width, dtype=np.float64) + (self.column + 0.5)
        ) * size - quadkeys.HALF_WORLD_M

    @property
    def y(self) -> Floats:
        """Northings of the pixels' centres, in EPSG:3857 metres, descending, shape (height,)."""
        size = quadkeys.tile_size_m(self.zoom)
        return (
            quadkeys.HALF_WORLD_M
            - (np.arange(self.height, dtype=np.float64) + (self.row + 0.5)) * size
        )

    @property
    def bounds_m(self) -> tuple[float, float, float, float]:
        """The bounds of the frame: west, south, east, north in EPSG:3857 metres."""
        size, half = quadkeys.tile_size_m(self.zoom), quadkeys.HALF_WORLD_M
        return (
            self.column * size - half,
            half - (self.row + self.height) * size,
            (self.column + self.width) * size - half,
            half - self.row * size,
        )

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """The bounds of the frame: west, south, east, north in degrees."""
        corners = quadkeys.tile_bounds(
            np.array([self.column, self.column + self.width - 1]),
            np.array([self.row, self.row + self.height - 1]),
            self.zoom,
        )
        return (
            float(corners.west[0]),
            float(corners.south[1]),
            float(corners.east[1]),
            float(corners.north[0]),
        )

    @property
    def transform(self) -> Affine:
        """Affine map from pixel corners (column, row) to EPSG:3857 metres."""
        size = quadkeys.tile_size_m(self.zoom)
        return Affine(size, 0.0, self.bounds_m[0], 0.0, -size, self.bounds_m[3])

    def pixels(self, tiles: Tiles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pixel rows and pixel columns of tiles, each of shape (n,).

        Raises DataError if a tile lies outside the frame, has another zoom, or occurs twice.
        """
        if tiles.zoom != self.zoom:
            raise DataError(f"expected tiles of zoom {self.zoom}, found zoom {tiles.zoom}.")
        down, across = tiles.row - self.row, tiles.column - self.column
        outside = (down < 0) | (down >= self.height) | (across < 0) | (across >= self.width)
        if outside.any():
            raise DataError(f"{int(outside.sum())} of {len(tiles)} tiles lie outside the raster.")
        filled = np.zeros((self.height, self.width), np.bool_)
        filled[down, across] = True
        repeated = len(tiles) - int(filled.sum())
        if repeated:
            raise DataError(
                f"expected each tile once, found {repeated} repeated. Map one quarter at a time."
            )
        return down, across

    def place(self, tiles: Tiles, values: NDArray[Any], fill: float) -> NDArray[Any]:
        """Return a raster (height, width) with one value for each tile, and with `fill` elsewhere.

        Raises DataError if the number of values differs from the number of tiles, a tile lies
        outside the frame, or a tile occurs twice.
        """
        values = np.asarray(values)
        if values.shape != (len(tiles),):
            raise DataError(
                f"expected one value for each of {len(tiles)} tiles, found shape {values.shape}."
            )
        raster = np.full((self.height, self.width), fill, dtype=values.dtype)
        raster[self.pixels(tiles)] = values
        return raster


def to_mercator(longitude: ArrayLike, latitude: ArrayLike) -> tuple[Floats, Floats]:
    """Return easting and northing in EPSG:3857 metres of points in degrees.

    easting = R λ, northing = R artanh(sin φ). Longitudes beyond 180 degrees are not wrapped.
    """
    sine = np.sin(np.deg2rad(np.asarray(latitude, np.float64)))
    easting = quadkeys.EARTH_RADIUS_M * np.deg2rad(np.asarray(longitude, np.float64))
    return easting, quadkeys.EARTH_RADIUS_M * np.arctanh(sine)
