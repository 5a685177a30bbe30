"""geogp compared with GPBoost and scikit-learn, on the same rows, each with its defaults.

The first table is a random field with normal noise, which is just the model of the two others
(Matérn 3/2). The second has simulated tiles of the demo region, whose noise differs by place.
"""

from time import perf_counter

import gpboost
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

import geogp

random = np.random.default_rng(0)
km = random.uniform(0, 100, (2200, 2))
waves = random.standard_normal((500, 2)) / np.sqrt(random.chisquare(3, (500, 1)) / 3) / 12
field = np.sqrt(2 / 500) * np.cos(km @ waves.T + random.uniform(0, 6.3, 500)).sum(axis=1)
tables = {"random field": (km, field + 0.5 * random.standard_normal(2200))}
tiles = pd.read_parquet("data/demo/truth.parquet").query("quarter == '2023Q4'")
tiles = tiles.sample(2200, random_state=0)
km = tiles[["longitude", "latitude"]].to_numpy() * (94.3, 111.2)
tables["tiles"] = km, tiles["y"].to_numpy()


def with_geogp(x, y, new):
    return geogp.FieldGP(crs=None).fit(x, y).predict_distribution(new)


def with_gpboost(x, y, new):
    model = gpboost.GPModel(gp_coords=x, cov_fct_shape=1.5, gp_approx="vecchia")
    model.fit(y, X=np.ones((len(y), 1)))
    found = model.predict(gp_coords_pred=new, X_pred=np.ones((len(new), 1)), predict_var=True)
    return geogp.Prediction.of_moments(found["mu"], found["var"])


def with_sklearn(x, y, new):
    kernel = 1.0 * kernels.Matern(10, (0.1, 1000), nu=1.5) + kernels.WhiteKernel()
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x, y)
    mean, sd = model.predict(new, return_std=True)
    return geogp.Prediction.of_moments(mean, sd**2)


models = {"geogp": with_geogp, "GPBoost": with_gpboost, "scikit-learn": with_sklearn}
figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
for axis, (name, (x, y)) in zip(axes, tables.items(), strict=True):
    scores, laws = {}, {}
    for model, fit in models.items():
        start = perf_counter()
        laws[model] = fit(x[:1200], y[:1200], x[1200:])
        scores[model] = geogp.evaluate(laws[model], y[1200:]).loc["all"]
        scores[model]["seconds"] = perf_counter() - start
    names = ["rmse", "crps", "nll", "coverage_95", "seconds"]
    print(f"{name}\n{pd.DataFrame(scores).loc[names].T.round(3).to_string()}\n")
    for model in ("GPBoost", "scikit-learn"):
        more = laws[model].crps(y[1200:]) - laws["geogp"].crps(y[1200:])
        axis.errorbar(more.mean(), model, xerr=1.96 * more.std() / np.sqrt(len(more)), fmt="o")
    axis.axvline(0, color="grey")
    axis.set(title=name, xlabel="CRPS, difference from geogp", xlim=(-0.006, 0.006))
    axis.set(ylim=(-0.5, 1.5), xticks=(-0.005, 0, 0.005))
figure.savefig("comparison.png")
