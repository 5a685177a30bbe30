"""Air quality stations: few stations, many weeks, and gaps that other stations and weeks fill.

The concentrations are simulated, so that the truth is known: a season, a random field in space and
time (Matérn 3/2), and noise. They are modelled as logarithms, because they are positive and skewed.
"""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import geogp

random = np.random.default_rng(3)
weeks = np.arange("2024-01-01", "2024-12-30", 7, dtype="datetime64[D]")
east, north = random.uniform(0, 80_000, (2, 18))  # metres
points = np.stack(np.broadcast_arrays(east[:, None], north[:, None], np.arange(52)), axis=-1)
waves = random.standard_normal((500, 3)) / np.sqrt(random.chisquare(3, (500, 1)) / 3)
phases = random.uniform(0, 2 * np.pi, 500)
weather = np.sqrt(2 / 500) * np.cos(points / (30_000, 30_000, 3) @ waves.T + phases).sum(axis=-1)
truth = np.exp(2.3 + 0.4 * np.cos(2 * np.pi * np.arange(52) / 52) + 0.4 * weather)
stations = xr.Dataset(
    {"pm25": (("station", "week"), truth * np.exp(0.1 * random.standard_normal(truth.shape)))},
    coords={
        "east": ("station", east),
        "north": ("station", north),
        "station": np.arange(18),
        "week": weeks.astype("datetime64[ns]"),
    },
)

# One station fails for ten weeks in spring, and single weeks of all stations are missing.
failed = (
    (stations["station"] == 4) & (stations["week"] >= weeks[14]) & (stations["week"] < weeks[24])
)
gap = failed | (random.uniform(size=truth.shape) < 0.1)
known = stations.where(~gap).stack(row=["station", "week"]).dropna("row")

model = geogp.FieldGP(x="east", y="north", crs="EPSG:32633", time="week")
model.fit(known, np.log(known["pm25"]))
law = model.predict_distribution(stations)  # of all cells, in the order of the dimensions
print(f"{known.sizes['row']} of {truth.size} values are known")
in_gaps = law[gap.to_numpy().ravel()]
scores = geogp.evaluate(in_gaps, np.log(stations["pm25"].to_numpy()[gap]))
print(scores[["n", "coverage_95", "width_95", "rmse"]].round(3).to_string())

filled = np.exp(model.predict(stations))  # labelled: dimensions station and week
low, high = (np.exp(end).reshape(truth.shape) for end in law.interval(0.95))
figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 3.8), width_ratios=(2, 1), layout="constrained"
)
left.axvspan(weeks[14], weeks[23], color="0.93")
left.fill_between(stations["week"], low[4], high[4], alpha=0.3, label="95 % interval")
left.plot(stations["week"], filled.sel(station=4), label="predicted median")
left.plot(stations["week"], truth[4], "--", label="true concentration")
left.plot(stations["week"], stations["pm25"].where(~gap).sel(station=4), "k.", label="measured")
left.set(ylabel="PM2.5, µg/m³", title="A station that fails for ten weeks")
left.legend(ncols=2)
box = (0, 0, 80_000, 80_000)
grid = np.exp(model.grid(box, time=str(weeks[19]), resolution=2000, level=True)["median"])
drawn = right.pcolormesh(grid["x"] / 1000, grid["y"] / 1000, grid)
right.plot(east / 1000, north / 1000, "ko", markersize=4)
right.plot(east[4] / 1000, north[4] / 1000, "rX", markersize=9)
right.set(title=f"The week of {weeks[19]}", xlabel="km", ylabel="km", aspect="equal")
figure.colorbar(drawn, ax=right, label="median, µg/m³")
figure.savefig("air-quality.png")
