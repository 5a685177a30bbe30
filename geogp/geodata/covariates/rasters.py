"""Covariates from rasters, interpolated between the centres of cells."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import ArrayLike, NDArray
from pyproj import CRS, Transformer
from pyproj.exceptions import ProjError
from rasterio.errors import RasterioError
from rasterio.windows import Window
from scipy.ndimage import map_coordinates

from geogp.arguments import places_of
from geogp.errors import DataError
from geogp.geodata.covariates.points import CovariateValues
from geogp.geodata.places.polygons import without_network

Floats = NDArray[np.float64]

MAX_CELLS = 1 << 24  # most cells of a raster that are read at once
MOST_VALUE = 1e30  # largest value of a covariate; larger values mark missing data
MAX_BLOCK_BYTES = 1 << 28  # largest block of a raster, which GDAL reads as a whole

_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # first bytes of a TIFF

_DAMAGE = (RasterioError, ProjError, ValueError, OSError)


def _as_doubles(values: NDArray[Any]) -> Floats:
    """Return values in double precision, also those that a process may take for 0.

    In single precision, values below 1.2e-38 are denormal, and `arithmetic` flushes such values.
    """
    doubles: Floats = values.astype(np.float64)
    if values.dtype == np.float32:
        bits = values.view(np.uint32)
        steps = bits & np.uint32(0x7FFFFFFF)
        denormal = (steps > 0) & (steps < np.uint32(0x00800000))
        sign = np.where(bits[denormal] >> np.uint32(31), -1.0, 1.0)
        doubles[denormal] = sign * steps[denormal] * 2.0**-149
    return doubles


@dataclass(frozen=True)
class RasterCovariate:
    """A covariate from a GeoTIFF with one band, interpolated bilinearly between cell centres.

    Cells without data have weight 0; the weights of the other cells around a place are scaled to
    the sum 1. The value is NaN outside the raster, and if no cell around the place has data. Raises
    DataError unless the file is a GeoTIFF with a CRS and exactly one band, of real numbers.
    """

    path: Path
    to_raster: Transformer = field(init=False, repr=False, compare=False)
    interpolation = "bilinear"
    rows = 0
    prior_sd = float("nan")

    def __post_init__(self) -> None:
        with self.path.open("rb") as stream:
            if stream.read(4) not in _MAGIC:
                raise DataError(f"{self.path} is not a GeoTIFF; expected a raster in this format.")
        try:
            with self._opened() as raster:
                if raster.count != 1 or np.dtype(raster.dtypes[0]).kind not in "iuf":
                    raise DataError(
                        f"expected a raster of one band of real numbers in {self.path}, found "
                        f"{raster.count} of type {raster.dtypes[0]}. Write one band to a file."
                    )
                block = prod(raster.block_shapes[0]) * np.dtype(raster.dtypes[0]).itemsize
                if block > MAX_BLOCK_BYTES:
                    raise DataError(
                        f"{self.path} has blocks of {block:,} bytes; expected at most "
                        f"{MAX_BLOCK_BYTES:,}. Write the raster with smaller blocks (tiled)."
                    )
                if raster.crs is None:
                    raise DataError(
                        f"{self.path} has no CRS, so the meaning of its coordinates is unknown. "
                        "Set the CRS, for example with gdal_edit.py -a_srs EPSG:4326."
                    )
                with without_network():
                    crs = CRS.from_wkt(raster.crs.to_wkt())
                    transformer = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        except _DAMAGE as error:
            raise self._damaged(error) from error
        object.__setattr__(self, "to_raster", transformer)

    def at(
        self,
        longitude: ArrayLike,
        latitude: ArrayLike,
        quarter: ArrayLike | None = None,  # noqa: ARG002 - a raster has no time
    ) -> CovariateValues:
        """Return values at places in degrees, (n,); their standard deviations are unknown (NaN).

        Raises DataError if the raster is damaged, or more than `MAX_CELLS` cells have to be read.
        """
        longitude, latitude = map(np.atleast_1d, places_of(longitude, latitude))
        longitude = (longitude + 180) % 360 - 180
        with without_network():
            x, y = self.to_raster.transform(longitude, latitude)
        try:
            with self._opened() as raster:
                if raster.crs.is_geographic:  # longitudes may be from 0 to 360
                    middle = (raster.bounds.left + raster.bounds.right) / 2
                    x = (np.asarray(x) - middle + 180) % 360 - 180 + middle
                to_cells = ~raster.transform
                column = to_cells.a * np.asarray(x) + to_cells.b * np.asarray(y) + to_cells.c
                row = to_cells.d * np.asarray(x) + to_cells.e * np.asarray(y) + to_cells.f
                values = self._between(raster, column - 0.5, row - 0.5)
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return CovariateValues(values, np.full(len(values), np.nan))

    def _between(self, raster: Any, column: Floats, row: Floats) -> Floats:
        """Return interpolated values; whole numbers in `column` and `row` are cell centres."""
        inside = (column > -1) & (column < raster.width) & (row > -1) & (row < raster.height)
        result = np.full(len(column), np.nan)
        if not inside.any():
            return result
        u, v = column[inside], row[inside]
        left, top = np.floor(u).astype(np.int64), np.floor(v).astype(np.int64)
        first, last = (max(0, left.min()), max(0, top.min())), (left.max() + 1, top.max() + 1)
        width, height = (
            min(end, most - 1) - start + 1
            for start, end, most in zip(first, last, (raster.width, raster.height), strict=True)
        )
        if width * height > MAX_CELLS:
            raise DataError(
                f"{self.path} has {width * height:,} cells between the places, more than "
                f"{MAX_CELLS:,}. Write the raster with larger cells."
            )
        read = raster.read(1, window=Window(*first, width, height), masked=True)
        cells = _as_doubles(read.filled(0)) * raster.scales[0] + raster.offsets[0]
        known = ~np.ma.getmaskarray(read) & np.isfinite(cells)
        total, weight = (
            map_coordinates(layer, [v - first[1], u - first[0]], order=1, mode="grid-constant")
            for layer in (np.where(known, cells, 0.0), known.astype(np.float64))
        )
        if known.any():
            low, high = cells[known].min(), cells[known].max()
            if max(-low, high) > MOST_VALUE:
                raise DataError(
                    f"expected values up to {MOST_VALUE:g} in {self.path}, found {low:g} to "
                    f"{high:g}. If such a value means missing data, declare it as the value "
                    "without data (gdal_edit.py -a_nodata), or else use another unit."
                )
            # Means of equal cells would differ by rounding.
            with np.errstate(invalid="ignore"):
                result[inside] = np.clip(total / weight, low, high)
        return result

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the raster without its side files, which could change values but have no hash."""
        alone = {
            "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
            "GDAL_PAM_ENABLED": "NO",
            "GDAL_GEOREF_SOURCES": "INTERNAL",
        }
        with rasterio.Env(**alone), rasterio.open(self.path.absolute(), driver="GTiff") as raster:
            yield raster

    def _damaged(self, error: Exception) -> DataError:
        if isinstance(error, DataError):
            return error
        return DataError(f"{self.path} cannot be read as a GeoTIFF ({error}). Recreate the file.")
