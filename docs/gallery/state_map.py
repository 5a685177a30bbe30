"""A map of a state: the level of town and country, its intervals, and a check with the truth.

The data are the demo region, which is simulated, so that the true level is known. For a real state,
leave out source and boundaries: geogp then downloads Ookla's tiles.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

import geogp

# `geogp demo` makes the same run. A finished run is opened, not made again.
run = geogp.make_map(
    "DEMO",
    source="data/demo",
    boundaries="data/demo/boundaries",
    preset="quick",
    out="runs/demo",
)
for stratum, scores in run.content["metrics"]["random"].items():
    print(f"{stratum}: {scores['coverage_95']:.1%} of the test rows are in their 95 % interval")

# The level of the measured tiles, and what the simulation knows of it, in log10 Mbps.
truth = pd.read_parquet("data/demo/truth.parquet").query("quarter == '2023Q4'")
truth["quarter"] = pd.PeriodIndex(truth["quarter"], freq="Q")
level = run.model.predict_distribution(truth, level=True)
low, high = level.interval(0.95)
value = truth["field_true"] + truth["tile_true"]
print(f"{len(truth)} levels: error {np.abs(level.median - value).mean():.3f},", end=" ")
print(f"{np.mean((low <= value) & (value <= high)):.1%} are in their 95 % interval")

grid = xr.open_dataset(run.path / "grid.nc", engine="h5netcdf")
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
shown = {"median_mbps": "median, Mbps", "width_log10": "width of the 95 % interval, log10"}
for axis, (name, title) in zip(axes, shown.items(), strict=True):
    grid[name].plot(ax=axis, robust=True, cbar_kwargs={"label": title})
    axis.set(title="", aspect="equal")
    axis.axis("off")
figure.savefig("state-map.png")
