"""Prediction from the rows near a place, and covariates of the errors from these rows."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from geogp.models.field import vecchia
from geogp.models.field.blocks import NearRows, RowTerms
from geogp.models.field.tile_process import SAME_TILE_KM, STRIPE
from geogp.models.field.vecchia import NO_ROW, NearSites, whiten
from geogp.models.numerics.devices import CHUNK, on_device
from geogp.models.numerics.threads import chunks
from geogp.models.process.lowrank import Single

if TYPE_CHECKING:
    from geogp.models.field.stored_process import FieldProcess


Floats = NDArray[np.float64]


class WeightPosterior(NamedTuple):
    """Posterior of the weights of the field: mean m (r,), and factor L (r, r) of the covariance."""

    m: Tensor
    L: Tensor


class Conditional(NamedTuple):
    """Predictions of rows given near rows, for a standardised target; arrays are (b,) float64.

    `mean`: the mean. `field`, `tile`, `noise`: the variances of field, tile process and noise.
    `history`: covariates from the near rows, (b, 5); see `history_of`.
    """

    mean: Tensor
    field: Tensor
    tile: Tensor
    noise: Tensor
    history: Tensor


class Conditionals(NamedTuple):
    """Predictions at given inputs, and at the same inputs within the times of the stored rows.

    `networks` are the networks' means and log standard deviations for infinitely many tests, (n,)
    each, `asked` the arrays of `ASKED`, and `distance` the mean distance to other places, (n,); see
    `FieldProcess.distance_to_others`. They are optional.
    """

    found: Conditional
    within: Conditional
    networks: tuple[Floats, ...] = ()
    asked: tuple[Floats, ...] = ()
    distance: Floats | None = None

    @classmethod
    def of(cls, single: Single | None, device: torch.device) -> "Conditionals | None":
        """Return the predictions that `FieldNetwork.single` returned; None if there are none."""
        if not single:
            return None
        found = Conditional(*(single[name].to(device) for name in Conditional._fields))
        networks, asked = (_arrays(single, names) for names in (NETWORKS, ASKED))
        return cls(found, found, networks, asked, *_arrays(single, (DISTANCE,)))


def single_of(
    found: Conditional, distance: Floats, predicted: Floats | None = None, *asked: Tensor
) -> Single:
    """Return tensors from which `Conditionals.of` restores the predictions of the level.

    `predicted` (1 + k, 2, n) are the networks' predictions for infinitely many tests, and for the
    k counts `asked` (n, 2), of which at most one is allowed.
    """
    single = found._asdict() | {DISTANCE: torch.as_tensor(distance)}
    if predicted is not None:
        tensors = torch.as_tensor(predicted)
        single |= zip(NETWORKS, tensors[0], strict=True)
        for counts, pair in zip(asked, tensors[1:], strict=True):
            single |= zip(ASKED, (*counts.T.cpu(), *pair), strict=True)
    return single


def _arrays(single: Single, names: tuple[str, ...]) -> tuple[Floats, ...]:
    """Return the arrays with these names, (n,) each; none if one is missing."""
    known = set(names) <= set(single)
    return tuple(single[name].numpy() for name in names) if known else ()


NETWORKS = "network_mean", "network_log_sd"
"""Names of the networks' predictions for infinitely many tests in `Single`."""

ASKED = "asked_tests", "asked_devices", "asked_mean", "asked_log_sd"
"""Names of other counts in `Single`, and of the networks' predictions for these counts."""

DISTANCE = "distance"
"""Name of the mean distance to other places in `Single`."""

HISTORY = 5
"""Number of covariates from the near rows."""

PATCH = 1.5
"""A patch of several tiles has this many times the rows and places of a single tile."""


