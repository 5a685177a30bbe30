"""The user's choice of a region and of its strata."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from geogp.choices import one_of
from geogp.errors import RequestError
from geogp.geodata.places.file_choice import absolute_name, crs_for
from geogp.geodata.places.state_names import AUTO, VINTAGE_CHOICES, check_public_state
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, absolute_place

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from shapely.geometry.base import BaseGeometry

    from geogp.geodata.places.census import Boundaries

CRS_OF_REGION = "Code of the coordinate system of --region-file, if the file states none."
"""Help text of ``--crs`` of commands that have no other file of polygons."""

CRS_OF_FILES = (
    "Code of the coordinate system of files that state none, also of polygons, and of columns "
    "that are not in degrees: EPSG:32161, or FILE=EPSG:32161 for one of several files."
)
"""Help text of ``--crs`` of commands that read polygons and points."""


@dataclass(frozen=True)
class RegionChoice:
    """The user's choice of a region: a state, or polygons in a file; paths are made absolute.

    `region` is a postal code, name or FIPS number of a state. `file` is ``FILE`` or
    ``FILE:COLUMN=VALUE`` with the user's polygons, and `name` is the region's name. `boundaries` is
    the folder or web address of Census boundaries; the default for a state is the Census Bureau's
    site. `strata` is ``FILE`` or ``FILE:COLUMN``; see `read_own_strata`. `points` is a file of
    measurements, whose extent is the region if there is neither `region` nor `file`. `crs` is the
    CRS of files of polygons that have none; see `crs_for`.

    Raises RequestError if `region` and `file` are both given or both missing, if the Census Bureau
    has no such state, if `crs` is not a code, or if `name` or `urban_vintage` would have no effect.
    """

    region: str | None = None
    file: str | None = None
    name: str | None = None
    boundaries: str | None = None
    urban_vintage: str = AUTO
    strata: str | None = None
    points: str | None = None
    crs: str | None = None

    def __post_init__(self) -> None:
        if self.region and Path(self.region).suffix and Path(self.region).is_file():
            raise RequestError(
                f"{self.region} is a file, not a region. Give a file of your own tests with "
                f"--points {self.region}, and polygons with --region-file {self.region}."
            )
        if (self.region is None) == (self.file is None) and not self.is_extent:
            found = "neither" if self.region is None else f"both {self.region} and {self.file}"
            raise RequestError(
                "expected a region, such as PR, or --region-file with your own polygons, but not "
                f"both; found {found}."
            )
        if self.name is not None and self.region is not None:
            raise RequestError(
                f"--region-name {self.name} is only for a --region-file; the region "
                f"{self.region} already has a name. Leave --region-name out."
            )
        one_of("vintage of urban areas", self.urban_vintage, VINTAGE_CHOICES)
        crs_for(Path(), self.crs)  # raises RequestError for a wrong code
        if self.file is not None:
            object.__setattr__(self, "file", absolute_name(self.file))
        if self.strata is not None:
            object.__setattr__(self, "strata", absolute_name(self.strata))
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", absolute_place(self.boundaries))
        elif self.region is not None:
            check_public_state(self.region)
            object.__setattr__(self, "boundaries", PUBLIC_BOUNDARIES)
        elif self.urban_vintage != AUTO:
            raise RequestError(
                f"--urban-vintage {self.urban_vintage} chooses among the urban areas in "
                f"--boundaries; give --boundaries too."
            )

    @property
    def is_extent(self) -> bool:
        """Whether the region is the extent of the file of points."""
        return self.points is not None and self.region is None and self.file is None

    def read(
        self,
        extent: "BaseGeometry | None" = None,
        measured: "NDArray[np.object_] | None" = None,
    ) -> "Boundaries":
        """Return the region with its strata, boundaries and counties, and what was read.

        `extent` is the shape of the `PointExtent` of the file of points, and `measured` are its
        tiles; both are needed if `is_extent`, see `read_around`. Raises the errors of
        `read_region`, `read_own_region` and `read_own_strata`.
        """
        from geogp.geodata.places import census, own_polygons  # noqa: PLC0415 - slow
        from geogp.geodata.store.sources import open_source  # noqa: PLC0415 - slow

        source = None if self.boundaries is None else open_source(self.boundaries)
        if self.region is not None:
            assert source is not None
            read = census.read_region(source, self.region, self.urban_vintage)
        else:
            if self.file is not None:
                own = own_polygons.read_own_region(self.file, self.name, self.crs)
            else:
                assert self.points is not None
                assert extent is not None
                stem = Path(self.points).stem
                region = own_polygons.region_of(self.name or stem, extent)
                # The file names the folder of the run, even if the run later has a name.
                code = own_polygons.code_of(stem) if any(map(str.isalnum, stem)) else region.code
                own = replace(region, code=code), (), ()
            read = census.Boundaries(*own)
            if source is not None:
                around = census.read_around(source, read.region, self.urban_vintage, measured)
                files, warnings = (*read.files, *around.files), (*read.warnings, *around.warnings)
                read = replace(around, files=files, warnings=warnings)
        if self.strata is None:
            return read
        strata, files, warnings = own_polygons.read_own_strata(self.strata, read.region, self.crs)
        return replace(
            read,
            region=read.region.with_strata(strata),
            files=(*read.files, *files),
            warnings=(*read.warnings, *warnings),
        )
