"""Prediction from the rows near a place, and covariates of the errors from these rows."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from geogp.models.field import vecchia
from geogp.models.field.blocks import NearRows, RowTerms
from geogp.models.field.conditioning import blocks_at_once
from geogp.models.field.home import Locations
from geogp.models.field.parameters import FieldParameters, WeightPosterior, numpy_of
from geogp.models.field.rows import FieldRows
from geogp.models.field.tile_process import SAME_TILE_KM, STRIPE
from geogp.models.field.vecchia import NO_ROW, NearSites, whiten
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.threads import chunks

Floats = NDArray[np.float64]


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


HISTORY = 5
"""Number of covariates of an error from the near rows; see `history_of`."""

PATCH = 1.5
"""A patch of several tiles has this many times the rows and places of a single tile."""


def near_rows(
    parameters: FieldParameters,
    rows: FieldRows,
    points: Floats,
    *,
    among: NearSites | None = None,
    without: NDArray[np.int64] | None = None,
    patch: Tensor | None = None,
) -> NearRows:
    """Return the rows that condition predictions at points (b, 3), or in b patches.

    Among the rows of the nearest places, these have the largest prior correlation with the
    point. `among` are the places to search, by default all. `without` (b,) is a row to leave
    out for each point. `patch` (b, g) marks the points (b, g, 3) of patches; a row then has its
    largest correlation with a point of the patch, and a patch has `PATCH` times as many rows.
    """
    most, places = vecchia.PREDICTION_ROWS, rows.numbers[1]
    at = points if patch is None else _centres(points, patch.cpu().numpy())
    if patch is not None and patch.shape[1] > 1:
        most, places = int(PATCH * most), int(PATCH * places)
    numbers = (among or rows.near).rows(at, places)
    if without is not None:
        numbers[numbers == without[:, None]] = NO_ROW
    near = NearRows.of(numbers, parameters.device)
    if numbers.shape[1] <= most:
        return near
    here = on_device(points, parameters.device)
    there = rows.points[near.distinct][near.at]
    prior = parameters.tiles(here[:, None] if patch is None else here, there)
    if patch is not None:
        prior = prior.masked_fill(~patch[..., None], -torch.inf)
    prior = torch.where(near.known, prior.amax(1), -torch.inf)
    # A stable order: the choice among equal rows must not depend on the other points.
    order = prior.sort(dim=1, descending=True, stable=True).indices
    best = order[:, :most]
    return near._replace(at=near.at.gather(1, best), known=near.known.gather(1, best))


def _centres(points: Floats, known: Floats) -> Floats:
    """Return the mean of the known points (b, g, 3) of each patch, (b, 3)."""
    centres: Floats = (points * known[..., None]).sum(1) / known.sum(1)[:, None]
    return centres


class NearTerms(NamedTuple):
    """Terms of the u distinct near rows of b points, followed by those of the points.

    `points` (u + b, 3); `terms` and `spread`, which is Phi L, also have u + b rows. `deviations`
    (u, 1 + r) has the targets minus their means, and Phi L. `log_tests` has u rows.
    """

    near: NearRows
    points: Tensor
    terms: RowTerms
    spread: Tensor
    deviations: Tensor
    log_tests: Tensor

    @classmethod
    def of(
        cls,
        parameters: FieldParameters,
        rows: FieldRows,
        x: Tensor,
        counts: Tensor,
        near: NearRows,
        *,
        weights: WeightPosterior,
        at: Locations,
    ) -> "NearTerms":
        """Compute the terms for scaled inputs (b, d) with counts (b, 2) and near rows (b, m).

        `at` are the locations of the inputs.
        """
        x_near, counts_near = rows.x[near.distinct], rows.counts[near.distinct]
        u = len(x_near)
        inside = rows.within(x, has_time=parameters.has_time)
        of_near, phi = parameters.basis.values(torch.cat([x_near, inside])).tensor_split([u])
        phi = torch.cat([of_near, rows.home.features(parameters, phi, inside, at)])
        logs = parameters.law.log_counts(torch.cat([counts_near, counts]))
        terms = parameters.terms_of(phi, logs, weights.m)
        spread = (terms.phi @ weights.L.to(terms.phi.dtype)).double()
        residuals = rows.y[near.distinct] - terms.mean[:u]
        deviations = torch.cat([residuals[:, None], spread[:u]], 1)
        return cls(
            near,
            parameters.points(torch.cat([x_near, x])),
            terms,
            spread,
            deviations,
            counts_near[:, 0].log(),
        )


def given_rows(
    parameters: FieldParameters,
    rows: FieldRows,
    x: Tensor,
    counts: Tensor,
    near: NearRows,
    *,
    weights: WeightPosterior,
    history: bool = True,
    at: Locations | None = None,
) -> Conditional:
    """Predict scaled inputs (b, d) with counts (b, 2) from the rows `near` (b, m).

    If `history` is false, the covariates from the near rows are 0. `at` are the locations of
    the inputs, if they are known; see `FieldRows.locations`.
    """
    at = at or rows.locations(numpy_of(parameters.points(x)))
    terms = NearTerms.of(parameters, rows, x, counts, near, weights=weights, at=at)
    blocks = [
        _given(parameters, terms, block, history=history)
        for block in chunks(len(x), blocks_at_once(parameters.device))
    ]
    joined = Conditional(*map(torch.cat, zip(*blocks, strict=True)))
    return joined._replace(field=joined.field + _unseen(rows, at))


def _unseen(rows: FieldRows, at: Locations) -> Tensor:
    """Return the variance of the error of the field far from the rows, (b,); see `home.py`."""
    return on_device(rows.home.variances(at), rows.x.device)


def _given(
    parameters: FieldParameters, terms: NearTerms, block: slice, *, history: bool
) -> Conditional:
    """Predict a block of the inputs."""
    tiles, b, u = parameters.tiles, len(terms.near.at), len(terms.deviations)
    back, known = terms.near.at[block], terms.near.known[block]
    here = torch.arange(u, u + b, device=back.device)[block]
    amplitude, noise = terms.terms.amplitude, terms.terms.noise
    # Dividing by the amplitude at the rows saves the product D K D.
    prior = tiles.lower_at(terms.points, back)
    correlation = tiles(terms.points[back], terms.points[here][:, None])
    cross = correlation * amplitude[here][:, None, None]
    errors = (terms.deviations[:, 0] / amplitude[:u])[back]
    columns = torch.cat([cross, errors[..., None]], 2)
    factor, white = whiten(prior, (noise / amplitude.square())[back], known, columns)
    tile = amplitude[here].square() * tiles.variance() - white[..., 0].square().sum(1)
    # There are few columns to solve for, whatever the rank; padding has the weight 0.
    solved = torch.linalg.solve_triangular(factor.mT, white, upper=True)
    shares = solved[..., 0] / amplitude[back]
    shared = embedding_bag(back, terms.deviations, mode="sum", per_sample_weights=shares)
    field = (terms.spread[here] - shared[:, 1:]).square().sum(-1)
    covariates = tile.new_zeros(len(tile), HISTORY)
    if history:
        away = (terms.points[back] - terms.points[here][:, None])[..., :2]
        covariates = history_of(
            left_out_errors(factor, solved[..., 1]),
            (correlation[..., 0] / tiles.variance()).masked_fill(~known, 0.0),
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
    errors: Tensor = solved / torch.cat(diagonal, -1).sqrt()
    return errors


def history_of(errors: Tensor, correlation: Tensor, same: Tensor, log_tests: Tensor) -> Tensor:
    """Return covariates of the error at a place, computed from the near rows, (b, 5).

    Let z be the standardised leave-one-out errors of the near rows, n the number of near rows on
    the tile itself, and w the prior correlations of other near rows with the tile. The covariates
    are log((1 + Σ_own z²) / (1 + n)), log((1 + Σ w² z²) / (1 + Σ w²)), log(1 + n),
    Σ_own z / (1 + n), and a mean of log tests. This mean weights each near row by its correlation;
    it includes one extra row with one test. The weights w² see a border from near by. Without near
    rows, all covariates are 0. The inputs are (b, m).
    """
    own = same.to(errors.dtype)
    n = 1 + own.sum(1)
    others = correlation.square() * (1 - own)
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
    parameters: FieldParameters,
    rows: FieldRows,
    x: Tensor,
    counts: Tensor,
    weights: WeightPosterior,
    *,
    at: Locations | None = None,
) -> Conditional:
    """Predict scaled inputs from the field alone, as `given_rows` does if no rows are near."""
    at = at or rows.locations(numpy_of(parameters.points(x)))
    terms = rows.terms(parameters, x, counts, weights.m, at)
    field = (terms.phi @ weights.L.to(terms.phi.dtype)).square().sum(-1).double()
    field = field + _unseen(rows, at)
    tile = terms.amplitude.square() * parameters.tiles.variance()
    nothing = torch.zeros(len(x), HISTORY, dtype=torch.float64, device=x.device)
    return Conditional(terms.mean, field, tile, terms.noise, nothing)
