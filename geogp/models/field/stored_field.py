"""The tensors of a saved field, and the parts of the field from them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from geogp.errors import DataError
from geogp.models.field.home import Home
from geogp.models.field.learned_home import at_rows, learned_home
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.prediction_errors import FieldErrors
from geogp.models.field.predictive_law import LAW_ARRAYS, PredictiveLaw
from geogp.models.field.rows import FieldRows, by_place
from geogp.models.field.vecchia import PREDICTION_PLACES, TRAINING_PLACES
from geogp.models.numerics.tensor_files import with_added
from geogp.models.process.rows import Rows

STORED_ROWS = ("x", "y", "counts")
"""Arrays of `FieldRows` in a saved field; the others follow from these."""

LAWS = ("law", "networks_law")
"""Attributes of `FieldErrors` that are laws; the names of their tensors start with these."""

HOME = ("range_km", "doubt_km", "doubt_power", "variance", "doubt", "trend")
"""Attributes of `Home` in its tensor: three above 0, two variances, and whether it has a trend."""

EARLIER_TENSOR = "shape_coefficients"
"""A field with this tensor is of a version whose predictions differed."""

LEVEL_COUNTS, RANGE = "noise.well_measured", "noise.counts_range"
"""Names of the counts of the level, which in earlier versions were the largest in the range."""

ADDED_TENSORS = (
    ("widening",),
    ("law_hidden", "law_outputs", "near_places"),
    ("networks",),
    ("tiles.stretch", "tiles.powers", "tiles.smoothness"),
    ("home", "reach_km"),
)
"""First letters of the names of tensors that files of earlier versions lack; see `with_added`."""


def tensors_of(
    parameters: FieldParameters, rows: FieldRows, errors: FieldErrors, drift: Tensor
) -> dict[str, Tensor]:
    """Return the tensors of a saved field, by name."""
    return (
        parameters.state_dict()
        | {f"rows.{name}": getattr(rows, name) for name in STORED_ROWS}
        | _other_tensors(errors, drift, rows.seed, rows.numbers, rows.home)
    )


def restored(
    parameters: FieldParameters, tensors: Mapping[str, Tensor]
) -> tuple[FieldRows, FieldErrors, Tensor]:
    """Load the tensors of a file into untrained parameters; return rows, errors and drift.

    Rows of earlier versions may have another order: their crowded places were not divided into
    series of times. Raises ValueError or RuntimeError if the tensors do not fit, and DataError if
    they are of a version whose predictions differed. The home of a field of an earlier version is
    learned from its rows.
    """
    if EARLIER_TENSOR in tensors:
        raise DataError(
            "the field model was saved by an earlier version of geogp. Map the region again; the "
            "predictions and maps of the run stay readable."
        )
    start, learned = _start_tensors(parameters), "home" in tensors
    if RANGE in tensors:
        tensors = {LEVEL_COUNTS: tensors[RANGE][-1].clone()} | dict(tensors)
    tensors = with_added(tensors, start, ADDED_TENSORS)
    _check_shapes(tensors, start)
    # In their own dtypes, from which `TileProcess` knows how earlier versions stored its form.
    parameters.load_state_dict({name: tensors[name] for name in parameters.state_dict()})
    tensors = {name: tensors[name].to(value.dtype) for name, value in start.items()}
    rows = _restored_rows(parameters, tensors)
    home = _restored_home(rows, tensors) if learned else learned_home(parameters, rows)
    return rows.going(home), _restored_errors(parameters, tensors), tensors["drift"]


def _start_tensors(parameters: FieldParameters) -> dict[str, Tensor]:
    """Return the tensors of a field without rows."""
    sizes, double = parameters.architecture, torch.float64
    rows = {
        "rows.x": torch.zeros(0, len(sizes.used), dtype=sizes.torch_dtype),
        "rows.y": torch.zeros(0, dtype=double),
        "rows.counts": torch.zeros(0, 2, dtype=double),
    }
    numbers = TRAINING_PLACES[0], PREDICTION_PLACES[0]
    errors, drift = FieldErrors.none(parameters), torch.zeros(2, dtype=double)
    home = Home.nowhere(rows["rows.x"])
    return parameters.state_dict() | rows | _other_tensors(errors, drift, 0, numbers, home)


def _check_shapes(tensors: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless names and shapes are those of `start`; rows may be more."""
    missing, unknown = sorted(set(start) - set(tensors)), sorted(set(tensors) - set(start))
    if missing or unknown:
        raise ValueError(f"missing tensors {missing}, unknown tensors {unknown}")
    for name, value in start.items():
        first = 1 if name.startswith("rows.") else 0
        shape = tensors[name].shape
        if len(shape) != value.dim() or shape[first:] != value.shape[first:]:
            raise ValueError(f"expected {name} of shape {tuple(value.shape)}, found {tuple(shape)}")


