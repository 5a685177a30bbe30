"""Grids, rasters, figures and an interactive page from the predictions for tiles."""
