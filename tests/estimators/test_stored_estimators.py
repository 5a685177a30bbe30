"""Files of estimators whose description or tensors were edited, with a right hash."""

import copy
import warnings

import numpy as np
import pytest
import torch
from estimator_worlds import TINY, made_points

from geogp import ClassGP, DeepBasisGP, FieldGP, load_model
from geogp.errors import DataError
from geogp.models.fitting import few_rows
from geogp.models.numerics.tensor_files import read_tensors, write_tensors

WRONG = [None, "x", [], {}, True, -1, 1e300, 10**30, [[1]]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder with the files of a field, a deep and a class model."""
    folder, points = tmp_path_factory.mktemp("saved"), made_points(60)
    plain = {"x": "east", "y": "north", "crs": None, "time": "date"}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(few_rows, "FOLDS", 3)  # files do not depend on them
        for name, model in (
            ("field", FieldGP(**plain, tests="tests", **TINY)),
            ("deep", DeepBasisGP(**plain, **TINY)),
        ):
            model.fit(points, points.value).save(folder / name)
        classes = ClassGP(columns=["east", "north"], **TINY)
        classes.fit(points, np.where(points.value > 0, "high", "low")).save(folder / "class")
    return folder


def _refused(saved, name, *, described=None, tensors=None, match=None):
    kept, text = read_tensors(saved / name)
    path = saved / "edited"
    write_tensors(path, kept if tensors is None else tensors, described or text)
    with pytest.raises(DataError, match=match):
        load_model(path)


def _set(described, place, value):
    found = copy.deepcopy(described)
    *parents, last = place.split(".")
    node = found
    for key in parents:
        node = node[key]
    node[last] = value
    return found


@pytest.mark.parametrize(
    ("place", "value", "match"),
    [
        ("context.inputs.bounds", [9, 0, 1, 9], "west < east and south < north"),
        ("context.inputs.bounds", [-1e300, 0, 1e300, 9], r"inputs\.bounds"),
        ("context.inputs.bounds", [0, 0, 1], r"inputs\.bounds"),
        ("context.inputs.quarters", [9, 8], "first time < last time"),
        ("context.inputs.km", -1.0, r"inputs\.km"),
        ("context.inputs.km", None, "expected km for coordinates in a plane"),
        ("context.inputs.time_kind", "fortnight", r"inputs\.time_kind"),
        ("context.inputs.providers", [1, 2], r"inputs\.providers"),
        ("context.inputs.providers", ["A", "A"], "expected different names"),
        ("context.inputs.providers", ["A", "B"], "expected the inputs"),
        ("context.params.x", 5, "expected x as text, found 5"),
        ("context.params.time", None, "expected the inputs"),
        ("context.params.time_unit", "fortnight", "unknown time_unit 'fortnight'"),
        ("context.params.crs", "EPSG:99999", "a coordinate reference system such as"),
        ("context.params.crs", "EPSG:4326", "expected km for coordinates in a plane"),
        ("context.params.epochs", -1, "expected epochs from 1"),
        ("context.params.rank", True, "expected rank as a whole number"),
        ("context.params.preset", "huge", "unknown preset"),
        ("context.n_features_in", 0, "n_features_in"),
        ("context.n_features_in", 10**9, "n_features_in"),
        ("context.best_epoch", -1, "best_epoch"),
        ("context.feature_names_in", [[]], "feature_names_in"),
        ("architecture.units", [1e300, 1.0, 1.0], "units above 0"),
        ("architecture.columns", [1, 2, 3], "expected columns as a list, each text"),
        ("architecture.providers", 2, "expected providers from 0 to 0"),
    ],
)
def test_an_edited_description_is_refused(saved, place, value, match):
    described = read_tensors(saved / "deep")[1]
    _refused(saved, "deep", described=_set(described, place, value), match=match)


@pytest.mark.parametrize("name", ["field", "deep", "class"])
def test_no_edit_of_a_description_ends_in_another_error(saved, name):
    """Each value is replaced by values of wrong kinds, which are refused or make no difference."""
    kept, described = read_tensors(saved / name)
    places = [
        *(f"architecture.{key}" for key in described["architecture"]),
        *(f"context.{key}" for key in described["context"]),
        *(f"context.params.{key}" for key in described["context"]["params"]),
        *(f"context.inputs.{key}" for key in described["context"].get("inputs", ())),
    ]
    refused = 0
    for place in places:
        for value in WRONG:
            write_tensors(saved / "edited", kept, _set(described, place, value))
            try:
                load_model(saved / "edited")
            except DataError:
                refused += 1
    assert refused > 0.7 * len(places) * len(WRONG)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("y_sd", 0.0, "y_sd and widening above 0"),
        ("x_high", -2.0, "x_low below x_high"),
        ("widening", -1.0, "y_sd and widening above 0"),
        ("tiles.stretch", 1e30, "expected a stretch from -50 to 50"),
        ("noise.counts_range", 0.0, "expected counts of 1 or more"),
        ("noise.well_measured", 0.0, "expected counts of 1 or more"),
        ("rows.counts", 0.0, "counts of 1 or more"),
        ("near_places", 10**6, "numbers of near places within"),
        ("near_places", -1, "numbers of near places within"),
        ("rows.y", float("inf"), r"the tensor rows\.y in .* is not finite"),
    ],
)
def test_an_edited_tensor_is_refused(saved, name, value, match):
    tensors = read_tensors(saved / "field")[0]
    edited = tensors | {name: torch.full_like(tensors[name], value)}
    _refused(saved, "field", tensors=edited, match=match)


def test_rows_of_different_numbers_are_refused(saved):
    tensors = read_tensors(saved / "field")[0]
    for name in ("rows.x", "rows.y", "rows.counts"):
        edited = tensors | {name: tensors[name][:-1].clone()}
        _refused(saved, "field", tensors=edited, match="expected equally many inputs")


def test_weights_that_give_no_prediction_are_an_error_of_geogp(saved):
    from geogp.errors import NumericalError

    tensors, described = read_tensors(saved / "field")
    heads = tensors["noise.heads"].clone()
    heads[:] = -1e30
    write_tensors(saved / "edited", tensors | {"noise.heads": heads}, described)
    with pytest.raises(NumericalError, match="not finite"):
        load_model(saved / "edited").predict_distribution(made_points(60).head(3))
