"""Counts: faults of a network in cells of 1 km, each seen for one to six months.

The counts are simulated: Poisson counts, whose rate per month is known. The logarithm of the rate
is a random field (Matérn 3/2).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import geogp

random = np.random.default_rng(0)
x, y = np.meshgrid(np.arange(40) + 0.5, np.arange(30) + 0.5)
cells = pd.DataFrame({"x": x.ravel(), "y": y.ravel()})
waves = random.standard_normal((500, 2)) / np.sqrt(random.chisquare(3, (500, 1)) / 3) / 6
rate = np.exp(np.sqrt(2 / 500) * np.cos(cells @ waves.T + random.uniform(0, 6.3, 500)).sum(axis=1))
cells["months"] = random.integers(1, 7, len(cells)).astype(float)
cells["faults"] = random.poisson(rate * cells["months"])

test = random.uniform(size=len(cells)) < 0.3
train = cells[~test]
model = geogp.CountGP(x="x", y="y", crs=None, exposure="months")  # cox-nb; "cox" for Poisson counts
model.fit(train, train["faults"])
law = model.predict_distribution(cells[test])
print(geogp.evaluate(law, cells["faults"][test]).round(3).to_string())

# For comparison: the mean rate of the training cells, everywhere.
mean = train["faults"].sum() / train["months"].sum()
for name, expected in {"model": law.mean, "mean rate": mean * cells["months"][test]}.items():
    error = np.abs(expected / cells["months"][test] - rate[test]).mean()
    print(f"{name}: the mean error of the rate is {error:.2f} faults per month")

predicted = model.predict_distribution(cells.assign(months=1.0)).mean
counted = np.where(test, np.nan, cells["faults"] / cells["months"])
figure, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
shown = {"counted, training cells": counted, "predicted": predicted, "true": rate.to_numpy()}
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    image = axis.imshow(values.reshape(x.shape), vmin=0, vmax=rate.max(), origin="lower")
    axis.set(title=title, xlabel="km", ylabel="km")
figure.colorbar(image, ax=axes, label="faults per month")
figure.savefig("counts.png")
