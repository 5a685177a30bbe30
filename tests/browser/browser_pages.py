"""Pages for the tests in a real browser, made from the synthetic worlds of the map tests."""

import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from shapely.geometry import MultiPolygon, box

sys.path.insert(0, str(Path(__file__).parents[1] / "maps"))

from maps_worlds import (
    World,
    irregular_region,
    make_joint,
    make_slices,
    make_world,
    smooth_prediction,
)

from geogp.distributions.class_prediction import ClassPrediction
from geogp.distributions.count_prediction import predict_counts
from geogp.distributions.student_sum import NormalPlusStudent
from geogp.geodata.places.layers import PolygonLayer
from geogp.geodata.tiles.targets import target_names
from geogp.geodata.tiles.thresholds import thresholds_of
from geogp.geodata.tiles.tiers import tiers_of
from geogp.maps.grid import build_grid
from geogp.maps.page.interactive_page import map_page
from geogp.maps.page.kernel_basis import coarser, kernel_basis
from geogp.maps.page.kernel_error import KernelFeatures
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap
from geogp.maps.target_quantities import quantity_of

HOSTILE = (
    '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>`${1}` {{2}}'
)


DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@dataclass(frozen=True)
class Made:
    """A page and what it was made from."""

    world: World
    content: PageContent
    data: dict[str, Any]
    page: str


def squares(region, name, names):
    """Cut a region into as many columns as there are names."""
    west, south, east, north = region.bounds
    edges = pairwise(np.linspace(west, east, len(names) + 1))
    shapes = [region.boundary.intersection(box(low, south, high, north)) for low, high in edges]
    return PolygonLayer(name, tuple(names), tuple(shapes))


def towns(region, names):
    parts = MultiPolygon(region.strata.area).geoms
    return PolygonLayer("urban area", tuple(names), tuple(parts))


def waves(tiles):
    """Features of a smooth kernel of rank 12."""
    longitude, latitude = tiles.centres
    columns = [
        np.cos(3 * a * (longitude + 66.5) + 2 * b * (latitude - 18.2) + phase)
        for a in (1, 2)
        for b in (-1, 0, 1)
        for phase in (0.0, np.pi / 2)
    ]
    return 0.2 * np.column_stack(columns) / np.arange(1, 13)


def make_page(
    *,
    zoom=14,
    name="Isla",
    county="Ponce",
    past=2,
    target="download",
    df=None,
    up=0,
    invented=False,
    together=None,
    **options,
) -> Made:
    """Return a page of a synthetic region with `past` earlier quarters, `up` zooms coarser.

    With `together`, such as "download,upload", the page has tiers of these targets.
    With `df`, the law is that of a normal and a Student-t part with so many degrees of freedom.
    """
    region = replace(irregular_region(name), invented=invented)
    world = make_world(region, zoom, target)
    if df is not None:
        p = world.prediction
        shape = NormalPlusStudent(p.function_variance, p.noise_variance, df)
        world = replace(world, prediction=replace(p, shape=shape))
    coarse = coarser(world.tiles, zoom - up)
    quarters = [
        QuarterMap(f"2023Q{k + 1}", coarse, smooth_prediction(coarse, seed=k + 1))
        for k in range(past)
    ]
    quarters.append(QuarterMap(f"2023Q{past + 1}", world.tiles, world.prediction))
    model = KernelFeatures(waves, lambda one, other: waves(one) @ waves(other).T)
    content = PageContent(
        region,
        world.tiles,
        f"{name}: {target} speed, mean of 5 tests, {quarters[-1].label}",
        "averages of 5 tests",
        quarters,
        past,
        make_slices(world.tiles),
        kernel_basis(world.tiles, model),
        thresholds_of(target),
        squares(region, "county", ["Adjuntas", county, "Mayagüez"]),
        towns(region, ["Ponce", "San Juan"]),
        averages(world.measured, past + 1),
        *(together_of(world, together) if together else ()),
    )
    grid = world.grid.assign({f"level_{quantity_of(target).suffix}": level_of(world.grid, target)})
    data = page_data(grid, content)
    page = map_page(data, region, content.counties, **{"notes": ["A note."]} | options)
    return Made(world, content, data, page)


def together_of(world, targets):
    """Return joint predictions of targets, and the tiers of a mobile map of them."""
    names = target_names(targets)
    return make_joint(world.tiles, world.prediction, names), tiers_of(targets)


def level_of(grid, target):
    """Return levels that differ from the medians by another factor in each tile."""
    median = grid[f"median_{quantity_of(target).suffix}"]
    return median * np.linspace(1.1, 1.9, median.size).reshape(median.shape)


def averages(measured, quarters):
    """Return averages of the tiles with tests, (quarters, m), with gaps."""
    random = np.random.default_rng(3)
    values = random.lognormal(3, 0.5, (quarters, (measured > 0).sum()))
    return np.where(random.random(values.shape) < 0.4, np.nan, values)


def make_counts() -> Made:
    """Return a page of numbers of tests, with an earlier quarter two zooms coarser."""

    def law(tiles, seed):
        longitude, latitude = tiles.centres
        rate = 1 + 2 * np.sin(9 * longitude + seed) * np.cos(7 * latitude)
        return predict_counts(rate, np.zeros(len(tiles)), np.full(len(tiles), 0.5))

    return make_arrays(law, "tests")


def make_tiers(third=0.0) -> Made:
    """Return a page of tiers of speed, with an earlier quarter two zooms coarser.

    `third` is added to the score of the third tier.
    """

    def law(tiles, seed):
        longitude, latitude = tiles.centres
        waves = [np.sin((5 + k) * longitude + seed) * np.cos(7 * latitude + k) for k in range(4)]
        mean = 2 * np.column_stack(waves) + [0, 0, third, 0]
        return ClassPrediction(mean[None], np.full((1, *mean.shape), 0.3), np.array([np.inf]))

    return make_arrays(law, "tier")


def make_arrays(law, target) -> Made:
    """Return a page whose layers are arrays, from a function that predicts tiles."""
    region = irregular_region()
    tiles = region.tiles(13)
    coarse = coarser(tiles, 11)
    prediction = law(tiles, 0)
    measured = np.where(np.arange(len(tiles)) % 3 == 0, 4, 0)
    grid = build_grid(
        region,
        tiles,
        prediction,
        target=target,
        distance_km=np.where(tiles.centres[0] > -66.0, 9.0, 0.0),
        far_km=5.0,
        measured=measured,
        stratum=region.stratum(*tiles.centres),
    )
    quarters = [
        QuarterMap("2023Q3", coarse, law(coarse, 1)),
        QuarterMap("2023Q4", tiles, prediction),
    ]
    slices = make_slices(tiles)
    content = PageContent(region, tiles, "Tests", f"numbers of {target}", quarters, 1, slices)
    data = page_data(grid, content)
    world = World(region, tiles, prediction, measured, measured, measured, grid)
    return Made(world, content, data, map_page(data, region))
