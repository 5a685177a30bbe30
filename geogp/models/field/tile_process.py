"""The process of single tiles, with correlation over short distances and over time."""

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, softplus

from geogp.models.numerics.devices import on_device
from geogp.models.numerics.elementwise import exponential_
from geogp.models.numerics.threads import chunks
from geogp.models.process.matern import (
    LEAST_SMOOTHNESS,
    MOST_SMOOTHNESS,
    in_cache,
    matern,
    matern_terms,
)

SILLS = (0.05, 0.1, 0.05, 0.02)
"""Start values of s, the variances of the four terms, for a standardised target."""

RANGES_KM = (3.0, 1.5)
"""Start values of l in km; a tile of zoom 16 is about 0.6 km wide."""

MEMORIES = (4.0, 2.0)
"""Start values of τ in quarters."""

SAME_TILE_KM = 1e-3
"""Points less than this distance apart are on the same tile, so that rounding does not matter."""

NO_LENGTH = 1e-30
"""Smallest squared length in km², so that its root has a gradient."""

STRIPES = 4
"""Largest number of stripes of `TileProcess.lower`."""

STRIPE = 16
"""Smallest width of a stripe of `TileProcess.lower`."""

DISTINCT_PAIRS = 3
"""`TileProcess.lower_at` computes all pairs of distinct points if that is this many times fewer."""

NO_TIME = -1e5
"""Stands for the logarithm of the time 0, so that its products are finite."""

ROUGH = 0.5
"""Smoothness of the usual form, whose Matérn correlation is exponential."""

LARGEST_EXPONENT = 60.0
"""Largest absolute exponent of an amplitude; its fourth power, used in gradients, is finite."""

MOST_STRETCH = 50.0
"""Largest absolute stretch in a file; those of fits are near 0 (see `STRETCH_SD`)."""


