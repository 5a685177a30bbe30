"""Coverage of intervals for area means, over many draws from the field model's own distribution.

    python -m benchmarks answers.areas

The world is a square of tiles with a fixed basis and fixed model parameters. Each replicate draws
new weights, a new tile process jointly at rows and tiles (dense) and new noise, and computes the
posterior from the rows alone. The benchmark counts how often 95 % intervals of the areas' mean
levels cover the true means, with the joint variance and with tiles treated as independent. With
``--refits`` the whole model, including basis and parameters, is also fitted to some of the draws.
Writes JSON and a Markdown table.
"""

from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
import torch
from scipy import stats

from benchmarks.markdown import table
from benchmarks.script import Figures, Floats, options_of, write_results
from geogp.errors import NumericalError
from geogp.models.catalogue.build import build
from geogp.models.field.conditioning import condition_on
from geogp.models.field.fitted import FittedField
from geogp.models.field.parameters import WeightPosterior
from geogp.models.field.tile_sequence import tile_sequence
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.loop import fit
from geogp.models.joint.level import JointLevel, joint_level
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.rows import Rows

TILE_KM = 0.6
"""Approximate width of a tile of zoom 16 in the middle latitudes."""

CUTS = (0.0, 0.25, 0.6, 1.0)
"""Positions on both axes at which the square is cut into areas of unequal size."""

REPLICATES_AT_ONCE = 500

REACH = float(stats.norm.ppf(0.975))


@dataclass(frozen=True)
class World:
    """A square of `side`² tiles, rows on some of them in some quarters, and areas."""

    model: FittedField  # the model that is drawn from; it contains the rows
    tiles: Floats  # inputs of the tiles in the last quarter (after an earlier one), (n, 3)
    weights: Floats  # weights of the tiles in the mean, or in the change, of each area, (n, areas)
    level_factor: Floats  # factor of the joint covariance of the tile process at rows and tiles


@dataclass(frozen=True)
class Draw:
    """Targets of the model's rows (rows, count) and true levels of the tiles (n, count)."""

    y: Floats
    level: Floats