def near_rows(
    model: "FieldProcess",
    points: Floats,
    *,
    among: NearSites | None = None,
    without: NDArray[np.int64] | None = None,
    patch: Tensor | None = None,
) -> NearRows:
    """Return the stored rows that condition predictions at points (b, 3), or in b patches.

    Among the rows of the nearest places, these have the largest prior correlation with the
    point. `among` are the places to search, by default all. `without` (b,) is a row to leave
    out for each point. `patch` (b, g) marks the points (b, g, 3) of patches; a row then has its
    largest correlation with a point of the patch, and a patch has `PATCH` times as many rows.
    """
    search, most, places = among or model.sites, vecchia.PREDICTION_ROWS, model.searched
    at = points if patch is None else _centres(points, patch.cpu().numpy())
    if patch is not None and patch.shape[1] > 1:
        most, places = int(PATCH * most), int(PATCH * places)
    found = search.rows(at, places)
    if without is not None:
        found[found == without[:, None]] = NO_ROW
    near = NearRows.of(found, model.device)
    if found.shape[1] <= most:
        return near
    held = model.points(model.rows.x[near.distinct])[near.at]
    asked = on_device(points, model.device)
    prior = model.tiles(asked[:, None] if patch is None else asked, held)
    if patch is not None:
        prior = prior.masked_fill(~patch[..., None], -torch.inf)
    prior = torch.where(near.known, prior.amax(1), -torch.inf)
    # A stable order: the choice among equal rows must not depend on the other points.
    order = prior.sort(dim=1, descending=True, stable=True).indices
    best = order[:, :most]
    return near._replace(at=near.at.gather(1, best), known=near.known.gather(1, best))


def _centres(points: Floats, known: Floats) -> Floats:
    """Return the mean of the known points (b, g, 3) of each patch, (b, 3)."""
    found: Floats = (points * known[..., None]).sum(1) / known.sum(1)[:, None]
    return found


class NearTerms(NamedTuple):
    """Terms of the u distinct near rows of b points, followed by those of the points.

    `points` (u + b, 3); `terms` and `spread`, which is Phi L, also have u + b rows. `told` (u, 1 +
    r) has the targets minus their means, and Phi L. `log_tests` has u rows.
    """

    near: NearRows
    points: Tensor
    terms: RowTerms
    spread: Tensor
    told: Tensor
    log_tests: Tensor

    @classmethod
    def of(
        cls,
        model: "FieldProcess",
        x: Tensor,
        counts: Tensor,
        near: NearRows,
        weights: WeightPosterior,
    ) -> "NearTerms":
        """Compute the terms for scaled inputs (b, d) with counts (b, 2) and near rows (b, m)."""
        held, behind = model.rows.x[near.distinct], model.rows.counts[near.distinct]
        inputs = torch.cat([held, x])
        terms = model.row_terms(inputs, torch.cat([behind, counts]), weights.m)
        spread = (terms.phi @ weights.L.to(terms.phi.dtype)).double()
        deviations = model.rows.y[near.distinct] - terms.mean[: len(held)]
        told = torch.cat([deviations[:, None], spread[: len(held)]], 1)
        return cls(near, model.points(inputs), terms, spread, told, behind[:, 0].log())


def given_rows(
    model: "FieldProcess",
    x: Tensor,
    counts: Tensor,
    near: NearRows,
    weights: WeightPosterior,
    *,
    history: bool = True,
) -> Conditional:
    """Predict scaled inputs (b, d) with counts (b, 2) from the stored rows `near` (b, m).

    If `history` is false, the covariates from the near rows are 0.
    """
    terms = NearTerms.of(model, x, counts, near, weights)
    parts = [
        _given(model, x, terms, part, history=history)
        for part in chunks(len(x), model.blocks_at_once)
    ]
    return Conditional(*map(torch.cat, zip(*parts, strict=True)))


def _given(
    model: "FieldProcess", x: Tensor, terms: NearTerms, part: slice, *, history: bool
) -> Conditional:
    """Predict a part of the inputs `x`."""
    b, rows = len(terms.near.at), len(terms.told)
    back, known = terms.near.at[part], terms.near.known[part]
    here = torch.arange(rows, rows + b, device=x.device)[part]
    amplitude, noise = terms.terms.amplitude, terms.terms.noise
    # Dividing by the amplitude at the rows saves the product D K D.
    prior = model.tiles.lower_at(terms.points, back)
    correlation = model.tiles(terms.points[back], terms.points[here][:, None])
    cross = correlation * amplitude[here][:, None, None]
    errors = (terms.told[:, 0] / amplitude[:rows])[back]
    columns = torch.cat([cross, errors[..., None]], 2)
    factor, white = whiten(prior, (noise / amplitude.square())[back], known, columns)
    tile = amplitude[here].square() * model.tiles.variance() - white[..., 0].square().sum(1)
    # There are few columns to solve for, whatever the rank; padding has the weight 0.
    solved = torch.linalg.solve_triangular(factor.mT, white, upper=True)
    shares = solved[..., 0] / amplitude[back]
    shared = embedding_bag(back, terms.told, mode="sum", per_sample_weights=shares)
    field = (terms.spread[here] - shared[:, 1:]).square().sum(-1) + model.beyond(x[part])
    covariates = tile.new_zeros(len(tile), HISTORY)
    if history:
        away = (terms.points[back] - terms.points[here][:, None])[..., :2]
        covariates = history_of(
            left_out_errors(factor, solved[..., 1]),
            (correlation[..., 0] / model.tiles.variance()).masked_fill(~known, 0.0),
            (away.square().sum(-1) < SAME_TILE_KM**2) & known,
            terms.log_tests[back],
        )
    mean = terms.terms.mean[here] + shared[:, 0]
    return Conditional(mean, field, tile.clamp(min=0), terms.terms.noise[here], covariates)


