"""Grids, rasters, figures and the interactive page."""
