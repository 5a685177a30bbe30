"""Classes: the technology of the network that a phone finds, with honest probabilities.

The classes are simulated, so that the true probabilities are known: a smooth score for each class,
and a class drawn from the softmax of the scores.
"""

import matplotlib.pyplot as plt
import numpy as np

import geogp

random = np.random.default_rng(0)
names = np.array(["3G", "4G", "5G"])


def true_probabilities(places):
    """Return the probability of each class at places, (n, 3)."""
    east, north = places.T
    scores = np.column_stack([-np.cos(east / 12), np.sin(north / 10), np.cos((east + north) / 9)])
    weights = np.exp(3 * scores)
    return weights / weights.sum(1, keepdims=True)


places = random.uniform((0, 0), (80, 60), (3000, 2))
truth = true_probabilities(places)
codes = (random.uniform(size=(len(places), 1)) > truth.cumsum(1)).sum(1)
train, test = slice(0, 2000), slice(2000, None)

model = geogp.ClassGP().fit(places[train], names[codes[train]])
law = model.predict_distribution(places[test])
rows = np.arange(len(codes[test]))
shares = np.bincount(codes[train]) / len(codes[train])
print(f"accuracy {model.score(places[test], names[codes[test]]):.3f}")
print(f"log score {-np.log(law.probabilities[rows, codes[test]]).mean():.3f}")
print(f"... of the true probabilities {-np.log(truth[test][rows, codes[test]]).mean():.3f}")
print(f"... of the shares of the classes {-np.log(shares[codes[test]]).mean():.3f}")
print(f"mean error of a probability {np.abs(law.probabilities - truth[test]).mean():.3f}")

x, y = np.meshgrid(np.linspace(0, 80, 120), np.linspace(0, 60, 90))
cells = np.column_stack([x.ravel(), y.ravel()])
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
shown = {"predicted": model.predict_proba(cells), "true": true_probabilities(cells)}
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    axis.imshow(values.reshape(*x.shape, 3), origin="lower", extent=(0, 80, 0, 60))
    axis.set_title(title)
figure.suptitle("Probabilities: red 3G, green 4G, blue 5G")
figure.savefig("classes.png")
