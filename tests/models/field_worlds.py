"""Fields with given parameters, made of rows without a fit, and the dense conditioning on rows."""

from dataclasses import replace

import numpy as np
import torch

from geogp.models.catalogue.build import build
from geogp.models.field.conditioning import condition_on, information_in
from geogp.models.field.fit import FieldFit
from geogp.models.field.fitted import FittedField
from geogp.models.field.home import Home
from geogp.models.field.learned_home import at_rows
from geogp.models.field.parameters import FieldParameters, WeightPosterior
from geogp.models.field.predictive_law import Errors
from geogp.models.process.architecture import Architecture
from geogp.models.process.posteriors import posterior_of
from geogp.models.process.rows import Rows

SIZES = Architecture(d=3, h=6, r=5, blocks=1, dtype="float64", units=(6.0, 6.0, 4.0))


def field_of(parameters: FieldParameters, rows: Rows, seed: int = 0) -> FittedField:
    """Return a field of parameters and rows that has learned nothing else."""
    fit = FieldFit(parameters)
    fit.start(rows, seed, resumed=True)
    return fit.field


def weights_given_rows(field: FittedField) -> WeightPosterior:
    """Return the posterior of the weights given the rows, in double precision."""
    return WeightPosterior(*posterior_of(information_in(field.parameters, field.rows)))


def errors_apart(errors: np.ndarray, covariates: np.ndarray) -> Errors:
    """Errors at held-out rows, each of which is a group of its own."""
    n = len(errors)
    return Errors(errors, covariates, np.ones(n, bool), np.zeros(n, bool), np.arange(n))


def grid(side: int, time: float = 1.0) -> np.ndarray:
    """Tiles of a square, (side², 3)."""
    steps = (np.arange(side) + 0.5) / side * 2 - 1
    east, north = np.meshgrid(steps, steps)
    return np.column_stack([east.ravel(), north.ravel(), np.full(side**2, time)])


def of_provider(x: np.ndarray, number: int) -> np.ndarray:
    """The inputs of tiles of the first or the second provider, (n, 5)."""
    return np.column_stack([x, np.tile(np.eye(2)[number], (len(x), 1))])


def make_field(
    side: int, n: int, device: str = "cpu", seed: int = 0, *, by_provider: bool = False
) -> FittedField:
    """A field with random parameters, given n rows on the tiles of a square."""
    random = np.random.default_rng(seed)
    places = grid(side)
    x = places[random.integers(0, len(places), n)]
    x[:, 2] = random.choice(np.linspace(-1, 1, 5), n)
    sizes = SIZES
    if by_provider:
        x = np.concatenate([of_provider(x[: n // 2], 0), of_provider(x[n // 2 :], 1)])
        names = "east", "north", "time", "a", "b"
        sizes = replace(SIZES, d=5, units=(*SIZES.units, 1.0, 1.0), columns=names)
        sizes = replace(sizes, covariates=names[3:], providers=2)
    parameters = build("field", sizes, x, seed=2)
    assert isinstance(parameters, FieldParameters)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in parameters.named_parameters():
            if not name.startswith("basis"):
                value.add_(0.3 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
        parameters.y_mean.fill_(3.0)
        parameters.y_sd.fill_(0.5)
    y, tests = random.standard_normal(n), random.integers(1, 30, n).astype(float)
    counts = torch.from_numpy(np.column_stack([tests, np.ceil(0.7 * tests)]))
    field = field_of(parameters, Rows(parameters.scaled(x), torch.from_numpy(y), counts))
    condition_on(parameters, field.rows)
    return field.to(torch.device(device))


def make_field_with_height(n: int) -> FittedField:
    """A field given n rows at random places and three times, with a covariate."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (n, 4)) * [1, 1, 1, 3]
    x[:, 2] = x[:, 2].round()
    names = "east", "north", "time", "height"
    sizes = replace(SIZES, d=4, units=(*SIZES.units, 1.0), columns=names, covariates=names[3:])
    parameters = build("field", sizes, x, seed=2)
    assert isinstance(parameters, FieldParameters)
    return field_of(parameters, zeros_at(parameters, x))


def zeros_at(parameters: FieldParameters, x: np.ndarray) -> Rows:
    """Rows of single tests with the value 0."""
    n = len(x)
    return Rows(parameters.scaled(x), torch.zeros(n).double(), torch.ones(n, 2).double())


def with_drift(field: FittedField, variance: float, trend: float) -> FittedField:
    """The field with a variance and a squared mean of the change of the level per quarter."""
    return replace(field, drift=torch.tensor([variance, trend], dtype=torch.float64))


def with_home(
    field: FittedField, range_km: float, variance: float, **others: float | bool
) -> FittedField:
    """The field that far from its rows goes to its mean, or to a linear trend."""
    home = replace(Home.nowhere(field.rows.x), range_km=range_km, variance=variance, **others)
    home = at_rows(home, field.rows)
    return replace(field, rows=replace(field.rows, home=home))


def dense(model: FittedField, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the level at tiles by one dense conditioning on all rows."""
    held, parameters, sd = model.rows, model.parameters, model.y_sd.item()
    rows = held.x.cpu().numpy()
    K, cross, own = (
        model.kernel(a, b) + model.tile_kernel(a, b) for a, b in ((rows, rows), (x, rows), (x, x))
    )
    level = parameters.well_measured(len(x))
    with torch.no_grad():
        noise = parameters.row_terms(held.x, held.counts).noise.cpu().numpy() * sd**2
        base = model.y_mean.item() + sd * parameters.mean_constant.item()
        shifts = [sd * parameters.law.shift(t).cpu().numpy() for t in (held.counts, level)]
    A = K + np.diag(noise)
    y = model.y_mean.item() + sd * held.y.cpu().numpy()
    mean = base + shifts[1] + cross @ np.linalg.solve(A, y - base - shifts[0])
    return mean, own - cross @ np.linalg.solve(A, cross.T)
