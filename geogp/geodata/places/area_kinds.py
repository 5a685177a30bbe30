"""Names of the kinds of areas that a user may ask about."""

from geogp.choices import nearest
from geogp.errors import RequestError, quoted
from geogp.geodata.places.file_choice import existing_path

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers of polygons that the boundaries contain."""

BY_TRACT = "tract"
"""Census tracts, from files beside the boundaries."""

CENSUS_LAYERS = (BY_COUNTY, BY_URBAN, BY_TRACT)
"""Layers of polygons that ``--by`` takes from the boundaries."""

BY_STRATUM = "stratum"
"""The region and its strata, urban and rural, as areas."""

HEXAGONS = "h3:"
"""Beginning of ``--by`` for hexagons of H3; the resolution follows."""

POLYGONS_TOLD = f"{', '.join(CENSUS_LAYERS)}, FILE, FILE:COLUMN or FILE:LAYER:COLUMN"
"""What ``--by`` may be if it needs polygons."""

AREAS_TOLD = f"{BY_STRATUM}, {HEXAGONS}RESOLUTION, {POLYGONS_TOLD}"
"""What ``--by`` may be."""


def check_by(by: str, *, told: str = AREAS_TOLD) -> None:
    """Raise RequestError if ``--by`` is neither one of the kinds in `told` nor a file."""
    known = [name for name in (BY_STRATUM, *CENSUS_LAYERS) if name in told]
    if by in known or by.startswith(HEXAGONS) or existing_path(by) is not None:
        return
    near = nearest(by, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise RequestError(
        f"unknown --by {quoted(by)}, and there is no such file; choose {told}.{hint}"
    )
