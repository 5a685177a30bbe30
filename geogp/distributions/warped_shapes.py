"""Shapes of repaired predictions: the central interval of each level is widened or narrowed.

Before the repair, F is the distribution function, Q the quantile function, and z = Φ^(-1)(F(x)) the
normal score. Let t_p = Φ^(-1)((1 + p) / 2). An odd increasing function g changes the central
interval of level p from |z| <= t_p to |z| <= g(t_p). After the repair:

    Q*(Φ(u)) = Q(Φ(g(u))),    F*(x) = Φ(g^(-1)(z)).

g is linear between the knots (0, 0) and (t_p, q_p), with p in `LADDER` (`warps.py`). The median m
does not change. Beyond the last knot (t, q), both tails are stretched away from the median:

    Q*(Φ(u)) = m + r (Q(Φ(u)) - m),    r = (Q(Φ(±q)) - m) / (Q(Φ(±t)) - m),

If F is normal, g continues on the straight line through (0, 0) and the last knot. Stretched tails
of Student's t decrease with the same power as before, so mean and variance exist if F has them.
A straight line for g would change the power.
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
    """A repaired shape: a base shape whose normal scores are changed by a `Warp`.

    Mean and variance of this shape need not be 0 and 1. Integrals are Gauss-Legendre sums over the
    parts between knots, because the integrand is smooth in each part. `base` is the shape before
    the repair. `warp` has a function g for each cell (group of rows), and `number` (n,) is the cell
    of each row. Raises RequestError if a cell does not exist, or `base` is already repaired.
    """

    def __init__(self, base: Shape, warp: Warp, number: Rows) -> None:
        if isinstance(base, WarpedShape):
            raise RequestError(
                "expected a shape before the repair, found a shape that is already repaired."
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
        """Whether E[exp(t X)] exists for the base shape, and thus for this shape."""
        return self.base.has_power_mean

    def kinds(self, n: int) -> Rows:
        """Return for each row the index of its pair of base shape and cell, (n,)."""
        return self._pairs[1][:n]

    def from_normal(self, z: Floats) -> Floats:
        """Return Q*(Φ(z))."""
        return self._from_normal(self._of_rows(z), slice(None))

    def normal_score(self, x: Floats) -> Floats:
        """Return u = Φ^(-1)(F*(x))."""
        return self._back(self._of_rows(x)).u

    def log_density(self, x: Floats) -> Floats:
        """Return the log density log f* after the repair, by the chain rule.

        Between knots, the result is log f(x) + log φ(u) - log φ(z) - log g'(u). Beyond the last
        knot, the result is log f(x') - log r with x' = m + (x - m) / r.
        """
        found = self._back(self._of_rows(x))
        normal = GAUSSIAN.log_density(found.u) - GAUSSIAN.log_density(found.z)
        steps = np.where(found.beyond, 0.0, normal) - np.log(found.slope)
        density: Floats = self.base.log_density(found.x) + steps
        return density

    def crps(self, x: Floats) -> Floats:
        """Return the CRPS, E|X - x| - ½ E|X - X'|, with both expectations as integrals over u.

        Let q(u) = Q*(Φ(u)), and let I(u) be the integral of q φ up to u. Then E|X - x| is x (2
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

        The result is also infinity if the integrand is not negligible at u = 21 or u = -21. With
        strongly stretched tails, the mean would depend on values far beyond all calibration rows.
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
        """One example row for each pair of base shape and cell, and the pair of each row."""
        codes = self.base.kinds(len(self)) * len(self.warp.knots) + self.number
        _, first, back = np.unique(codes, return_index=True, return_inverse=True)
        return first, back.reshape(-1)

    @cached_property
    def _tails(self) -> tuple[Floats, Floats, Floats]:
        """The median m and the stretch factors r of both tails, for each pair of base and cell."""
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
        """Return q(u) = Q*(Φ(u)) for some of the rows, with one u for each row."""
        g, beyond = self.warp.forward(u, self.number[rows])
        values = self.base[rows].from_normal(np.where(beyond, u, g))
        if not beyond.any():
            return values
        m, r = self._stretch(u, rows)
        return np.where(beyond, m + r * (values - m), values)

    def _back(self, x: Floats) -> "_Back":
        """Return the values x (n,) mapped back to the base shape."""
        z = self.base.normal_score(x)
        u, slope, beyond = self.warp.backward(z, self.number)
        if not beyond.any():
            return _Back(x, z, u, slope, beyond)
        m, r = self._stretch(z, slice(None))
        inner = np.where(beyond, m + (x - m) / r, x)
        u = np.where(beyond, self.base.normal_score(inner), u)
        return _Back(inner, z, u, np.where(beyond, r, slope), beyond)

    def _at_nodes(self, reach: float) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of the pairs, and q(u) of these pairs at the nodes, (pairs, nodes)."""
        nodes, _, _ = _nodes(reach)
        first, _ = self._pairs
        chunk = max(1, _VALUES_AT_ONCE // len(nodes))
        for start in range(0, len(first), chunk):
            rows = first[start : start + chunk]
            part = self[rows]
            # Nodes one by one: quantiles of mixtures are faster if all rows have one probability.
            mirrored = self.base.symmetric
            wanted = nodes[len(nodes) // 2 :] if mirrored else nodes
            values = np.column_stack([part.from_normal(np.full(len(rows), u)) for u in wanted])
            if mirrored:
                values = np.concatenate([-values[:, ::-1], values], axis=1)
            yield slice(start, start + len(rows)), values

    @cached_property
    def _integrals(self) -> tuple[Floats, Floats]:
        """The integrals in `crps`: I(u) at edges, (pairs, parts + 1), and ½ E|X - X'|, (pairs,)."""
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
    """Values mapped back to the base shape: x, its normal scores z and u, and the slope of g.

    `beyond` is true for values beyond the last knot. For these values, `x` is the value before the
    stretch, and `slope` is the factor r.
    """

    x: Floats
    z: Floats
    u: Floats
    slope: Floats
    beyond: NDArray[np.bool_]


@cache
def _edges(reach: float) -> Floats:
    """Return the edges of parts of the u axis: the knots, and steps of about 1.6 beyond them."""
    outer = np.linspace(KNOTS[-1], reach, 1 + round((reach - KNOTS[-1]) / 1.6))
    upper = np.concatenate([KNOTS, outer[1:]])
    return np.concatenate([-upper[::-1], [0.0], upper])


@cache
def _nodes(reach: float) -> tuple[Floats, Floats, Rows]:
    """Return nodes u, weights for E[h(U)] with U standard normal, and the part of each node."""
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
