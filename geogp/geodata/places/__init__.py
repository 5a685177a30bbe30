"""Regions, boundaries, layers of polygons, and strata."""
