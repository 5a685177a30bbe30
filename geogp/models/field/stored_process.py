"""The process of the field model, and the stored rows: means, covariances, neighbours.

The equations, the training and the prediction are in `network.py`.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.arguments import numbers_of
from geogp.errors import DataError, RequestError
from geogp.models.field.blocks import HeldRows, RowTerms, with_providers
from geogp.models.field.measurement import MeasurementLaw
from geogp.models.field.near_network import NearNetworks
from geogp.models.field.near_rows import WeightPosterior
from geogp.models.field.near_summaries import Measurements, TileSums
from geogp.models.field.predictive_law import PredictiveLaw, no_law
from geogp.models.field.tile_process import TileProcess
from geogp.models.field.vecchia import (
    PLACE_ROWS,
    PREDICTION_PLACES,
    PREDICTION_ROWS,
    TRAINING_PLACES,
    NearSites,
    Sites,
    distance_to_others,
    earlier_rows,
    near_places,
)
from geogp.models.numerics.arrays import as_floats, check_devices
from geogp.models.numerics.devices import CHUNK, rows_at_once
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import LowRankProcess, Rows
from geogp.models.process.posteriors import VariationalPosterior

Floats = NDArray[np.float64]

LAW_PARTS = ("coefficients", "ranges", "hidden", "outputs")
"""Arrays of `PredictiveLaw` that are buffers of the model."""

LAWS = ("law", "networks_law")
"""First words of the names of these buffers: errors of field and tile process, of the networks."""

BLOCKS_AT_ONCE, PLACES_AT_ONCE = 128, 1024
"""Numbers of blocks, and of places that share the features of rows, that a thread has at once."""

BLOCK_ARRAYS = 16
"""Approximate number of copies of the covariances of blocks in memory."""


class FieldProcess(LowRankProcess):
    """A low-rank process, a process of single tiles and a measurement model.

    The parameters are the same as in `LowRankProcess`; a `MeasurementLaw` replaces the noise. `units`
    (3,) is the size of one unit of each scaled input: kilometres for the two coordinates, quarters
    for the time.

    Raises
    ------
    RequestError
        If the inputs are not two coordinates and an optional time, or have no units.
    """

    holds_rows = True

    noise: MeasurementLaw
    posterior: VariationalPosterior
    units: Tensor
    drift: Tensor
    law_coefficients: Tensor
    law_ranges: Tensor
    law_hidden: Tensor
    law_outputs: Tensor
    law_tail: Tensor
    networks_share: Tensor
    order_seed: Tensor
    near_places: Tensor

    def __init__(self, name: str, architecture: Architecture, **parts: Any) -> None:
        d = architecture.d - len(architecture.covariates)
        dropped = set(architecture.dropped) - set(architecture.covariates)
        if d not in {2, 3} or dropped not in (set(), set(architecture.columns[2:d])):
            raise RequestError(
                f"{name} expects two coordinates and optionally a time, found the columns "
                f"{', '.join(architecture.columns)}"
                f"{' without ' if architecture.dropped else ''}{', '.join(architecture.dropped)}."
            )
        if not architecture.units:
            raise RequestError(
                f"{name} needs distances: give Architecture(units=...), the kilometres or "
                f"quarters in one unit of each input."
            )
        r, dtype = parts["basis"].rank, architecture.torch_dtype
        super().__init__(name, architecture, **{**parts, "noise": MeasurementLaw(r, dtype)})
        self.tiles = TileProcess(r, dtype, by_provider=architecture.used_providers > 0)
        self.rows = HeldRows(len(architecture.used), dtype)
        self.coordinates = len(architecture.used) - architecture.used_covariates
        self.register_buffer("units", torch.ones(3, dtype=torch.float64))
        self.register_buffer("drift", torch.zeros(2, dtype=torch.float64))
        for law in LAWS:
            for part in LAW_PARTS:
                self.register_buffer(f"{law}_{part}", torch.as_tensor(getattr(no_law(), part)))
            self.register_buffer(f"{law}_tail", torch.zeros((), dtype=torch.float64))
        self.networks = NearNetworks(len(architecture.used), dtype)
        self.register_buffer("networks_share", torch.zeros((), dtype=torch.float64))
        self.register_buffer("order_seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer(
            "near_places", torch.tensor([TRAINING_PLACES[0], PREDICTION_PLACES[0]])
        )
        self.groups: Tensor | None = None  # of the training rows; used during a fit
        # Whether the weights have their posterior given the stored rows, as in a stored model.
        self.is_conditioned = False
        # Computed from the stored rows on first use.
        self._sites: NearSites | None = None
        self._earlier: Tensor | None = None
        self.searched = PREDICTION_PLACES[0]
        self._table: tuple[Tensor, Tensor] | None = None
        self._sums: tuple[Tensor, TileSums] | None = None

    def take_range(self, low: Tensor, high: Tensor) -> None:
        """Set the range of the inputs, and from the range the units of the scaled inputs."""
        super().take_range(low, high)
        used = list(self.architecture.used)
        per_input = torch.tensor(self.architecture.units, dtype=torch.float64)[used]
        found = per_input * ((high - low) / 2).double()
        self.units[: self.coordinates] = found[: self.coordinates]

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state, prefix, *others)
        if not all(bool((getattr(self, f"{law}_ranges")[3] > 0).all()) for law in LAWS):
            raise ValueError("expected standard deviations of covariates above 0")
        if not 0 <= float(self.networks_share) <= 1:
            raise ValueError(f"expected a share from 0 to 1, found {float(self.networks_share):g}")
        bounds = zip(self.near_places.tolist(), (TRAINING_PLACES, PREDICTION_PLACES), strict=True)
        if int(self.order_seed) < 0 or not all(low <= n <= high for n, (low, high) in bounds):
            raise ValueError(
                f"expected a seed of 0 or more and numbers of near places within "
                f"{TRAINING_PLACES} and {PREDICTION_PLACES}, found {int(self.order_seed)} and "
                f"{self.near_places.tolist()}"
            )

    def load_state_dict(self, *given: Any, **options: Any) -> Any:
        """Take the tensors of a file, whose rows may have another order; see `sites`."""
        found = super().load_state_dict(*given, **options)
        self.is_conditioned = True
        if self._sites is None and len(self.rows.y):
            _ = self.sites
        return found

    @property
    def can_solve_mean(self) -> bool:
        """False, because a training step needs places with the rows near them, not single rows."""
        return False

    @property
    def law(self) -> MeasurementLaw:
        """The measurement model."""
        return self.noise

    @property
    def factor(self) -> Tensor:
        """The factor L of q(w), (r, r)."""
        return self.posterior.cholesky()

    @property
    def blocks_at_once(self) -> int:
        """Number of blocks at once, at most `CHUNK`, as the CPU finds the rows near them."""
        words = BLOCK_ARRAYS * (PREDICTION_ROWS + PLACE_ROWS) ** 2
        return min(CHUNK, rows_at_once(BLOCKS_AT_ONCE, words, self.device))

    @property
    def places_at_once(self) -> int:
        """Number of places or predictions that are handled together."""
        return PLACES_AT_ONCE if self.device.type == "cpu" else self.blocks_at_once

    def keep_rows(self, rows: Rows, seed: int) -> Rows:
        """Store the training rows, ordered by place, and return them.

        Forgets the drift and the error distribution of an earlier fit.
        """
        sites = Sites.of(numpy_of(self.points(rows.x)))
        order = torch.as_tensor(sites.order).to(self.device)
        held = rows.at(order)
        self.rows.keep_rows(held)
        self.law.keep_rows(held.counts)
        self.order_seed.fill_(seed)
        self.near_places.copy_(torch.tensor(near_places(sites)))
        self.drift.zero_()
        self.set_law(no_law())
        self._sites = self._earlier = self._table = self._sums = None
        self.is_conditioned = False
        self.groups = held.groups
        return held

    @property
    def sites(self) -> NearSites:
        """The places of the stored rows, and a tree for searches among the places."""
        if self._sites is None or len(self._sites.sites.order) != len(self.rows.y):
            if not len(self.rows.y):
                raise RequestError("the model is not fitted: it has no training rows.")
            sites = Sites.of(numpy_of(self.points(self.rows.x)))
            if (np.diff(sites.order) != 1).any():
                # Earlier versions did not divide crowded places into series of times.
                order = torch.as_tensor(sites.order).to(self.device)
                self.rows.keep_rows(self.rows.as_rows().at(order))
                self.near_places.copy_(torch.tensor(near_places(sites)))
                return self.sites
            self._sites = NearSites.of(sites)
            self.searched = int(self.near_places[1])
        return self._sites

    @property
    def earlier(self) -> Tensor:
        """For each of the s places, the rows that condition it, (s, most); on the CPU."""
        if self._earlier is None:
            random = np.random.default_rng([int(self.order_seed), 1])
            places = int(self.near_places[0])
            self._earlier = torch.as_tensor(earlier_rows(self.sites.sites, places, random))
        return self._earlier

    @property
    def sums(self) -> TileSums:
        """Sums of the stored rows by tile and time, for the inputs of the networks."""
        if self._sums is None or self._sums[0] is not self.rows.y:
            held = self.rows.x, self.rows.counts, self.rows.y
            self._sums = self.rows.y, TileSums.of(self.measurements(*held))
        return self._sums[1]

    @property
    def table(self) -> Tensor:
        """Points, logarithms of counts, and targets of the stored rows, (., n) float64."""
        held = self.rows
        if self._table is None or self._table[0] is not held.y:
            parts = [self.points(held.x), self.law.log_counts(held.counts), held.y[:, None]]
            self._table = held.y, torch.cat(parts, 1).T.contiguous()
        return self._table[1]

    def measurements(self, x: Tensor, counts: Tensor, y: Tensor | None = None) -> Measurements:
        """Return scaled inputs, counts and targets (by default 0) as `Measurements`.

        The weight of a row is the variance of a single test divided by the variance of the row.
        Both are variances around the field, without the effects of the place on the noise.
        """
        points = numpy_of(self.points(x))
        with torch.no_grad():
            variance = self.tiles.variance() + self.law.anywhere(counts)
            single = self.tiles.variance() + self.law.anywhere(torch.ones_like(counts[:1]))
        values = np.zeros(len(x)) if y is None else numpy_of(y)
        return Measurements(points[:, :2], points[:, 2], values, numpy_of(single / variance))

    def network_inputs(self, x: Tensor, counts: Tensor, summaries: Floats) -> Floats:
        """Return the inputs of the networks, (n, c), for scaled inputs, counts and summaries."""
        tests, devices = self.law.log_counts(counts).unbind(1)
        logs = numpy_of(torch.stack([tests, devices, tests - devices], 1))
        return np.column_stack([numpy_of(x), logs, summaries])

    def predictive_law(self, name: str = "law") -> PredictiveLaw:
        """Return the distribution of prediction errors; `LAWS` contains the names."""
        parts = {part: numpy_of(getattr(self, f"{name}_{part}")) for part in LAW_PARTS}
        return PredictiveLaw(**parts, most_tail=float(getattr(self, f"{name}_tail")))

    def set_law(self, law: PredictiveLaw) -> None:
        """Set the distribution of prediction errors, and ignore the networks."""
        self._set_law("law", law)
        self.networks_share.zero_()

    def set_networks(self, law: PredictiveLaw, share: float) -> None:
        """Set the error distribution of the networks, and their share in predictions."""
        self._set_law("networks_law", law)
        self.networks_share.fill_(share)

    def _set_law(self, name: str, law: PredictiveLaw) -> None:
        for part in LAW_PARTS:
            getattr(self, f"{name}_{part}").copy_(torch.as_tensor(getattr(law, part)))
        getattr(self, f"{name}_tail").fill_(law.most_tail)

    def row_terms(self, x: Tensor, counts: Tensor, m: Tensor | None = None) -> RowTerms:
        """Return the terms of rows at scaled inputs (n, d) with tests and devices (n, 2).

        `m` (r,) is the mean of the weights, by default their posterior mean.
        """
        return self.terms_at(self.seen(x), self.law.log_counts(counts), m)

    def terms_at(self, x: Tensor, logs: Tensor, m: Tensor | None = None) -> RowTerms:
        """Return `row_terms` for inputs from `seen` and logarithms of counts from `log_counts`."""
        phi = self.basis.values(x)
        m = self.posterior.m if m is None else m.to(phi.dtype)
        heads = torch.cat([m[:, None], self.law.heads, self.tiles.head[:, None]], 1)
        lifts, lift = (phi @ heads).double().split([3, 1], 1)
        mean, noise = self.law.moments(lifts, logs, self.mean_constant)
        return RowTerms(phi, mean, self.tiles.log_amplitude(lift.squeeze(1)), noise)

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the covariates' coefficients, each (c,).

        In the target's unit, per unit of the scaled covariate.
        """
        scale = self.y_sd * self.basis.covariate_sds().double()
        c = len(scale)
        if not c:
            return super().coefficients()
        with torch.no_grad():
            sd = self.factor[-c:].double().square().sum(1).sqrt()
            return numpy_of(scale * self.posterior.m[-c:].double()), numpy_of(scale * sd)

    @property
    def weights(self) -> WeightPosterior:
        """The posterior of the field's weights."""
        return WeightPosterior(self.posterior.m, self.factor)

    def counts_of(
        self, tests: Floats | float | None, devices: Floats | float | None, n: int
    ) -> Tensor:
        """Return tests and devices of n rows, (n, 2); see `FieldNetwork.predict`.

        Raises DataError if `tests` or `devices` has neither one value nor n values, a count is
        below 1, or a row has more devices than tests.
        """
        behind = self._counts(1.0 if tests is None else tests, n, "tests")
        if devices is None:
            return torch.stack([behind, self.law.typical_devices(behind)], 1)
        given = self._counts(devices, n, "devices")
        check_devices(numpy_of(given), numpy_of(behind))
        return torch.stack([behind, given], 1)

    def _counts(self, given: Floats | float, n: int, name: str) -> Tensor:
        values = numbers_of(given, name)
        infinite = np.isinf(values)
        counts = np.where(infinite, values, as_floats(np.where(infinite, 1.0, values), name))
        if counts.shape not in {(), (n,)} or (counts < 1).any():
            raise DataError(
                f"expected one number of {name} for all rows or one for each of {n} rows, each 1 "
                f"or more, found shape {counts.shape}"
                f"{f' and a smallest value of {counts.min():g}' if counts.size else ''}."
            )
        return torch.as_tensor(np.broadcast_to(counts, (n,)).copy()).to(self.device)

    def beyond(self, x: Tensor) -> Tensor:
        """Return the variance of the drift of the level outside the times of the stored rows."""
        away = self.away(x)
        found: Tensor = away.abs() * self.drift[0] + away.square() * self.drift[1]
        return found

    def away(self, x: Tensor) -> Tensor:
        """Return the quarters after the last time of the stored rows, or before the first."""
        if self.coordinates == 2:
            return torch.zeros(x.shape[:-1], dtype=torch.float64, device=self.device)
        return (x - self.seen(x))[..., 2].double() * self.units[2]

    def row_means(self, x: Tensor, m: Tensor | None = None) -> Floats:
        """Return means for infinitely many tests at scaled inputs, (n,); see `row_terms`."""
        with torch.no_grad():
            parts = [self.row_terms(at, self.endless(len(at)), m).mean for at in x.split(CHUNK)]
        return numpy_of(torch.cat(parts))

    def tile_kernel(self, x: Floats, x2: Floats) -> Floats:
        """Return the prior covariance of u between points, in the target's squared unit, (n, n2).

        For the prior covariance of f, see `kernel`.
        """
        second = self.scaled(x2)
        with torch.no_grad():
            points, amplitude = self.points(second), self.amplitude(second)
            parts = []
            for part in self.scaled(x).split(CHUNK):
                own = self.amplitude(part)
                found = self.tiles(self.points(part), points)
                parts.append(found * own[:, None] * amplitude[None, :])
        return numpy_of(torch.cat(parts) * self.y_sd.square())

    def points(self, x: Tensor) -> Tensor:
        """Return scaled inputs in km and quarters, and the provider, (n, 3 or 4) float64."""
        exact = x[..., : self.coordinates].double()
        if self.coordinates == 2:
            exact = torch.cat([exact, torch.zeros_like(exact[..., :1])], -1)
        found, providers = exact * self.units, self.architecture.used_providers
        return with_providers(found, x[..., -providers:]) if providers else found

    def distance_to_others(self, x: Tensor, among: NearSites | None = None) -> Floats:
        """Return the mean distance from scaled inputs to the nearest stored places, in km, (n,).

        `among` are the places to search, by default all. The distance is 1 if there are fewer than
        two places; see `vecchia.distance_to_others`.
        """
        if not len(self.rows.y):
            return np.ones(len(x))
        return distance_to_others((among or self.sites).places, numpy_of(self.points(x))[:, :2])

    def seen(self, x: Tensor) -> Tensor:
        """Return inputs, with times clamped to the times of the stored rows."""
        if self.coordinates == 2 or not len(self.rows.x):
            return x
        time = x[..., 2:3].clamp(*self.rows.times)
        return torch.cat([x[..., :2], time, x[..., 3:]], -1)

    def endless(self, n: int) -> Tensor:
        """Return infinitely many tests and devices for n rows, (n, 2)."""
        return torch.full((n, 2), torch.inf, dtype=torch.float64, device=self.device)

    def amplitude(self, x: Tensor) -> Tensor:
        """Return the amplitude of the tile process at scaled inputs (n, d), (n,)."""
        lift = self.basis.values(self.seen(x)) @ self.tiles.head
        return self.tiles.log_amplitude(lift.double()).exp()


def numpy_of(tensor: Tensor) -> Floats:
    """Return a tensor as a float64 array."""
    found: Floats = tensor.detach().cpu().double().numpy()
    return found
