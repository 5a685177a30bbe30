"""The sizes that determine the shapes of a model's tensors."""

from dataclasses import dataclass
from typing import get_type_hints

import torch

from geogp.arguments import LARGEST, of_kind
from geogp.choices import one_of, whole_number
from geogp.errors import RequestError
from geogp.models.numerics.linalg import LARGEST_JITTER
from geogp.models.options import NOISES

MAX_COLUMNS = 100_000
"""Largest number of input columns, far above any useful number; more is a mistake."""

MAX_BLOCKS = 1_000
"""Largest number of blocks of a network, far above any useful number; more is a mistake."""

MAX_CLASSES = 1_000
"""Largest number of classes, far above any useful number; more is a mistake."""

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
"""The dtypes of parameters, by their names in files of models."""


@dataclass(frozen=True)
class Architecture:
    """Sizes that determine the shapes of a model's tensors.

    `d`, `h`, `r`: number of input columns, width of the network, rank.
    `blocks`: number of residual blocks of the network.
    `jitter`: relative jitter of k~_ZZ; by default, the basis chooses it.
    `columns`: names of the input columns; by default x0, x1, ...
    `dropped`: columns with the same value in all training rows; the basis does not use these.
    `units`: number of kilometres or quarters in one unit of each column, for models that measure
        distances.
    `covariates`: names of the covariates, which are the last columns. They enter the model `field`
        linearly, and are inputs of the basis of models of classes.
    `classes`: number of classes of the target; 0 if the target is a number.
    `providers`: number of the last covariates that mark the rows of one provider each. In the model
        `field`, they are also inputs of the basis, and each provider has its own tile process.

    Raises RequestError if a name is unknown, a size or the jitter is out of range, or the number of
    names or units is not the number of columns.
    """

    d: int
    h: int = 64
    r: int = 128
    blocks: int = 2
    jitter: float | None = None
    dtype: str = "float32"
    columns: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    units: tuple[float, ...] = ()
    noise: str = NOISES[0]
    covariates: tuple[str, ...] = ()
    classes: int = 0
    providers: int = 0

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Architecture).items():
            object.__setattr__(self, name, of_kind(name, getattr(self, name), kind))
        one_of("dtype", self.dtype, _DTYPES)
        one_of("noise", self.noise, NOISES)
        self._check_sizes()
        if self.jitter is not None and not 0 <= self.jitter <= LARGEST_JITTER:
            raise RequestError(
                f"expected a relative jitter from 0 to {LARGEST_JITTER:g}, found {self.jitter}."
            )
        names = self.columns or tuple(f"x{index}" for index in range(self.d))
        object.__setattr__(self, "columns", names)
        if self.units and (
            len(self.units) != self.d or not all(0 < unit <= LARGEST for unit in self.units)
        ):
            raise RequestError(
                f"expected {self.d} units above 0, one for each column, found {self.units}."
            )
        whole_number("providers", self.providers, 0, len(self.covariates))
        if len(set(names)) != self.d or not set(self.dropped) < set(names):
            raise RequestError(
                f"expected {self.d} different names of columns, and at least one column that is "
                f"not dropped, found {list(names)}, dropped {list(self.dropped)}."
            )
        if names[self.d - len(self.covariates) :] != self.covariates:
            raise RequestError(
                f"expected the covariates {list(self.covariates)} as the last of the columns, "
                f"found {list(names)}."
            )

    def _check_sizes(self) -> None:
        sizes = {name: getattr(self, name) for name in ("d", "r", "h", "blocks", "classes")}
        # LayerNorm over a single feature is constant.
        least = {"d": 1, "r": 1, "h": 2, "blocks": 0, "classes": 0}
        most = {"d": MAX_COLUMNS, "blocks": MAX_BLOCKS, "classes": MAX_CLASSES}
        if not all(least[name] <= size <= most.get(name, size) for name, size in sizes.items()):
            listed = ", ".join(f"{name} {size!s:.40}" for name, size in sizes.items())
            raise RequestError(
                f"expected whole numbers as sizes, d from 1 to {MAX_COLUMNS:,}, r of 1 or more, h "
                f"of 2 or more, blocks from 0 to {MAX_BLOCKS:,} and classes from 0 to "
                f"{MAX_CLASSES:,}, found {listed}."
            )

    @property
    def used(self) -> tuple[int, ...]:
        """Positions of the columns that the basis uses."""
        return tuple(i for i, name in enumerate(self.columns) if name not in self.dropped)

    @property
    def used_covariates(self) -> int:
        """Number of covariates that the basis uses."""
        return len(set(self.covariates) - set(self.dropped))

    @property
    def used_providers(self) -> int:
        """Number of providers whose columns the basis uses."""
        return len(set(self.columns[self.d - self.providers :]) - set(self.dropped))

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return _DTYPES[self.dtype]

    @property
    def widest(self) -> int:
        """Number of columns of the widest array of a step, for estimates of memory."""
        return max(self.r, 4 * self.h * max(self.blocks, 1))
