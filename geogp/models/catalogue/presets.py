"""The presets of each family of models; a preset sets the sizes and the schedule of a fit."""

from dataclasses import dataclass, replace
from typing import Literal

from geogp.choices import one_of
from geogp.models.catalogue.model_names import find_model
from geogp.models.core.options import Optimiser, Placement, Weights


@dataclass(frozen=True)
class Preset:
    """Sizes and schedule of a fit; other attributes are those of `Architecture`, `FitSettings`.

    `least_steps`: smallest number of steps in an epoch. If there are few rows, the batch becomes
        smaller to allow this. If `least_steps` is 0, the batch does not change.
    `placement`, `noise_start`: see `build`.
    `split`: the default of ``--split``.
    `refit`: whether the map comes from one more fit, to all rows except a validation tenth.
        Otherwise, the map comes from the fit of the random split.
    `other_predictions`: largest number of predictions for quarters other than that of the map.
    """

    h: int
    r: int
    epochs: int
    batch: int
    least_steps: int
    learning_rate: float
    decay: Literal["cosine", "constant"]
    placement: Placement
    weights: Weights
    split: str
    refit: bool
    head_rate: float = 1.0
    noise_rate: float | None = None
    clip: float | None = None
    average: float = 0.0
    noise_start: float = 0.5
    optimiser: Optimiser = "adamw"
    other_predictions: int = 3_000_000

    def batch_for(self, n: int) -> int:
        """Return the rows per step for n training rows: a power of 2 from 32 to `batch`."""
        if not self.least_steps:
            return min(self.batch, n)
        most = max(32, n // self.least_steps)
        return min(self.batch, 1 << (most.bit_length() - 1))

    def learning_rate_for(self, batch: int) -> float:
        """Return the learning rate, multiplied by the square root of `batch` / `self.batch`."""
        return float(self.learning_rate * min(1.0, batch / self.batch) ** 0.5)


_QUICK = Preset(
    h=64,
    r=128,
    epochs=80,
    batch=1024,
    least_steps=100,
    learning_rate=2e-2,
    decay="cosine",
    placement="farthest",
    weights=Weights(alpha=0.01, beta=0.01),
    split="random",
    refit=False,
)
_STANDARD = replace(_QUICK, h=128, r=256, epochs=150, learning_rate=1e-2, split="both", refit=True)
# Widths and schedule are those of Zhu, Yuchi and Xie, appendix B.3.
_PAPER = replace(
    _STANDARD,
    h=256,
    r=1024,
    epochs=400,
    least_steps=1,
    learning_rate=1e-3,
    decay="constant",
    placement="uniform",
    weights=Weights(alpha=0.1, beta=0.01),
    noise_start=1e-2,
)

PRESETS = {"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER}
"""The presets, by name, for the models from the papers."""

FIELD_PRESETS = {
    name: replace(
        preset,
        epochs=epochs,
        learning_rate=1e-2,
        decay="cosine",
        noise_rate=3.0,
        clip=1.0,
        weights=Weights(alpha=0.0, beta=1.0),
        # The predictions of this model are slow: some thousand in a second.
        other_predictions=other,
    )
    for (name, preset), epochs, other in zip(
        PRESETS.items(), (4, 12, 40), (20_000, 3_000_000, 3_000_000), strict=True
    )
}
"""Presets of the field model; its epochs learn more and take longer than those of other models."""

KERNEL_PRESETS = {
    name: replace(
        preset,
        r=r,
        epochs=epochs,
        batch=batch,
        least_steps=0,
        placement="pivoted",
        optimiser="lbfgs",
        noise_start=0.5,
    )
    for (name, preset), r, epochs, batch in zip(
        PRESETS.items(), (500, 1000, 500), (3, 4, 50), (20_000, 60_000, 1_000_000), strict=True
    )
}
"""The presets of models whose kernel has few parameters. An epoch is ten iterations of L-BFGS on a
part of the rows. ``paper`` has the schedule of the mixed-kernel paper: fifty epochs of Adam with a
learning rate of 1e-3.
"""

KERNEL_PRESETS["paper"] = replace(KERNEL_PRESETS["paper"], optimiser="adamw")

COUNT_PRESETS = {
    name: replace(
        preset,
        epochs=epochs,
        batch=batch,
        learning_rate=rate,
        decay="cosine",
        clip=1.0,
        weights=Weights(alpha=0.0, beta=1.0),
    )
    for (name, preset), (epochs, batch, rate) in zip(
        PRESETS.items(), ((12, 2048, 1e-2), (20, 2048, 1e-2), (60, 2048, 3e-3)), strict=True
    )
}
"""The presets of models of counts; these have one row for each tile and quarter."""

CLASS_PRESETS = {
    name: replace(
        preset,
        r=r,
        epochs=epochs,
        batch=128,
        least_steps=0,
        learning_rate=2e-3,
        decay="cosine",
        placement="kmeans++",
        weights=Weights(alpha=0.0, beta=1.0),
    )
    for (name, preset), r, epochs in zip(
        PRESETS.items(), (128, 256, 400), (60, 120, 400), strict=True
    )
}
"""The presets of models of classes. ``paper`` has the 400 inducing points of the Scale paper."""

CLASS_MAP_PRESETS = {
    name: replace(preset, r=r, epochs=epochs, batch=1024, learning_rate=5e-3, clip=1.0)
    for (name, preset), r, epochs in zip(
        CLASS_PRESETS.items(), (128, 256, 400), (12, 20, 60), strict=True
    )
}
"""The presets of models of classes on a map, which has many more rows than other tables."""

PRESETS_OF = {
    "deep": PRESETS,
    "field": FIELD_PRESETS,
    "kernel": KERNEL_PRESETS,
    "count": COUNT_PRESETS,
    "class": CLASS_MAP_PRESETS,
}
"""The presets of each family of models."""


def find_preset(name: str, model: str) -> Preset:
    """Return a preset for a model; raise RequestError if one of them is unknown."""
    one_of("preset", name, PRESETS)
    return PRESETS_OF[find_model(model).family][name]
