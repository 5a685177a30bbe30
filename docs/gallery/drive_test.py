"""A drive test: a file of measurements along roads, and a map of the region between the roads.

The measurements are simulated. The true level is a random field (Matérn 3/2) that is known, and
each measurement has noise. For your own file, replace drive-test.csv and the names of its columns.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import geogp

random = np.random.default_rng(0)
waves = random.standard_normal((500, 2)) / np.sqrt(random.chisquare(3, (500, 1)) / 3) / 0.06
phases = random.uniform(0, 2 * np.pi, 500)


def true_level(places):
    """Return the true level at places in degrees, log10 of Mbps."""
    return 1.3 + 0.4 * np.sqrt(2 / 500) * np.cos(places @ waves.T + phases).sum(1)


# Twenty straight roads between random places, with a hundred tests on each.
start, end = random.uniform((-66.5, 18.0), (-66.1, 18.3), (2, 20, 1, 2))
places = (start + random.uniform(size=(20, 100, 1)) * (end - start)).reshape(-1, 2)
y = true_level(places) + 0.25 * random.standard_normal(len(places))
table = pd.DataFrame({"lon": places[:, 0], "lat": places[:, 1], "mbps": 10**y})
table["road"] = np.repeat(np.arange(20), 100)
table.to_csv("drive-test.csv", index=False)

tests = pd.read_csv("drive-test.csv")
y = np.log10(tests["mbps"])
test = tests["road"] >= 16  # whole roads, because a map is for places without a test nearby
model = geogp.FieldGP(x="lon", y="lat", validation="blocks").fit(tests[~test], y[~test])
law = model.predict_distribution(tests[test])
print(geogp.evaluate(law, y[test], groups=tests["road"][test]).round(3).to_string())

grid = model.grid((-66.5, 18.0, -66.1, 18.3), resolution=0.01, level=True)
truth = true_level(np.dstack(np.meshgrid(grid["x"], grid["y"])).reshape(-1, 2))
truth = truth.reshape(grid["median"].shape)
inside = (grid["lower_95"] <= truth) & (truth <= grid["upper_95"])
print(f"{float(inside.mean()):.1%} of the true levels are in their 95 % interval")

grid["true"] = grid["median"].copy(data=truth)
figure, axes = plt.subplots(1, 3, figsize=(13, 3.4), layout="constrained")
scales = {"true": (0.5, 2.1), "median": (0.5, 2.1), "sd": (0, None)}
for axis, (title, (low, high)) in zip(axes, scales.items(), strict=True):
    grid[title].plot(ax=axis, vmin=low, vmax=high, cbar_kwargs={"label": "log10 Mbps"})
    axis.plot(tests["lon"][~test], tests["lat"][~test], "k.", markersize=0.5)
    axis.set(title=title, xlabel="longitude", ylabel="latitude")
figure.savefig("drive-test.png")
