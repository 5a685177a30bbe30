"""Temperatures in space and time: stations, weeks, and an effect of the height.

The temperatures are simulated, so that the truth is known: a season, 6.5 degrees less for each km
of height, a random field in space and time (Matérn 3/2), and noise of 0.5 degrees.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import geogp

random = np.random.default_rng(0)
stations = pd.DataFrame(random.uniform(0, 200_000, (100, 2)), columns=["east", "north"])
stations["station"] = np.arange(100)
stations["height"] = random.gamma(2, 250, 100)  # metres
weeks = pd.DataFrame({"week": np.arange(40), "date": pd.date_range("2023", periods=40, freq="7D")})
table = stations.merge(weeks, how="cross")

points = table[["east", "north", "week"]].to_numpy() / (60_000, 60_000, 3)
waves = random.standard_normal((500, 3)) / np.sqrt(random.chisquare(3, (500, 1)) / 3)
weather = np.sqrt(2 / 500) * np.cos(points @ waves.T + random.uniform(0, 6.3, 500)).sum(axis=1)
season = -9 * np.cos(2 * np.pi * table["week"] / 52)
truth = 12 + season - 0.0065 * table["height"] + 2 * weather
table["temperature"] = truth + 0.5 * random.standard_normal(len(table))

test = table["station"] >= 85  # fifteen stations that the fit does not know
train = table[~test]
slope, _ = np.polyfit(train["height"], train["temperature"], 1)
model = geogp.FieldGP(x="east", y="north", crs="EPSG:32633", time="date", time_unit="week")
model.fit(train, train["temperature"] - slope * train["height"])
law = model.predict_distribution(table[test])  # of the temperature at the height 0
at_zero = table["temperature"][test] - slope * table["height"][test]
print(f"{1000 * slope:.1f} degrees for each km of height")
print(geogp.evaluate(law, at_zero).round(3).to_string())
error = np.sqrt(np.mean((law.mean + slope * table["height"][test] - truth[test]) ** 2))
print(f"root mean square error to the true temperature: {error:.2f} degrees")

shown = table["station"] == 85
low, high = np.array(law[shown[test].to_numpy()].interval(0.95)) + slope * table["height"][85 * 40]
date = table["date"][shown]
figure, axis = plt.subplots(figsize=(9, 3.8), layout="constrained")
axis.fill_between(date, low, high, alpha=0.3, label="95 % interval of a measurement")
axis.plot(date, truth[shown], label="true temperature")
axis.plot(date, table["temperature"][shown], "k.", label="measured, not used in the fit")
axis.set(ylabel="degrees", title="A station that the fit does not know")
axis.legend()
figure.savefig("temperatures.png")
