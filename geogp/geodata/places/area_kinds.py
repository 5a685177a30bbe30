"""Names of the kinds of areas that a user may ask about."""

BY_COUNTY, BY_URBAN = "county", "urban"
"""Layers of polygons that the boundaries contain."""

BY_TRACT = "tract"
"""Census tracts, from files beside the boundaries."""

CENSUS_LAYERS = (BY_COUNTY, BY_URBAN, BY_TRACT)
"""Layers of polygons that ``--by`` takes from the boundaries."""

BY_STRATUM = "stratum"
"""The region and its strata, urban and rural, as areas."""
