"""Simulation of Ookla tiles with a known truth: places, tests and measurements.

`truth.py` contains the statistical model of the values, and `oracles.py` predictions that use this
model. `simulation_files.py` writes a simulation as files that geogp can read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import scipy.optimize
import shapely
from numpy.typing import NDArray

from geogp.errors import RequestError
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.made_up_towns import wavy_ellipse
from geogp.geodata.simulation.oracles import column_of
from geogp.geodata.simulation.truth import (
    Grid,
    PlanePlaces,
    TruthLaw,
    field,
    laws_of,
    measurement_variance,
    places_of,
    random_field,
    tile_process,
)
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.plausibility import LIMITS
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.targets import find_target

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

SINGLE_SHARE = 0.285  # expected share of rows with a single test; in Puerto Rico it is 0.25 to 0.32

_URBAN_TILE = 0.6  # added to the log rate of tests in an urban tile
_URBAN_CORE = 1.2  # added to the log rate per unit of urbanity
_UNEVEN = 0.5  # standard deviation of the smooth part of the log rate
_SPREAD = 1.0  # standard deviation of the independent part of each tile
_LIVELY = 2.5  # increase in the log odds of being active per unit of log rate
_DORMANT = 8.0  # subtracted from the log rate of a dormant tile
_BUSTLE = 2.0  # shape of the gamma factor that varies a tile's rate between quarters
_MAX_EXPECTED = 1000.0  # largest expected number of tests of a tile in a quarter
_DEVICES = 0.42  # probability that each test after the first is from another device


@dataclass(frozen=True)
class Simulation:
    """Simulated tiles, their true values, and the model of each target (`laws`).

    `tiles` has one row per tile and quarter, sorted by quarter and quadkey, with the columns
    quarter (index), quadkey (uint64 code), tests, devices, avg_d_kbps, avg_u_kbps, avg_lat_ms
    (int64). `truth` has the same rows, with the columns quadkey, quarter (label), longitude,
    latitude (degrees) and tests. For download, `truth` also has y (log10 Mbps of the recorded
    integer), field_true, tile_true and sd_measurement_true. For other targets, these names end in
    ``_upload`` or ``_latency``.
    """

    tiles: pd.DataFrame
    truth: pd.DataFrame
    laws: dict[str, TruthLaw]
    seed: int
    service: str
    quarters: tuple[int, ...]


def simulate(
    region: Region, *, rows: int, quarters: Sequence[int], seed: int, service: str = "mobile"
) -> Simulation:
    """Return simulated tiles with a known truth inside a region.

    The number of tests of a tile in a quarter has a gamma-Poisson distribution, whose mean is the
    tile's rate. A tile with a test has a row. Rates are log-normal, and far higher in urban areas.
    Most rural tiles are dormant: their rates are much lower. The level of the rates and the share
    of dormant tiles are chosen so that the expected number of rows is `rows`, and a share
    `SINGLE_SHARE` of the rows has a single test. Then surplus rows are dropped at random, or
    missing rows are added: single tests at random places. Recorded values are whole kbps or
    ms, from 1 to the limits for mobile networks in `plausibility.py`.

    The result has exactly `rows` rows over all `quarters` (increasing indices). `service` changes
    only names of files. Raises RequestError if `rows` is more than tiles times quarters, or the
    region is too small or large.
    """
    quarters = tuple(quarters)
    grid = Grid.of(region)
    if rows > len(grid.tiles) * len(quarters):
        raise RequestError(
            f"expected at most {len(grid.tiles) * len(quarters)} rows ({len(grid.tiles)} tiles "
            f"in {region.name} times {len(quarters)} quarters), found {rows}. Choose fewer rows."
        )
    laws = laws_of(grid, seed)
    places = places_of(region, grid, laws["download"].urban_smoothing_km)
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(1 + len(laws))]
    drawn = _count_tests(grid, places, rows, quarters, streams[0])
    codes = quadkeys.tiles_to_codes(grid.tiles.column, grid.tiles.row)[drawn.where]
    longitude, latitude = (degrees[drawn.where] for degrees in grid.tiles.centres)
    tiles: dict[str, object] = {
        "quarter": drawn.quarters[drawn.when],
        "quadkey": codes,
        "tests": drawn.tests,
        "devices": 1 + streams[0].binomial(drawn.tests - 1, _DEVICES),
    }
    truth: dict[str, object] = {
        "quadkey": quadkeys.format_quadkeys(codes).astype(object),
        "quarter": np.array([quarter_label(q) for q in quarters], dtype=object)[drawn.when],
        "longitude": longitude,
        "latitude": latitude,
        "tests": drawn.tests,
    }
    for stream, law in zip(streams[1:], laws.values(), strict=True):
        recorded, columns = _measure(law, grid, places, drawn, stream)
        tiles[find_target(law.target).columns[0]] = recorded
        truth |= columns
    return Simulation(pd.DataFrame(tiles), pd.DataFrame(truth), laws, seed, service, quarters)


def simple_region() -> Region:
    """Return the made-up demo region: a wavy coast, an island, a lake and five urban areas.

    The region measures about 1.0 by 0.8 degrees, around longitude -90 and latitude 32.
    """
    land = wavy_ellipse(-90.03, 32.0, 0.44, 0.37, waves=(0.04, 5, 0.02, 11))
    lake = wavy_ellipse(-90.16, 32.14, 0.05, 0.035, waves=(0.10, 3, 0.05, 7))
    island = wavy_ellipse(-89.52, 31.69, 0.045, 0.05, waves=(0.12, 4, 0.05, 9))
    boundary = shapely.union_all([land.difference(lake), island])
    towns = [  # longitude, latitude, half width, half height
        (-90.06, 31.98, 0.145, 0.11),
        (-89.77, 32.17, 0.075, 0.062),
        (-90.29, 31.82, 0.055, 0.06),
        (-90.30, 32.13, 0.04, 0.03),
        (-89.78, 31.80, 0.03, 0.025),
    ]
    urban = shapely.union_all([wavy_ellipse(*town, waves=(0.12, 4, 0.08, 9)) for town in towns])
    return replace(Region.from_geometry("DEMO", "Demo", boundary, urban, 2020), invented=True)


@dataclass(frozen=True)
class _Rows:
    """Simulated rows in order; `when` and `where` are the indices of their quarters and tiles."""

    quarters: Counts
    when: Counts
    where: Counts
    tests: Counts


def _count_tests(
    grid: Grid, places: PlanePlaces, rows: int, quarters: tuple[int, ...], rng: np.random.Generator
) -> _Rows:
    rate = _rates(places, rows / len(quarters), rng)
    tests = np.empty((len(quarters), len(rate)), np.int32)
    for counts in tests:
        counts[:] = rng.poisson(rate * rng.gamma(_BUSTLE, 1 / _BUSTLE, len(rate)))
    flat = tests.reshape(-1)
    present = np.flatnonzero(flat)
    if len(present) > rows:
        flat[rng.permutation(present)[rows:]] = 0
    elif len(present) < rows:
        _add_single_tests(tests, rate, rows - len(present), rng)
    order = np.argsort(quadkeys.tiles_to_codes(grid.tiles.column, grid.tiles.row))
    when, rank = np.nonzero(tests[:, order])
    where = order[rank]
    return _Rows(np.asarray(quarters), when, where, tests[when, where].astype(np.int64))


def _add_single_tests(
    tests: NDArray[np.int32], rate: Floats, missing: int, rng: np.random.Generator
) -> None:
    """Change `missing` random zeros in `tests` to 1, drawn in proportion to the rates.

    Each zero gets a random key with a Gumbel distribution, and the zeros with the largest keys are
    drawn. Keys are computed quarter by quarter, because all keys would need far more memory.
    """
    best, where = np.empty(0), np.empty(0, np.int64)
    for quarter, counts in enumerate(tests):
        empty = np.flatnonzero(counts == 0)
        keys = np.append(best, np.log(rate[empty]) + rng.gumbel(size=len(empty)))
        places = np.append(where, quarter * len(rate) + empty)
        chosen = np.argsort(-keys)[:missing]
        best, where = keys[chosen], places[chosen]
    tests.reshape(-1)[where] = 1


def _rates(places: PlanePlaces, rows: float, rng: np.random.Generator) -> Floats:
    """Return the expected number of tests of each tile in a quarter, shape (tiles,).

    All tiles have a log-normal rate. The place and a random number decide whether a tile is active
    or dormant. The share of active tiles is chosen so that the share of rows with one test is
    `SINGLE_SHARE`.
    """
    smooth = _UNEVEN * random_field(places, lengthscale_km=8.0, seed=int(rng.integers(2**31)))
    base = _URBAN_TILE * places.urban + _URBAN_CORE * places.urbanity + smooth
    own = base + _SPREAD * rng.standard_normal(len(base))
    rank = np.argsort(np.argsort(-(_LIVELY * base + rng.logistic(size=len(base)))))
    place_in_line = rank / len(base)
    wanted = min(rows / len(base), 1 - 1e-9)
    some = slice(None, None, max(1, len(base) // 20_000))

    def single_excess(lively: float) -> float:
        log_rate = own[some] - _DORMANT * (place_in_line[some] >= lively)
        rate = _scaled_rates(log_rate, wanted)
        single = rate * (1 + rate / _BUSTLE) ** (-_BUSTLE - 1)
        return float(single.sum() / _present(rate).sum()) - SINGLE_SHARE

    # More active tiles mean more single tests. If no share of active tiles gives `SINGLE_SHARE`,
    # the end of the range that comes nearer is taken.
    low, high = wanted, 1.0
    if single_excess(high) < 0:
        lively = high
    elif single_excess(low) > 0:
        lively = low
    else:
        lively = float(scipy.optimize.brentq(single_excess, low, high, xtol=1e-4))
    return _scaled_rates(own - _DORMANT * (place_in_line >= lively), wanted)


def _scaled_rates(log_rate: Floats, wanted: float) -> Floats:
    """Return capped rates, scaled so that the expected share of tiles with a row is `wanted`."""
    low, high = -40.0, 40.0
    most = np.log(_MAX_EXPECTED)
    for _ in range(50):
        middle = (low + high) / 2
        share = _present(np.exp(np.minimum(log_rate + middle, most))).mean()
        low, high = (middle, high) if share < wanted else (low, middle)
    return np.asarray(np.exp(np.minimum(log_rate + high, most)), np.float64)


def _present(rate: Floats) -> Floats:
    """Return the probability of at least one test, 1 - (1 + rate / shape)^-shape."""
    return np.asarray(1 - (1 + rate / _BUSTLE) ** -_BUSTLE, np.float64)


def _measure(
    law: TruthLaw,
    grid: Grid,
    places: PlanePlaces,
    rows: _Rows,
    rng: np.random.Generator,
) -> tuple[Counts, dict[str, Floats]]:
    """Return the recorded integers of a target, and the target's columns of `Simulation.truth`."""
    here = places.take(rows.where)
    tile = np.empty(len(rows.when))
    for quarter, effect in enumerate(tile_process(law, grid.shape, rows.quarters.tolist(), rng)):
        now = rows.when == quarter
        tile[now] = effect[grid.down[rows.where[now]], grid.across[rows.where[now]]]
    smooth = field(law, here, rows.quarters[rows.when])
    sd = np.sqrt(measurement_variance(law, here, rows.tests))
    value = smooth + tile + sd * rng.standard_normal(len(tile))
    target = find_target(law.target)
    most = LIMITS["mobile"][target.columns[0]].most
    recorded = np.clip(np.rint(10**value * target.divisor), 1, most).astype(np.int64)
    columns = {
        "y": np.log10(recorded / target.divisor),
        "field_true": smooth,
        "tile_true": tile,
        "sd_measurement_true": sd,
    }
    return recorded, {column_of(name, law.target): values for name, values in columns.items()}