def _other_tensors(
    errors: FieldErrors, drift: Tensor, seed: int, numbers: tuple[int, int], home: Home
) -> dict[str, Tensor]:
    """Return the tensors of a saved field that belong to neither parameters nor rows."""
    laws: dict[str, Tensor] = {}
    for name in LAWS:
        law: PredictiveLaw = getattr(errors, name)
        laws |= {f"{name}_{end}": torch.as_tensor(getattr(law, end)) for end in LAW_ARRAYS}
        laws[f"{name}_tail"] = torch.tensor(law.most_tail, dtype=torch.float64)
    networks = {f"networks.{name}": value for name, value in errors.networks.state_dict().items()}
    return {
        **laws,
        **networks,
        "drift": drift,
        "networks_share": torch.tensor(errors.networks_share, dtype=torch.float64),
        "order_seed": torch.tensor(seed),
        "near_places": torch.tensor(numbers),
        "home": torch.tensor([getattr(home, name) for name in HOME], dtype=torch.float64),
        "reach_km": torch.tensor(errors.reach_km, dtype=torch.float64),
    }


def _restored_rows(parameters: FieldParameters, tensors: Mapping[str, Tensor]) -> FieldRows:
    """Return the rows of the tensors; raise ValueError if a value is out of range."""
    x, y, counts = (tensors[f"rows.{name}"] for name in STORED_ROWS)
    if not len(x) == len(y) == len(counts) > 0 or not bool((counts >= 1).all()):
        raise ValueError(
            f"expected equally many inputs, targets and counts, one or more, and counts of 1 or "
            f"more, found {len(x)}, {len(y)} and {len(counts)}"
        )
    seed, numbers = int(tensors["order_seed"]), tuple(tensors["near_places"].tolist())
    bounds = zip(numbers, (TRAINING_PLACES, PREDICTION_PLACES), strict=True)
    if seed < 0 or not all(low <= n <= high for n, (low, high) in bounds):
        raise ValueError(
            f"expected a seed of 0 or more and numbers of near places within "
            f"{TRAINING_PLACES} and {PREDICTION_PLACES}, found {seed} and {list(numbers)}"
        )
    rows, sites = by_place(parameters, Rows(x, y, counts))
    stored = FieldRows.of(parameters, rows, sites, seed)
    same_order = bool((np.diff(sites.order) == 1).all())
    return replace(stored, numbers=numbers) if same_order else stored


def _restored_home(rows: FieldRows, tensors: Mapping[str, Tensor]) -> Home:
    """Return the home of the tensors; raise ValueError if a value is out of range."""
    home = dict(zip(HOME, tensors["home"].tolist(), strict=True))
    ranges, variances = ([home[name] for name in names] for names in (HOME[:3], HOME[3:5]))
    if not (min(ranges) > 0 and min(variances) >= 0 and home["trend"] in {0.0, 1.0}):
        raise ValueError(
            f"expected ranges and a power above 0, variances of 0 or more and a trend of 0 or 1, "
            f"found "
            f"{', '.join(f'{name} {value:g}' for name, value in home.items())}"
        )
    home["trend"] = bool(home["trend"])
    return at_rows(replace(Home.nowhere(rows.x), **home), rows)


def _restored_errors(parameters: FieldParameters, tensors: Mapping[str, Tensor]) -> FieldErrors:
    """Return the errors of the tensors; raise ValueError if a value is out of range."""
    share, reach = float(tensors["networks_share"]), float(tensors["reach_km"])
    if not (0 <= share <= 1 and reach > 0):
        raise ValueError(
            f"expected a share from 0 to 1 and a reach above 0, found {share:g} and {reach:g}"
        )
    laws = {}
    for law in LAWS:
        arrays = {end: tensors[f"{law}_{end}"].numpy() for end in LAW_ARRAYS}
        laws[law] = PredictiveLaw(**arrays, most_tail=float(tensors[f"{law}_tail"]))
        if not (laws[law].ranges[3] > 0).all():
            raise ValueError("expected standard deviations of covariates above 0")
    networks = FieldErrors.none(parameters).networks
    networks.load_state_dict({name: tensors[f"networks.{name}"] for name in networks.state_dict()})
    return FieldErrors(networks=networks, networks_share=share, reach_km=reach, **laws)
