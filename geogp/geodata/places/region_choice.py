"""The user's choice of a region and of its strata.

A file of polygons is given as ``FILE``, ``FILE:COLUMN`` or ``FILE:COLUMN=VALUE``. If the file has
several layers, the name of one follows the file: ``FILE:LAYER``, ``FILE:LAYER:COLUMN`` and so on.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geogp.choices import one_of
from geogp.errors import RequestError, quoted
from geogp.geodata.places.state_names import check_public_state
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, absolute_place, is_address

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

    from geogp.geodata.places.census import Boundaries

AUTO = "auto"

CRS_OF_REGION = "Code of the coordinate system of --region-file, if the file states none."
"""Help text of ``--crs`` of commands that have no other file of polygons."""

CRS_OF_FILES = (
    "Code of the coordinate system of files that state none, also of polygons, and of columns "
    "that are not in degrees: EPSG:32161, or FILE=EPSG:32161 for one of several files."
)
"""Help text of ``--crs`` of commands that read polygons and points."""

_CRS_CODE = re.compile(r"[A-Za-z]{2,10}:[A-Za-z0-9]{1,12}")

VINTAGE_CHOICES = (AUTO, "2020", "2010", "2000")
"""Values of ``--urban-vintage``; ``auto`` means the newest census in the source."""


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

    def read(self, extent: "BaseGeometry | None" = None) -> "Boundaries":
        """Return the region with its strata and boundaries; see `read_chosen`.

        `extent` is the extent of the file of points, which is needed if `is_extent`.
        """
        from geogp.geodata.places.chosen_region import read_chosen  # noqa: PLC0415 - slow

        return read_chosen(self, extent)


def file_and_rest(text: str) -> tuple[Path, str | None]:
    """Split ``FILE:REST`` after the name of an existing file, or otherwise at the first colon."""
    places = [k for k, sign in enumerate(text) if sign == ":"]
    if Path(text).exists() or not places:
        return Path(text), None
    place = next((k for k in places if Path(text[:k]).is_file()), places[0])
    return Path(text[:place]), text[place + 1 :]


def column_and_value(path: Path, text: str) -> tuple[str, str]:
    """Split ``COLUMN=VALUE``; raise RequestError if the text has another form."""
    column, equals, value = text.partition("=")
    if not (column and equals):
        raise RequestError(
            f"expected COLUMN=VALUE, to choose the rows of {path} that form the region, found "
            f"{quoted(text)}."
        )
    return column, value


def crs_for(path: Path, text: str | None) -> str | None:
    """Return the code that ``--crs`` gives for a file; None without one.

    `text` is a code such as ``EPSG:4326`` for all files, ``NAME=CODE`` for the file of this name,
    or several of these, separated by commas; None means that there is no ``--crs``. Raises
    RequestError if a code has another form: other descriptions of a CRS could refer to files and
    servers.
    """
    found = None
    for part in [] if text is None else text.split(","):
        name, _, code = part.rpartition("=")
        if not _CRS_CODE.fullmatch(code):
            raise RequestError(
                "expected --crs with the code of a coordinate system, such as EPSG:4326, or with "
                f"FILE=CODE for one file, found {quoted(part)}."
            )
        if name in {"", path.name}:
            found = code
    return found


def absolute_name(text: str) -> str:
    """Return ``FILE`` or ``FILE:REST`` with an absolute path; a symbolic link keeps its name."""
    path, rest = file_and_rest(text)
    place = path.parent.resolve() / path.name
    return str(place) if rest is None else f"{place}:{rest}"


def existing_path(text: str) -> Path | None:
    """Return the path in ``FOLDER``, ``FILE`` or ``FILE:REST``; None if there is no such path."""
    if is_address(text) or "\0" in text:
        return None
    path = file_and_rest(os.path.expanduser(text))[0]  # noqa: PTH111 - keeps `~nobody`
    return path if path.exists() else None
