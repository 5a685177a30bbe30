"""A drive test: the tests of one drive err together, so the model is told which drive made each.

The measurements are simulated. The true level is a random field (Matérn 3/2) that is known. Each
drive has an error of its own, such as that of its phone and of its hour, and each test has noise.
For your own file, replace drive-test.csv and the names of its columns.
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


# Forty drives that turn slowly, with 25 tests each.
turns = random.uniform(0, 2 * np.pi, (40, 1)) + 0.2 * random.standard_normal((40, 25)).cumsum(1)
steps = 0.01 * np.dstack([np.cos(turns), np.sin(turns)])
paths = random.uniform((-66.5, 18.0), (-66.1, 18.3), (40, 1, 2)) + steps.cumsum(1)
places = paths.reshape(-1, 2)
table = pd.DataFrame({"lon": places[:, 0], "lat": places[:, 1]})
table["drive"] = np.repeat(np.arange(40), 25)
y = true_level(places) + 0.3 * random.standard_normal(40)[table["drive"]]
table["mbps"] = 10 ** (y + 0.2 * random.standard_normal(len(places)))
table.to_csv("drive-test.csv", index=False)

tests = pd.read_csv("drive-test.csv")
y = np.log10(tests["mbps"])
new = tests["drive"] >= 25  # whole drives, because a map is for people who were not in the car
models = {}
for name, group in (("without drives", None), ("with drives", "drive")):
    model = geogp.FieldGP(x="lon", y="lat", group=group).fit(tests[~new], y[~new])
    scores = geogp.evaluate(model.predict_distribution(tests[new]), y[new])
    print(name, scores[["n", "coverage_95", "width_95", "crps"]].round(3).to_string(), sep="\n")
    grid = model.grid((-66.5, 18.0, -66.1, 18.3), resolution=0.01, level=True)
    truth = true_level(np.dstack(np.meshgrid(grid["x"], grid["y"])).reshape(-1, 2))
    truth = truth.reshape(grid["median"].shape)
    inside = (grid["lower_95"] <= truth) & (truth <= grid["upper_95"])
    error = np.sqrt(np.mean((grid["median"] - truth) ** 2))
    print(f"of the true levels, {float(inside.mean()):.1%} are in their 95 % interval,", end=" ")
    print(f"root mean square error {float(error):.2f}\n")
    models[name] = grid["median"]

models = {"true": grid["median"].copy(data=truth), **models}
figure, axes = plt.subplots(1, 3, figsize=(13, 3.4), layout="constrained", sharey=True)
for axis, (title, level) in zip(axes, models.items(), strict=True):
    drawn = axis.pcolormesh(level["x"], level["y"], level, vmin=0.5, vmax=2.1)
    axis.plot(tests["lon"][~new], tests["lat"][~new], "k.", markersize=0.7)
    axis.set(title=title, xlabel="longitude", xlim=(-66.5, -66.1), ylim=(18.0, 18.3))
axes[0].set(ylabel="latitude")
figure.colorbar(drawn, ax=axes, label="log10 Mbps")
figure.savefig("drive-test.png")
