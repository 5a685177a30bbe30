"""Kernel slices: the values of a learned kernel between one place and all tiles of a map."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.geodata.places.region import Tiles


@dataclass(frozen=True)
class KernelSlice:
    """Values k(x, x_ref) of a kernel for all tiles x and one reference point x_ref.

    `name` is the kind of place at the reference point: ``urban``, ``rural`` or ``wildland``. The
    coordinates of the reference point are in degrees. `values` are float64 of shape (n_tiles,), in
    the squared unit of the target. `quarter` is None if the kernel depends only on locations.
    `description` is one sentence about the reference point.
    """

    name: str
    longitude: float
    latitude: float
    values: NDArray[np.float64]
    quarter: str | None = None
    description: str = ""

    @property
    def title(self) -> str:
        """Name of the slice, and the quarter if there is one."""
        return self.name if self.quarter is None else f"{self.name}, {self.quarter}"


def check_slices(tiles: Tiles, slices: list[KernelSlice]) -> NDArray[np.float64]:
    """Return the values of all slices as an array of shape (slices, tiles).

    Raises DataError if there is no slice, or the number of values differs from the number of tiles.
    """
    if not slices:
        raise DataError("expected at least one kernel slice, found none.")
    for kernel_slice in slices:
        if kernel_slice.values.shape != (len(tiles),):
            raise DataError(
                f"expected {len(tiles)} kernel values, one per tile, for the "
                f"{kernel_slice.name} slice, found shape {kernel_slice.values.shape}."
            )
    return np.stack([kernel_slice.values for kernel_slice in slices])