def make_world(side: int, rows: int, quarters: int, seed: int, before: int | None = None) -> World:
    """Make a world in which two thirds of the tiles have measurements, usually few.

    If `before` is the position of a quarter, the weights are those of the changes from this quarter
    to the last, and the tiles of this quarter come first.
    """
    random = np.random.default_rng(seed)
    steps = (np.arange(side) + 0.5) / side * 2 - 1
    north, east = np.meshgrid(steps, steps, indexing="ij")
    tiles = np.column_stack([east.ravel(), north.ravel(), np.ones(side**2)])
    measured = random.permutation(side**2)[: 2 * side**2 // 3]
    share = random.gamma(1.0, size=len(measured))
    pairs = random.choice(
        len(measured) * quarters,
        rows,
        replace=False,
        p=np.repeat(share / share.sum() / quarters, quarters),
    )
    x = tiles[measured[pairs // quarters]]
    x[:, 2] = np.linspace(-1, 1, quarters)[pairs % quarters]
    half = side * TILE_KM / 2
    sizes = Architecture(d=3, h=16, r=16, dtype="float64", units=(half, half, (quarters - 1) / 2))
    parameters = build("field", sizes, x, seed=seed)
    tests = random.geometric(0.15, rows).astype(np.float64)
    counts = torch.from_numpy(np.column_stack([tests, tests]))
    held = Rows(parameters.scaled(x), torch.zeros(rows).double(), counts)
    unfitted = parameters.make_fit(parameters)
    unfitted.start(held, seed, resumed=True)
    model: FittedField = unfitted.field
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        # The parameters of the tile process and the noise vary over the square.
        for head in (model.parameters.tiles.head, model.parameters.law.heads):
            head.add_(0.1 * torch.randn(head.shape, generator=generator, dtype=head.dtype))
    cell = np.searchsorted(CUTS, (tiles[:, :2] + 1) / 2) - 1
    number = cell[:, 0] * (len(CUTS) - 1) + cell[:, 1]
    weights = (number[:, None] == np.arange((len(CUTS) - 1) ** 2)).astype(np.float64)
    weights /= weights.sum(0)
    if before is not None:
        earlier = tiles * [1, 1, 0] + [0, 0, np.linspace(-1, 1, quarters)[before]]
        tiles, weights = np.concatenate([earlier, tiles]), np.concatenate([-weights, weights])
    places = np.concatenate([model.rows.x.numpy(), tiles])
    covariance = model.tile_kernel(places, places) + 1e-10 * np.eye(len(places))
    given = with_targets(model, np.zeros(rows))
    return World(given, tiles, weights, np.linalg.cholesky(covariance))


def with_targets(model: FittedField, y: Floats) -> FittedField:
    """Return a model with other standardised targets, (rows,), and the posterior given them.

    The posterior belongs to the parameters, which both models share.
    """
    rows = replace(model.rows, y=torch.from_numpy(y))
    condition_on(model.parameters, rows)
    return replace(model, rows=rows)


def draw(world: World, count: int, random: np.random.Generator) -> Draw:
    """Draw weights, tile process and noise from the model, `count` times."""
    model, held = world.model.parameters, world.model.rows
    n = len(held)
    w = random.standard_normal((model.architecture.r, count))
    u = world.level_factor @ random.standard_normal((len(world.level_factor), count))
    found = []
    with torch.no_grad():
        centre = model.mean_constant.item()
        tiles = model.scaled(world.tiles)
        parts = ((held.x, held.counts), (tiles, model.well_measured(len(tiles))))
        for (x, counts), tile in zip(parts, (u[:n], u[n:]), strict=True):
            phi, shift = model.basis(x).phi.numpy(), model.law.shift(counts).numpy()
            found.append(centre + phi @ w + tile + shift[:, None])
        noise = model.row_terms(held.x, held.counts).noise.sqrt().numpy()[:, None]
    return Draw(found[0] + noise * random.standard_normal((n, count)), found[1])


def gain(world: World, level: JointLevel) -> Floats:
    """Return the derivative of the weights' posterior mean by each target, (r, rows).

    The derivative is S (W Phi)' W, the same in all replicates. The dense matrix W whitens the rows
    of each place given near places that come earlier, as chosen by the model.
    """
    model, rows = world.model.parameters, world.model.rows
    with torch.no_grad():
        noise = model.row_terms(rows.x, rows.counts).noise.numpy()
        phi = model.basis(rows.x).phi.numpy()
    places = rows.x.numpy()  # the inputs of this world are scaled already
    covariance = world.model.tile_kernel(places, places) + np.diag(noise)
    W = np.zeros_like(covariance)
    sites = rows.sites
    for earlier, first, count in zip(rows.earlier, sites.first, sites.count, strict=True):
        given, own = earlier[earlier >= 0], np.arange(first, first + count)
        block = np.concatenate([given, own])
        factor = np.linalg.cholesky(covariance[np.ix_(block, block)])
        W[np.ix_(own, block)] = np.linalg.inv(factor)[len(given) :]
    L = level.L.numpy()
    found: Floats = L @ L.T @ (W @ phi).T @ W
    return found


def standard_errors(world: World, replicates: int, seed: int) -> dict[str, Floats]:
    """Return (estimate - truth) / sd of each area's mean, (replicates, areas), for two kinds of sd.

    ``joint`` is the sd of `JointLevel`; ``independent`` is the sd with tiles treated as
    independent. Raises the error of `estimates`.
    """
    level = uncalibrated(world)
    sds = {
        "joint": np.sqrt(level.sum_variances(world.weights)),
        "independent": np.sqrt((world.weights**2).T @ level.single_variances()),
    }
    estimate, truth = estimates(world, level, replicates, seed)
    return {name: (estimate - truth) / sd for name, sd in sds.items()}


def uncalibrated(world: World) -> JointLevel:
    """Return the joint distribution of the level, with the model's own variances."""
    return joint_level(world.model, None, world.tiles, calibrated=False)


def estimates(world: World, level: JointLevel, replicates: int, seed: int) -> tuple[Floats, Floats]:
    """Return the posterior mean and the truth of each weighted sum, (replicates, areas) each.

    The posterior is computed from the rows of each replicate; for the first replicate it is
    compared with the model's own posterior.

    Raises
    ------
    NumericalError
        If the two posteriors differ.
    """
    model, random = world.model.parameters, np.random.default_rng([seed, 1])
    learned, held = gain(world, level), world.model.rows
    every, weights = torch.eye(len(held), dtype=torch.float64), WeightPosterior(level.m, level.L)
    scaled = model.scaled(world.tiles)
    of_residuals = tile_sequence(model, held, scaled, weights, every).means
    found = []
    for start in range(0, replicates, REPLICATES_AT_ONCE):
        drawn = draw(world, min(REPLICATES_AT_ONCE, replicates - start), random)
        with torch.no_grad():
            base = model.mean_constant.item()
            phi = model.basis(held.x).phi.numpy()
            tile_phi = model.basis(scaled).phi.numpy()
            shift = model.law.shift(held.counts).numpy()
            of_level = float(model.law.shift(model.well_measured(1))[0])
        residual = drawn.y - base - shift[:, None]
        m = learned @ residual
        mean = base + of_level + tile_phi @ m + of_residuals @ (residual - phi @ m)
        if not start:
            _check(world, drawn.y[:, 0], mean[:, 0])
        found.append([(world.weights.T @ one).T for one in (mean, drawn.level)])
    estimate, truth = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return estimate, truth


def _check(world: World, y: Floats, mean: Floats) -> None:
    """Compare means of the level with the model's own means, given the targets."""
    model = with_targets(world.model, y)
    own = joint_level(model, None, world.tiles, calibrated=False).mean
    if not np.allclose(own, mean, atol=1e-8):
        raise NumericalError(
            f"means differ from those of the model by up to {np.abs(own - mean).max():.3g}."
        )


def refitted(world: World, seed: int, epochs: int) -> Figures:
    """Fit a new model, including basis and parameters, to one draw; return coverage of areas."""
    random = np.random.default_rng([seed, 2])
    drawn, held = draw(world, 1, random), world.model.rows
    x, y, counts = held.x.numpy(), drawn.y[:, 0], held.counts.numpy()
    test = random.random(len(y)) < 0.1
    data = [Data(x[rows], y[rows], *counts[rows].T) for rows in (~test, test)]
    model = build("field", world.model.architecture, data[0].x, seed=seed)
    settings = FitSettings(epochs=epochs, batch=128, learning_rate=1e-2, clip=1.0)
    fitted, _ = fit(model, *data, settings)
    level: JointLevel = joint_level(fitted, None, world.tiles)
    sd = np.sqrt(level.sum_variances(world.weights))
    error = (level.sum_means(world.weights) - world.weights.T @ drawn.level[:, 0]) / sd
    return {
        "seed": seed,
        "areas": len(error),
        "held": int((np.abs(error) < REACH).sum()),
        "median_sd": float(np.median(sd)),
    }


def coverage(errors: Floats) -> Figures:
    """Return how often 95 % intervals covered the truth, for each area and on average."""
    by_area = (np.abs(errors) < REACH).mean(0)
    return {
        "by_area": by_area.tolist(),
        "mean": float(by_area.mean()),
        "sd_of_errors": errors.std(0).tolist(),
    }


def page(result: Figures) -> str:
    """Return the Markdown table of a result."""
    joint, independent = (result["coverage"][name] for name in ("joint", "independent"))
    each = zip(result["area_tiles"], joint["by_area"], independent["by_area"], strict=True)
    lines = [(k, n, f"{own:.1%}", f"{other:.1%}") for k, (n, own, other) in enumerate(each, 1)]
    lines.append(("all", result["tiles"], f"{joint['mean']:.1%}", f"{independent['mean']:.1%}"))
    refits = "".join(
        f"\nRefitted, including basis and parameters (seed {one['seed']}): {one['held']} of "
        f"{one['areas']} areas covered.\n"
        for one in result["refits"]
    )
    return f"""# Coverage of intervals for area means under the model's own distribution

{result["replicates"]:,} replicates; {result["tiles"]} tiles, {result["rows"]:,} rows
in {result["quarters"]} quarters; made by `benchmarks/answers/areas.py`. The table has the share
of 95 % intervals for the mean level of an area that covered the true mean.

{table(("area", "tiles", "joint variance", "tiles as independent"), lines, left=())}{refits}"""


def run(
    *, side: int, rows: int, quarters: int, replicates: int, refits: int, epochs: int, seed: int
) -> Figures:
    """Simulate, and return the figures to write."""
    started = monotonic()
    world = make_world(side, rows, quarters, seed)
    errors = standard_errors(world, replicates, seed)
    return {
        "replicates": replicates,
        "tiles": len(world.tiles),
        "rows": rows,
        "quarters": quarters,
        "seed": seed,
        "area_tiles": (world.weights > 0).sum(0).tolist(),
        "coverage": {name: coverage(found) for name, found in errors.items()},
        "refits": [refitted(world, seed + k, epochs) for k in range(refits)],
        "seconds": round(monotonic() - started, 1),
    }


def main() -> None:
    """Simulate, and write JSON and table."""
    sizes = {"side": 20, "rows": 1500, "quarters": 8}
    asked = {"replicates": 10_000, "refits": 0, "epochs": 20, "seed": 0}
    options = vars(options_of(__doc__, table="areas", **sizes, **asked))
    folder = options.pop("table")
    result = run(**options)
    write_results(folder, page(result), result, "simulation")
    print(page(result))