class TileProcess(nn.Module):
    """Covariance of the effects of single tiles around the field, for a standardised target.

    With h the distance between two places in km and t the time between them in quarters,

    k = s_1 M(h/l_1) + s_2 M(h/l_2) exp(-t/τ_2) + [same tile] (s_3 + s_4 exp(-t/τ_4)),
    M(r) = exp(-r).

    The first two terms correlate near tiles, and the last two belong to one tile. In each pair, the
    first term is constant in time and the second term decays with time. k is multiplied by
    amplitude(x) amplitude(x'), with amplitude(x) = exp(<c, phi(x)>) and an exponent from -60 to 60.
    So the tile process can be stronger in one part of a region than in another.

    Precise measurements may need another form, which `take_form` sets before the training. M is
    then a Matérn correlation with a smoothness from 0.1 to 3, and h is the length of
    exp([[a, b], [b, -a]]) (x - x'), so that the correlation can depend on the direction. The second
    term may have Gneiting's form (Gneiting 2002, equation 14), which is not separable:

    s_2 M(h / (l_2 ψ^(q/2))) / ψ,  ψ = 1 + (t/τ_2)^(2p).

    With several providers, k is the sum of a part that they share and, between rows of one
    provider, a second part of the usual form with values of s, l and τ of its own.

    Parameters
    ----------
    r
        Number of basis functions phi in the amplitude.
    dtype
        Dtype of the parameters; results are float64.
    by_provider
        Whether points have the number of their provider as a fourth column.
    """

    stretch: Tensor
    powers: Tensor
    smoothness: Tensor

    def __init__(self, r: int, dtype: torch.dtype, *, by_provider: bool = False) -> None:
        super().__init__()
        self.log_sills = nn.Parameter(torch.tensor(SILLS, dtype=dtype).log())
        self.log_ranges = nn.Parameter(torch.tensor(RANGES_KM, dtype=dtype).log())
        self.log_memories = nn.Parameter(torch.tensor(MEMORIES, dtype=dtype).log())
        self.head = nn.Parameter(torch.zeros(r, dtype=dtype))
        start = torch.tensor([*SILLS, *RANGES_KM, *MEMORIES], dtype=dtype).log()
        self.log_own = nn.Parameter(start) if by_provider else None
        self.register_buffer("stretch", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("powers", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("smoothness", torch.tensor(ROUGH, dtype=torch.float64))
        self._form = Form()

    @property
    def form(self) -> "Form":
        """The form of the covariance."""
        return self._form

    def take_form(self, form: "Form") -> None:
        """Set the form of the covariance, whose tensors may have gradients."""
        self._form = form
        self.stretch.copy_(form.stretch.detach())
        self.powers.copy_(form.powers.detach())
        self.smoothness.copy_(form.smoothness.detach())

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        """Move the tensors to another device; the form follows."""
        moved = super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self._form = self._stored_form()
        return moved

    def _stored_form(self) -> "Form":
        return Form(self.stretch.clone(), self.powers.clone(), self.smoothness.clone())

    def _load_from_state_dict(self, state: Any, prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state, prefix, *others)
        older = state.get(f"{prefix}smoothness")
        if older is not None and not older.is_floating_point():
            self.smoothness += ROUGH  # an earlier version stored whole numbers
        form = self._stored_form()
        bounds = bool((form.powers >= 0).all() and (form.powers <= 1).all())
        smooth = LEAST_SMOOTHNESS <= float(form.smoothness) <= MOST_SMOOTHNESS
        if not (bounds and smooth and bool((form.stretch.abs() <= MOST_STRETCH).all())):
            raise ValueError(
                f"expected a stretch from {-MOST_STRETCH:g} to {MOST_STRETCH:g}, a smoothness from "
                f"{LEAST_SMOOTHNESS:g} to {MOST_SMOOTHNESS:g}, and powers from 0 to 1"
            )
        self._form = form

    def log_amplitude(self, lift: Tensor) -> Tensor:
        """Return the logarithm of the amplitude, (b,), for <c, phi> (b,)."""
        return hardtanh(lift, -LARGEST_EXPONENT, LARGEST_EXPONENT)  # a clamp with a fast gradient

    def variance(self) -> Tensor:
        """Return k at one place and time for amplitude 1, a scalar."""
        second = 0.0 if self.log_own is None else self.log_own[: len(SILLS)].double().exp().sum()
        return self.log_sills.double().exp().sum() + second

    def within(self, points: Tensor) -> Tensor:
        """Return k for amplitude 1 between points (b, m, 3), (b, m, m); see `whitened`.

        On a CPU, each pair is computed once, and the upper triangle is 0, unless the form is the
        usual one, whose operations are so few that selecting pairs costs more.
        """
        if self._form.usual or points.device.type != "cpu":
            covariance: Tensor = self(points, points)
            return covariance
        i, j = torch.tril_indices(points.shape[1], points.shape[1])
        pairs = self(points[:, i, None], points[:, j, None]).flatten(1)
        filled: Tensor = _LowerTriangle.apply(pairs, i, j)  # type: ignore[no-untyped-call]
        return filled

    def lower(self, points: Tensor) -> Tensor:
        """Return k for amplitude 1 between points (b, m, 3), (b, m, m), without gradients.

        On a CPU, only the lower triangle is filled; that of the usual form in stripes, which saves
        nearly half of the time.
        """
        if not self._form.usual or points.device.type != "cpu":
            return self.within(points)
        b, m = points.shape[:2]
        covariance = points.new_zeros(b, m, m)
        width = max(STRIPE, -(-m // STRIPES))
        for start in range(0, m, width):
            end = min(start + width, m)
            covariance[:, start:end, :end] = self(points[:, start:end], points[:, :end])
        return covariance

    def lower_at(self, points: Tensor, at: Tensor) -> Tensor:
        """Return `lower(points[at])`, (b, m, m), for points (n, 3) and positions (b, m).

        On a CPU, each pair of distinct points is computed once, if these are few. The values are
        the same.
        """
        b, m = at.shape
        if points.device.type != "cpu":
            return self.lower(points[at])
        used = torch.zeros(len(points), dtype=torch.bool)
        used[at.flatten()] = True
        u = int(used.sum())
        if DISTINCT_PAIRS * u * u > b * m * m:
            return self.lower(points[at])
        distinct = self.lower(points[used][None])[0]
        distinct = torch.maximum(distinct, distinct.T).flatten()  # k is positive
        place = (used.cumsum(0) - 1).int()[at]
        return distinct.index_select(0, (place[:, :, None] * u + place[:, None]).flatten()).view(
            b, m, m
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k for amplitude 1 between points (..., m, 3) and (..., n, 3): (..., m, n).

        A point has two coordinates in km, a time in quarters and, by provider, the provider's
        number, float64, without gradients. Points less than a metre apart are on the same tile.
        """
        if self.log_own is None:
            return self._shared(a, b)
        second: Tensor = _UsualForm.apply(a, b, self.log_own.double())  # type: ignore[no-untyped-call]
        same = a[..., :, None, 3] == b[..., None, :, 3]
        return self._shared(a[..., :3], b[..., :3]) + second * same

    def _shared(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the part of k that all providers share."""
        form = self._form
        logs = torch.cat([self.log_sills, self.log_ranges, self.log_memories]).double()
        if form.usual:
            return _UsualForm.apply(a, b, logs)  # type: ignore[no-untyped-call, no-any-return]
        if form.separable:
            return _SmoothForm.apply(a, b, logs, form.metric, form.smoothness)  # type: ignore[no-untyped-call, no-any-return]
        s1, s2, s3, s4 = logs[:4].unbind()
        forgetting = (-logs[7]).exp()
        with torch.no_grad():
            _, h, t = _lags(a, b)
            same = (h < SAME_TILE_KM).to(h.dtype)
            east, north = (a[..., :, None, i] - b[..., None, :, i] for i in range(2))
        xx, xy, yy = form.metric.unbind()
        squares = xx * east.square() + 2 * xy * east * north + yy * north.square()
        log_h = squares.add(NO_LENGTH).log() / 2
        shared = form.shared(log_h, t, (s1, s2), logs[4:7])
        of_tile = exponential_(torch.addcmul(s4, t, forgetting, value=-1)) + s3.exp()
        return torch.addcmul(shared, same, of_tile)


class _LowerTriangle(torch.autograd.Function):
    """Lower triangles (b, m, m) from their values (b, m (m + 1) / 2) at the positions i, j.

    A gradient by a symmetric matrix is the gradient by both of its triangles.
    """

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, i: Tensor, j: Tensor) -> Tensor:
        ctx.at = i, j
        m = int(i[-1]) + 1
        matrix = pairs.new_zeros(len(pairs), m, m)
        matrix[:, i, j] = pairs
        return matrix

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        i, j = ctx.at
        gradient = gradient + gradient.mT
        gradient.diagonal(dim1=1, dim2=2).div_(2)
        return gradient[:, i, j], None, None


class _UsualForm(torch.autograd.Function):
    """The covariance of the usual form from (log s, log l, log τ), with few operations.

    It is the sum of the terms s_i E_i, with E_i = exp(-h u_i - t v_i), u = (1/l_1, 1/l_2, 0, 0) and
    v = (0, 1/τ_2, 0, 1/τ_4); E_3 and E_4 are multiplied by [same tile]. With the gradient G by the
    covariance, the gradients by log s, log l and log τ are sums of G s E, G s E h u and G s E t v.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, logs: Tensor) -> Tensor:
        lags = _lags(a, b)
        h = lags[1]
        terms = lags.new_empty(4, h.numel())  # E_1, E_2, E_4, E_3
        same = torch.lt(h.flatten(), SAME_TILE_KM, out=terms[3])
        signs, start, ctx.kinds = _usual_exponents(logs.device, logs.dtype)
        values = torch.addmv(start, signs, logs).exp_()
        decays = terms[:3]
        rates, lags = values[4:].view(3, 2), lags[1:].flatten(1)
        exponential_(decays.addmm_(rates, lags, beta=0, alpha=-1))
        decays[2].mul_(same)
        ctx.save_for_backward(lags, terms, values)
        return (terms.T @ values[:4]).view(h.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, Tensor]:
        lags, terms, values = ctx.saved_tensors
        weighted = terms * gradient.flatten()
        by_rates = (weighted[:3] @ lags.T) * values[:3, None]
        by_logs = torch.cat([weighted.sum(1), by_rates.flatten()]) * values
        return None, None, ctx.kinds @ by_logs


class _SmoothForm(torch.autograd.Function):
    """The covariance of a separable form with any smoothness and stretch, with few operations.

    The inputs are points, (log s, log l, log τ), the metric of `Form` and the smoothness. The
    derivatives of each pair are computed with its covariance, so the gradient is one product. Few
    pairs at once stay in the cache of a CPU.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, *values: Tensor) -> Tensor:
        a, b = (points.movedim(-1, 0).contiguous() for points in (a, b))
        lags = a[..., :, None] - b[..., None, :]
        logs, metric, smoothness = values
        flat, (*others, change) = lags.flatten(1), ctx.needs_input_grad[2:]
        kept = change or any(others)
        number = len(logs) + len(metric) + change if kept else len(SILLS)
        covariance = flat.new_empty(flat.shape[1])
        derivatives = flat.new_empty(number, len(covariance) if kept else 0)
        for part in chunks(len(covariance), in_cache(covariance)):
            lag = flat[:, part]
            terms = derivatives[:, part] if kept else lag.new_empty(number, lag.shape[1])
            _smooth_terms(lag, logs, metric, float(smoothness), terms)
            torch.sum(terms[: len(SILLS)], 0, out=covariance[part])
        ctx.save_for_backward(derivatives)
        return covariance.view(lags.shape[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        by_values = ctx.saved_tensors[0] @ gradient.flatten()
        logs, metric, *nu = by_values.split([8, 3, 1][: 2 + ctx.needs_input_grad[4]])
        return None, None, logs, metric, nu[0][0] if nu else None


def _smooth_terms(lag: Tensor, logs: Tensor, metric: Tensor, nu: float, terms: Tensor) -> None:
    """Fill rows of `terms` with the four terms of k at differences `lag` (3, n).

    With more than four rows, the others are the derivatives of k by log l, log τ, the metric and,
    last, the smoothness. Those by log s are the terms themselves.
    """
    s1, s2, s3, s4, near, fast, memory, own_memory = logs.tolist()
    derivatives = len(terms) > len(SILLS)
    change = len(terms) == len(logs) + len(metric) + 1
    east, north, t = lag
    squares = torch.stack([east * east, 2 * east * north, north * north])
    h2 = (metric @ squares).add_(NO_LENGTH)
    log_h = h2.log().div_(2)
    same = (squares[0] + squares[2] < SAME_TILE_KM**2).to(h2.dtype)
    since, since_own = t.abs() * math.exp(-memory), t.abs() * math.exp(-own_memory)
    matern_rows = h2.new_empty(2, 1 + derivatives + change, lag.shape[1])
    for rows, log_range in zip(matern_rows, (near, fast), strict=True):
        matern_terms(log_h - log_range, nu, rows, slope=derivatives, change=change)
    first = matern_rows[0].mul_(math.exp(s1))
    second = matern_rows[1].mul_(exponential_(s2 - since))
    torch.mul(same, math.exp(s3), out=terms[2])
    torch.mul(same, exponential_(s4 - since_own), out=terms[3])
    terms[0], terms[1] = first[0], second[0]
    if derivatives:
        torch.neg(first[1], out=terms[4])
        torch.neg(second[1], out=terms[5])
        torch.mul(second[0], since, out=terms[6])
        torch.mul(terms[3], since_own, out=terms[7])
        by_squares = (first[1] + second[1]).div_(h2).div_(2)
        torch.mul(squares, by_squares, out=terms[8:11])
    if change:
        torch.add(first[2], second[2], out=terms[11])


@cache
def _usual_exponents(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return A, b and |A|' of exp(A logs + b), which is s_1, s_2, s_4, s_3, u_1, v_1, ..., v_4."""
    A, b = torch.zeros(10, 8, dtype=dtype), torch.zeros(10, dtype=dtype)
    A[range(4), [0, 1, 3, 2]] = 1.0
    A[[4, 6, 7, 9], [4, 5, 6, 7]] = -1.0
    b[[5, 8]] = -torch.inf
    return tuple(on_device(array.numpy(), device) for array in (A, b, A.abs().T))


def _zeros() -> Tensor:
    return torch.zeros(2, dtype=torch.float64)


@dataclass(frozen=True)
class Form:
    """The form of the terms between tiles in a `TileProcess`.

    `stretch` (2,) is (a, b). `powers` (2,) is (p, q); with p = 0, the second term is separable.
    `smoothness` is that of the Matérn correlation, a scalar.
    """

    stretch: Tensor = field(default_factory=_zeros)
    powers: Tensor = field(default_factory=_zeros)
    smoothness: Tensor = field(default_factory=lambda: torch.tensor(ROUGH, dtype=torch.float64))

    def detached(self) -> "Form":
        """Return a copy without gradients."""
        tensors = self.stretch, self.powers, self.smoothness
        return Form(*(tensor.detach().clone() for tensor in tensors))

    def nothing(self) -> "Form":
        """Return the usual form, with tensors on the same device."""
        rough = torch.full_like(self.smoothness, ROUGH)
        return Form(torch.zeros_like(self.stretch), torch.zeros_like(self.powers), rough)

    @cached_property
    def separable(self) -> bool:
        """Whether the second term is separable."""
        return not bool(self.powers[0])

    @cached_property
    def usual(self) -> bool:
        """Whether this is the form with exponentials, the same in all directions."""
        rough = float(self.smoothness.detach()) == ROUGH
        return self.separable and rough and not bool(self.stretch.any())

    @property
    def metric(self) -> Tensor:
        """The factors (3,) of x², 2 x y and y² in h² for a difference (x, y) of places."""
        a, b = self.stretch.unbind()
        size = (a.square() + b.square() + NO_LENGTH).sqrt()
        even, odd = size.cosh(), size.sinh() / size
        xx, xy, yy = even + odd * a, odd * b, even - odd * a
        return torch.stack([xx.square() + xy.square(), xy * (xx + yy), xy.square() + yy.square()])

    def shared(
        self, log_h: Tensor, t: Tensor, log_sills: tuple[Tensor, Tensor], log_lengths: Tensor
    ) -> Tensor:
        """Return the sum of the first two terms for log distances and times, all of one shape.

        `log_lengths` (3,) are the logarithms of l_1, l_2 and τ_2.
        """
        near, fast, memory = log_lengths.unbind()
        s1, s2 = (value.exp() for value in log_sills)
        first = s1 * matern(log_h - near, self.smoothness)
        log_r = log_h - fast
        p, q = self.powers.unbind()
        later = t > 0
        log_t = torch.where(later, torch.where(later, t, 1.0).log() - memory, NO_TIME)
        log_psi = softplus(2 * p * log_t, threshold=40.0)  # log(1 + exp), a sum beyond 40
        return first + s2 * matern(log_r - q / 2 * log_psi, self.smoothness) * (-log_psi).exp()


def _lags(a: Tensor, b: Tensor) -> Tensor:
    """Return an array (3, ..., m, n) of which [1] are distances in km and [2] absolute times."""
    a, b = (points[..., :3].movedim(-1, 0).contiguous() for points in (a, b))
    lags = a[..., :, None] - b[..., None, :]
    torch.hypot(lags[0], lags[1], out=lags[1])
    lags[2].abs_()
    return lags
