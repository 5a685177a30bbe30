"""From a prediction per tile to a grid, rasters, figures and an interactive page."""