def left_out_errors(factor: Tensor, solved: Tensor) -> Tensor:
    """Return standardised leave-one-out errors within blocks, (b, m).

    Each row is predicted from the other rows of its block. With e ~ N(0, K) and Q = K^(-1), the
    standardised errors are (Q e)_j / sqrt(Q_jj) (Dubrule 1983). `factor` (b, m, m) is the Cholesky
    factor L of K, and `solved` (b, m) is Q e.

    Q_jj is the sum of squares of column j of L^(-1), which is 0 above row j; on a CPU, the columns
    are computed in stripes, which takes less than half of the time.
    """
    m = factor.shape[-1]
    eye = torch.eye(m, dtype=factor.dtype, device=factor.device)
    diagonal = []
    for stripe in chunks(m, STRIPE if factor.device.type == "cpu" else m):
        low, columns = factor[:, stripe.start :, stripe.start :], eye[stripe.start :, stripe]
        inverse = torch.linalg.solve_triangular(
            low, columns.expand(len(low), *columns.shape), upper=False
        )
        diagonal.append(inverse.square().sum(-2))
    found: Tensor = solved / torch.cat(diagonal, -1).sqrt()
    return found


def history_of(errors: Tensor, correlation: Tensor, same: Tensor, log_tests: Tensor) -> Tensor:
    """Return covariates of the error at a place, computed from the near rows, (b, 5).

    Let z be the standardised leave-one-out errors of the near rows, n the number of near rows on
    the tile itself, and w the prior correlations of other near rows with the tile. The covariates
    are log((1 + Σ_own z²) / (1 + n)), log((1 + Σ w z²) / (1 + Σ w)), log(1 + n), Σ_own z / (1 + n),
    and a mean of log tests. This mean weights each near row by its correlation; it includes one
    extra row with one test. Without near rows, all covariates are 0. The inputs are (b, m).
    """
    own = same.to(errors.dtype)
    n = 1 + own.sum(1)
    others = correlation * (1 - own)
    support = 1 + others.sum(1)
    square = errors.square()
    return torch.stack(
        [
            ((1 + (own * square).sum(1)) / n).log(),
            ((1 + (others * square).sum(1)) / support).log(),
            n.log(),
            (own * errors).sum(1) / n,
            (correlation * log_tests).sum(1) / (1 + correlation.sum(1)),
        ],
        1,
    )


def without_rows(
    model: "FieldProcess", x: Tensor, counts: Tensor, weights: WeightPosterior
) -> Conditional:
    """Predict scaled inputs from the field alone, as `given_rows` does if no rows are near."""
    asked = model.row_terms(x, counts, weights.m)
    field = (asked.phi @ weights.L.to(asked.phi.dtype)).square().sum(-1).double()
    tile = asked.amplitude.square() * model.tiles.variance()
    nothing = torch.zeros(len(x), HISTORY, dtype=torch.float64, device=x.device)
    return Conditional(asked.mean, field, tile, asked.noise, nothing)


def with_counts(
    model: "FieldProcess", near: Conditionals, x: Tensor, counts: Tensor
) -> Conditionals:
    """Return predictions at scaled inputs `x` for other counts than infinitely many tests."""
    with torch.no_grad():
        pairs = zip(x.split(CHUNK), counts.split(CHUNK), strict=True)
        noise = torch.cat([model.row_terms(*pair).noise for pair in pairs])
        change = model.law.shift(counts) - model.law.shift(model.endless(1))
    found, within = (one._replace(mean=one.mean + change, noise=noise) for one in near[:2])
    known = bool(near.asked) and np.array_equal(near.asked[:2], counts.T.cpu().numpy())
    networks = near.asked[2:] if known else ()
    return near._replace(found=found, within=within, networks=networks, asked=())
