"""Where things are: regions, boundaries, layers of polygons, strata."""
