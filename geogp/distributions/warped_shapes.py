"""Repaired distributions: shapes whose central intervals are widened or narrowed level by level.

The normal scores of a base distribution F are z = Φ^(-1)(F(x)). Let t_p = Φ^(-1)((1 + p) / 2). An
odd increasing map g moves the central interval of level p from |z| <= t_p to |z| <= g(t_p):

    Q*(Φ(u)) = Q(Φ(g(u))),    F*(x) = Φ(g^(-1)(z)).

g is linear between the knots (0, 0) and (t_p, q_p), with p in `LADDER` (`warps.py`). The median
does not change. Beyond the last knot (t, q), the tail of the base continues on each side, stretched
away from the median m:

    Q*(Φ(u)) = m + r (Q(Φ(u)) - m),    r = (Q(Φ(±q)) - m) / (Q(Φ(±t)) - m),

For a normal base, this is the straight line through (0, 0) and the last knot. So the tails fall as
fast as the tails of the base, and the repaired distribution has a mean or a variance if the base
has one. A straight line in z would not ensure this: for Student's t, it would change the power with
which the tails fall.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import special

from geogp.distributions.shapes import GAUSSIAN, Floats, RowChoice, Shape
from geogp.distributions.warps import KNOTS, REPAIR_COLUMNS, Warp
from geogp.errors import RequestError

_VALUES_AT_ONCE = 1 << 21
_REACH, _FAR_REACH = 9.0, 21.0
_NEGLIGIBLE = 1e-6

Rows = NDArray[np.intp]


class WarpedShape(Shape):
    """A base shape whose normal scores are warped, as described at the top of this module.

    Mean and variance of this shape need not be 0 and 1. Integrals are Gauss-Legendre sums over the
    parts between knots, because the integrand is smooth in each part. `base` is the shape before
    the repair, `warp` contains the maps g of the cells, and `number` (n,) is the cell of each row.
    Raises RequestError if the cell of a row does not exist, or the base is already repaired.
    """

    def __init__(self, base: Shape, warp: Warp, number: Rows) -> None:
        if isinstance(base, WarpedShape):
            raise RequestError(
                "expected the shape of the model itself, found a shape that is already repaired."
            )
        if len(number) and not (number.min() >= 0 and number.max() < len(warp.knots)):
            raise RequestError(
                f"expected cells from 0 to {len(warp.knots) - 1}, found {number.min()} to "
                f"{number.max()}."
            )
        self.base, self.warp, self.number = base, warp, number

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, rows: RowChoice) -> Shape:
        """Return the shapes of some of the rows."""
        return WarpedShape(self.base[rows], self.warp, self.number[rows])

    @property
    def columns(self) -> dict[str, float | Floats]:
        """Columns of the base, and the knots of each row in the columns `REPAIR_COLUMNS`."""
        knots = self.warp.knots[self.number]
        return {**self.base.columns, **dict(zip(REPAIR_COLUMNS, knots.T, strict=True))}

    @property
    def has_power_mean(self) -> bool:
        """Whether E[exp(t X)] exists; it exists if it does for the base."""
        return self.base.has_power_mean

    def kinds(self, n: int) -> Rows:
        """Return the number of each row's pair of base and cell, (n,)."""
        found: Rows = self._pairs[1][:n]
        return found

    def from_normal(self, z: Floats) -> Floats:
        """Return Q*(Φ(z))."""
        return self._from_normal(self._of_rows(z), slice(None))

    def normal_score(self, x: Floats) -> Floats:
        """Return u = Φ^(-1)(F*(x))."""
        return self._back(self._of_rows(x)).u

    def log_density(self, x: Floats) -> Floats:
        """Return log f* by the chain rule.

        Between knots, the result is log f(x) + log φ(u) - log φ(z) - log g'(u). Beyond the last
        knot, it is log f(x') - log r with x' = m + (x - m) / r.
        """
        found = self._back(self._of_rows(x))
        normal = GAUSSIAN.log_density(found.u) - GAUSSIAN.log_density(found.z)
        steps = np.where(found.beyond, 0.0, normal) - np.log(found.slope)
        density: Floats = self.base.log_density(found.x) + steps
        return density

    def crps(self, x: Floats) -> Floats:
        """Return E|X - x| - ½ E|X - X'|, with both expectations as integrals over u.

        Let q(u) be the value at Φ(u), and I(u) the integral of q φ up to u. Then E|X - x| is x (2
        F*(x) - 1) + E X - 2 I(u(x)), and ½ E|X - X'| is E[q(U) (2 Φ(U) - 1)].
        """
        x = self._of_rows(x)
        u = np.clip(self.normal_score(x), -_REACH, _REACH)
        totals, half_spread = self._integrals
        back = self._pairs[1]
        edges = _edges(_REACH)
        part = np.clip(np.searchsorted(edges, u) - 1, 0, len(edges) - 2)
        partial = totals[back, part]
        share, weights = _legendre(8)
        width = u - edges[part]
        for s, w in zip(share.tolist(), weights.tolist(), strict=True):
            at = edges[part] + width * s
            partial = partial + w * width * np.exp(GAUSSIAN.log_density(at)) * self._from_normal(
                at, slice(None)
            )
        found: Floats = (
            x * (2 * special.ndtr(u) - 1) + totals[back, -1] - 2 * partial - half_spread[back]
        )
        return found

    def exponential_mean(self, t: Floats) -> Floats:
        """Return E[exp(t X)], integrated over u from -21 to 21; infinity where it does not exist.

        The result is also infinity where the integrand is not negligible at both ends. This can
        follow from a large stretch; the mean would then depend on values far beyond all calibration
        rows.
        """
        t = self._of_rows(t)
        if not self.has_power_mean:
            return np.where(t == 0, 1.0, np.inf)
        back, found = self._pairs[1], np.empty(len(t))
        _, weights, _ = _nodes(_FAR_REACH)
        order = np.argsort(back, kind="stable")
        ends = np.searchsorted(back[order], np.arange(len(self._pairs[0]) + 1))
        chunk = max(1, _VALUES_AT_ONCE // len(weights))
        for chosen, values in self._at_nodes(_FAR_REACH):
            rows = order[ends[chosen.start] : ends[chosen.stop]]
            for start in range(0, len(rows), chunk):
                some = rows[start : start + chunk]
                terms = t[some, None] * values[back[some] - chosen.start] + np.log(weights)
                top = terms.max(1)
                ends_here = (terms[:, [0, -1]] <= top[:, None] + np.log(_NEGLIGIBLE)).all(1)
                with np.errstate(over="ignore"):
                    mean = np.exp(top) * np.exp(terms - top[:, None]).sum(1)
                found[some] = np.where(ends_here, mean, np.inf)
        return found

    def _of_rows(self, values: Floats) -> Floats:
        return np.broadcast_to(np.asarray(values, np.float64), self.number.shape)

    @cached_property
    def _pairs(self) -> tuple[Rows, Rows]:
        """One example row for each pair of base and cell, and the number of each row's pair."""
        codes = self.base.kinds(len(self)) * len(self.warp.knots) + self.number
        _, first, back = np.unique(codes, return_index=True, return_inverse=True)
        return first, back.reshape(-1)

    @cached_property
    def _tails(self) -> tuple[Floats, Floats, Floats]:
        """For each pair: the median m, and the stretches r of the lower tail and the upper tail."""
        first, _ = self._pairs
        base, number = self.base[first], self.number[first]
        t, q = self.warp.last_t[number], self.warp.last_q[number]
        m = base.from_normal(np.zeros(len(first)))
        lower, upper = (
            (base.from_normal(sign * q) - m) / (base.from_normal(sign * t) - m)
            for sign in (-1.0, 1.0)
        )
        return m, lower, upper

    def _stretch(self, sign: Floats, rows: RowChoice) -> tuple[Floats, Floats]:
        m, lower, upper = self._tails
        pair = self._pairs[1][rows]
        return m[pair], np.where(sign > 0, upper[pair], lower[pair])

    def _from_normal(self, u: Floats, rows: RowChoice) -> Floats:
        """Return q(u) for some of the rows, with one u per row."""
        g, beyond = self.warp.forward(u, self.number[rows])
        values = self.base[rows].from_normal(np.where(beyond, u, g))
        if not beyond.any():
            return values
        m, r = self._stretch(u, rows)
        found: Floats = np.where(beyond, m + r * (values - m), values)
        return found

    def _back(self, x: Floats) -> "_Back":
        """Map x (n,) back to the base."""
        z = self.base.normal_score(x)
        u, slope, beyond = self.warp.backward(z, self.number)
        if not beyond.any():
            return _Back(x, z, u, slope, beyond)
        m, r = self._stretch(z, slice(None))
        inner = np.where(beyond, m + (x - m) / r, x)
        u = np.where(beyond, self.base.normal_score(inner), u)
        return _Back(inner, z, u, np.where(beyond, r, slope), beyond)

    def _at_nodes(self, reach: float) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of the pairs, each with q at the nodes, (pairs, nodes)."""
        nodes, _, _ = _nodes(reach)
        first, _ = self._pairs
        chunk = max(1, _VALUES_AT_ONCE // len(nodes))
        for start in range(0, len(first), chunk):
            rows = first[start : start + chunk]
            part = self[rows]
            # One node for all rows: quantiles of mixtures are faster at a common probability.
            mirrored = self.base.symmetric
            wanted = nodes[len(nodes) // 2 :] if mirrored else nodes
            values = np.column_stack([part.from_normal(np.full(len(rows), u)) for u in wanted])
            if mirrored:
                values = np.concatenate([-values[:, ::-1], values], axis=1)
            yield slice(start, start + len(rows)), values

    @cached_property
    def _integrals(self) -> tuple[Floats, Floats]:
        """I at the edges of parts, (pairs, parts + 1), and E[q(U) (2 Φ(U) - 1)], (pairs,)."""
        nodes, weights, part = _nodes(_REACH)
        parts = part[-1] + 1
        totals, half = np.zeros((len(self._pairs[0]), parts + 1)), np.empty(len(self._pairs[0]))
        sums = np.zeros((len(nodes), parts))
        sums[np.arange(len(nodes)), part] = weights
        for chosen, values in self._at_nodes(_REACH):
            totals[chosen, 1:] = np.cumsum(values @ sums, axis=1)
            half[chosen] = values @ (weights * (2 * special.ndtr(nodes) - 1))
        return totals, half


@dataclass(frozen=True)
class _Back:
    """Values mapped back to the base: x, its normal scores z and u, and the slope of g.

    `beyond` is true if a value lies beyond the last knot. Then `x` is the value before the stretch,
    and `slope` is the stretch.
    """

    x: Floats
    z: Floats
    u: Floats
    slope: Floats
    beyond: NDArray[np.bool_]


@cache
def _edges(reach: float) -> Floats:
    """Return the edges of parts of the u axis: the knots, and beyond these steps of about 1.6."""
    outer = np.linspace(KNOTS[-1], reach, 1 + round((reach - KNOTS[-1]) / 1.6))
    upper = np.concatenate([KNOTS, outer[1:]])
    return np.concatenate([-upper[::-1], [0.0], upper])


@cache
def _nodes(reach: float) -> tuple[Floats, Floats, Rows]:
    """Return nodes u, weights of E[h(U)] with U standard normal, and the part of each node."""
    edges = _edges(reach)
    nodes, weights, part = [], [], []
    for number, (low, high) in enumerate(pairwise(edges.tolist())):
        share, weight = _legendre(4 if max(-low, high) <= KNOTS[-1] else 8)
        u = low + (high - low) * share
        nodes.append(u)
        weights.append((high - low) * weight * np.exp(GAUSSIAN.log_density(u)))
        part.append(np.full(len(u), number, np.intp))
    return np.concatenate(nodes), np.concatenate(weights), np.concatenate(part)


@cache
def _legendre(order: int) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights on 0 to 1."""
    x, w = np.polynomial.legendre.leggauss(order)
    return (1 + x) / 2, w / 2
