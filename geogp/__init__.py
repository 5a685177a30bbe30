"""Honest maps of network quality with scalable Gaussian processes.

The layers are `geogp.geodata` (tiles and boundaries in), `geogp.models` (the Gaussian
processes), `geogp.calibration` (scores, splits, reports) and `geogp.maps` (grids, rasters,
pages); `make_map.py` ties them into the main job.
"""

__version__ = "0.1.0"
