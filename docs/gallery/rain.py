"""Rain of a day at gauges, many of them dry: the probability of rain, and honest amounts.

The rain is simulated, so that the truth is known: what a smooth process has above a limit.
"""

import matplotlib.pyplot as plt
import numpy as np

import geogp

random = np.random.default_rng(4)
waves = random.standard_normal((300, 2)) / 25
phases = random.uniform(0, 2 * np.pi, 300)


def wetness(places):
    """Return the smooth process at places, (n,), with mean 0 and variance 1."""
    return np.sqrt(2 / 300) * np.cos(places @ waves.T + phases).sum(1)


def rain(places):
    """Return the millimetres that gauges measure at places, (n,)."""
    above = wetness(places) + 0.35 * random.standard_normal(len(places))
    return 8 * np.maximum(above - 0.1, 0) ** 1.5


gauges, others = random.uniform(0, 100, (300, 2)), random.uniform(0, 100, (2000, 2))
measured, later = rain(gauges), rain(others)
print(f"dry gauges: {(measured == 0).mean():.0%}")

model = geogp.FieldGP(crs=None, law="positive").fit(gauges, measured)
law = model.predict_distribution(others)
lower, upper = law.interval(0.95)
print(f"P(no rain) stated {law.cdf(0).mean():.2f}, seen {(later == 0).mean():.2f}")
print(f"P(more than 5 mm) stated {law.exceedance(5).mean():.2f}, seen {(later > 5).mean():.2f}")
print(f"smallest lower end {lower.min():.1f} mm")
print(f"inside the 95 % intervals {((lower <= later) & (later <= upper)).mean():.1%}")

x, y = np.meshgrid(np.linspace(0, 100, 80), np.linspace(0, 100, 80))
cells = np.column_stack([x.ravel(), y.ravel()])
law = model.predict_distribution(cells)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
shown = {"Probability of rain": law.exceedance(0), "Median rain (mm)": law.median}
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    image = axis.pcolormesh(x, y, values.reshape(x.shape), cmap="Blues", vmin=0)
    figure.colorbar(image, ax=axis)
    axis.scatter(*gauges[measured == 0].T, s=8, c="none", edgecolors="0.4", label="dry gauge")
    axis.scatter(*gauges[measured > 0].T, s=8, c="black", label="wet gauge")
    axis.set(title=title, aspect="equal")
axes[0].legend(loc="upper right", fontsize=8)
figure.savefig("rain.png")
