"""The region that a user chose, read from its files."""

from dataclasses import replace

from geogp.geodata.places.census import Boundaries, read_around, read_region
from geogp.geodata.places.own_region import read_own_region
from geogp.geodata.places.own_strata import read_own_strata
from geogp.geodata.places.region_choice import RegionChoice
from geogp.geodata.store.sources import open_source


def read_chosen(choice: RegionChoice) -> Boundaries:
    """Return the region that a user chose, with the chosen strata.

    RequestError, DataError, NetworkError as in `read_region`, `read_own_region`, `read_own_strata`.
    """
    found = _boundaries(choice)
    if choice.strata is None:
        return found
    strata, files, warnings = read_own_strata(choice.strata, found.region)
    return replace(
        found,
        region=found.region.with_strata(strata),
        files=(*found.files, *files),
        warnings=(*found.warnings, *warnings),
    )


def _boundaries(choice: RegionChoice) -> Boundaries:
    if choice.file is None:
        assert choice.region is not None
        assert choice.boundaries is not None
        return read_region(open_source(choice.boundaries), choice.region, choice.urban_vintage)
    region, files = read_own_region(choice.file, choice.name)
    if choice.boundaries is None:
        return Boundaries(region, files, ())
    found = read_around(open_source(choice.boundaries), region, choice.urban_vintage)
    return replace(found, files=(*files, *found.files))
