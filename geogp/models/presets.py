"""The presets of each family of models; a preset sets the sizes and the schedule of a fit."""

from dataclasses import dataclass, fields, replace
from typing import Any

from geogp.choices import one_of
from geogp.models.fit_settings import FitSettings
from geogp.models.names import find_model
from geogp.models.options import Placement, Weights


@dataclass(frozen=True, kw_only=True)
class Preset(FitSettings):
    """Sizes and schedule of a fit.

    `h`, `r`: see `Architecture`.
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
    least_steps: int
    placement: Placement
    split: str
    refit: bool
    noise_start: float = 0.5
    other_predictions: int = 3_000_000

    @property
    def settings(self) -> FitSettings:
        """The settings of the training."""
        return FitSettings(
            **{field.name: getattr(self, field.name) for field in fields(FitSettings)}
        )

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
"""The smallest model with the shortest training, for a first map."""

_STANDARD = replace(
    _QUICK, h=128, r=256, epochs=150, learning_rate=1e-2, split="random,tiles,blocks", refit=True
)
"""A wider model, tested on three splits, whose map comes from a fit to nearly all rows."""

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
"""Widths and schedule of Zhu, Yuchi and Xie, appendix B.3."""

PRESETS = {"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER}
"""The presets, by name, for the models from the papers."""

_ELBO_WEIGHTS = Weights(alpha=0.0, beta=1.0)
"""The weights in an evidence lower bound, which has no trace term and the whole KL term."""


def _varied(base: dict[str, Preset], *changes: dict[str, Any], **common: Any) -> dict[str, Preset]:
    """Return presets with changes that are common to all, and the changes of each preset."""
    pairs = zip(base.items(), changes, strict=True)
    return {name: replace(preset, **common, **change) for (name, preset), change in pairs}


FIELD_PRESETS = _varied(
    PRESETS,
    # The predictions of this model are slow: 4,000 in a second of a core.
    {"epochs": 4, "other_predictions": 500_000},
    {"epochs": 12},
    {"epochs": 40},
    learning_rate=1e-2,
    decay="cosine",
    noise_rate=3.0,
    clip=1.0,
    weights=_ELBO_WEIGHTS,
)
"""Presets of the field model; its epochs learn more and take longer than those of other models."""

KERNEL_PRESETS = _varied(
    PRESETS,
    {"r": 500, "epochs": 3, "batch": 20_000, "optimiser": "lbfgs"},
    {"r": 1000, "epochs": 4, "batch": 60_000, "optimiser": "lbfgs"},
    {"r": 500, "epochs": 50, "batch": 1_000_000},
    least_steps=0,
    placement="pivoted",
    noise_start=0.5,
)
"""The presets of models whose kernel has few parameters. An epoch is ten iterations of L-BFGS on a
part of the rows. ``paper`` has the schedule of the mixed-kernel paper: fifty epochs of Adam with a
learning rate of 1e-3.
"""

COUNT_PRESETS = _varied(
    PRESETS,
    {"epochs": 12, "learning_rate": 1e-2},
    {"epochs": 20, "learning_rate": 1e-2},
    {"epochs": 60, "learning_rate": 3e-3},
    batch=2048,
    decay="cosine",
    clip=1.0,
    weights=_ELBO_WEIGHTS,
)
"""The presets of models of counts; these have one row for each tile and quarter."""

CLASS_PRESETS = _varied(
    PRESETS,
    {"r": 128, "epochs": 60},
    {"r": 256, "epochs": 120},
    {"r": 400, "epochs": 400},
    batch=128,
    least_steps=0,
    learning_rate=2e-3,
    decay="cosine",
    placement="kmeans++",
    weights=_ELBO_WEIGHTS,
)
"""The presets of models of classes. ``paper`` has the 400 inducing points of the Scale paper."""

CLASS_MAP_PRESETS = _varied(
    CLASS_PRESETS,
    *({"epochs": 12}, {"epochs": 20}, {"epochs": 60}),
    batch=1024,
    learning_rate=5e-3,
    clip=1.0,
)
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
