"""The estimator of classes: labels, columns, members, files, and scikit-learn's conventions."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from geogp import ClassGP, DataError, RequestError, load_model
from geogp.distributions.class_prediction import ClassPrediction
from geogp.models.catalogue.storage import load_models, save_models

TINY = {"epochs": 8, "rank": 20}
NAMES = np.array(["fast", "none", "slow"])


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, (300, 2))
    found = pd.DataFrame({"east": x[:, 0], "north": x[:, 1], "same": 1.0})
    found["class"] = NAMES[(x[:, 0] > 30).astype(int) + (x[:, 0] > 70)]
    return found


@pytest.fixture(scope="module")
def fitted(table) -> ClassGP:
    return ClassGP("class-rbf", columns=["east", "north", "same"], **TINY).fit(
        table, table["class"]
    )


def test_classes_are_found(fitted, table):
    assert fitted.classes_.tolist() == sorted(NAMES)
    assert fitted.score(table, table["class"]) > 0.9
    p = fitted.predict_proba(table)
    assert p.sum(1) == pytest.approx(1)
    assert (fitted.classes_[p.argmax(1)] == fitted.predict(table)).all()
    law = fitted.predict_distribution(table)
    assert isinstance(law, ClassPrediction)
    far = table.assign(north=1000.0)
    assert (
        fitted.predict_distribution(far).mutual_information.mean() > law.mutual_information.mean()
    )


def test_columns_are_found_by_name_and_others_do_not_matter(fitted, table):
    shuffled = table[["north", "class", "same", "east"]].assign(more="text")
    assert (fitted.predict_proba(shuffled) == fitted.predict_proba(table)).all()
    assert fitted.n_features_in_ == 3
    assert fitted.feature_names_in_.tolist() == ["east", "north", "same"]
    assert fitted.networks_[0].architecture.dropped == ("x2",)
    with pytest.raises(RequestError, match="found no column east"):
        fitted.predict(table.drop(columns="east"))
    with pytest.raises(RequestError, match="expected a table"):
        fitted.predict(table[["east", "north"]].to_numpy())
    with pytest.raises(RequestError, match=r"expected columns= as names, found \['a'\]"):
        ClassGP(columns=[["a"]]).fit(pd.DataFrame({"a": [0.0, 1.0]}), [0, 1])


def test_a_table_without_named_columns_uses_all(table):
    inputs = table[["east", "north"]]
    model = ClassGP("class-dnn", **TINY).fit(inputs, table["class"])
    assert (model.predict(inputs[["north", "east"]]) == model.predict(inputs)).all()


def test_the_validation_rows_are_a_tenth_of_each_class(fitted, table):
    shares = table["class"][fitted.validation_].value_counts() / table["class"].value_counts()
    assert shares.to_numpy() == pytest.approx(0.1, abs=0.01)
    mask = (table["east"] < 10).to_numpy()
    model = ClassGP("class-dnn", columns=["east"], validation=mask, **TINY)
    assert (model.fit(table, table["class"]).validation_ == mask).all()


def test_the_members_of_an_ensemble_are_averaged(table):
    x, y = table[["east", "north"]].to_numpy(), table["class"]
    model = ClassGP("class-dnn-student", members=3, **TINY).fit(x, y)
    single = [one.predict(x).probabilities for one in model.networks_]
    assert model.predict_proba(x) == pytest.approx(np.mean(single, 0))
    assert len(model.history_) == 3
    assert len({float(one.readout_scale) for one in model.networks_}) == 3
    again = ClassGP("class-dnn-student", members=3, **TINY).fit(x, y)
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    other = ClassGP("class-dnn-student", members=3, random_state=1, **TINY).fit(x, y)
    scales = [float(one.readout_scale) for found in (model, other) for one in found.networks_]
    assert len(set(scales)) == 6


def test_a_class_may_have_no_rows(table):
    x = table[["east"]].to_numpy()
    model = ClassGP("class-rbf", classes=[3, 1, 2], **TINY).fit(x, np.where(x[:, 0] > 50, 1, 3))
    assert model.classes_.tolist() == [1, 2, 3]
    p = model.predict_proba(x)
    assert (p[:, 1] > 0).all()
    assert p[:, 1].max() < 0.2
    with pytest.raises(DataError, match=r"found also \[4\]"):
        model.fit(x, np.where(x[:, 0] > 50, 1, 4))


@pytest.mark.parametrize("labels", [[True, False], [7, -3], ["b", "a"], [2.0, 4.0]])
def test_any_labels_come_back_from_a_file(labels, table, tmp_path):
    x = table[["east"]].to_numpy()
    y = np.where(x[:, 0] > 50, labels[0], labels[1])
    model = ClassGP("class-dnn", members=2, **TINY).fit(x, y)
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert repr(again) == repr(model.set_params(device="auto"))
    assert (again.predict(x) == model.predict(x)).all()
    assert again.predict(x).dtype == model.predict(x).dtype
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert [one.best_epoch for one in again.history_] == [one.best_epoch for one in model.history_]


def test_a_table_and_a_mask_come_back_from_a_file(fitted, table, tmp_path):
    fitted.save(tmp_path / "one.safetensors")
    again = load_model(tmp_path / "one.safetensors")
    assert (again.predict_proba(table) == fitted.predict_proba(table)).all()
    mask = np.arange(300) < 30
    other = ClassGP("class-dnn", columns=("east",), validation=mask, **TINY)
    other.fit(table, table["class"]).save(tmp_path / "two.safetensors")
    assert load_model(tmp_path / "two.safetensors").validation == "random"


def test_a_file_with_another_number_of_models_is_refused(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    networks, context = load_models(path)
    save_models([networks[0], deepcopy(networks[0])], path, context)
    with pytest.raises(DataError, match="does not describe its classes"):
        load_model(path)


class TestManners:
    def test_clone_and_parameters(self):
        model = ClassGP("class-bll", members=2)
        assert clone(model).get_params() == model.get_params()
        assert repr(model) == "ClassGP(model='class-bll', members=2)"

    def test_cross_validation(self, table):
        model = ClassGP("class-dnn", columns=["east"], **TINY)
        assert (cross_val_score(model, table, table["class"], cv=3) > 0.5).all()

    @pytest.mark.trial
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_scikit_learns_checks(self):
        reason = f"it looks for a class of scikit-learn's ({NotFittedError.__name__} and others)"
        unfit = {
            "check_estimators_unfitted": reason,
            "check_supervised_y_2d": reason,
            "check_dtype_object": "a value that is no number raises DataError, a ValueError",
        }
        found = check_estimator(
            ClassGP("class-dnn", epochs=20),
            expected_failed_checks=unfit,
            on_skip=None,
            on_fail=None,
        )
        status = {check["check_name"]: check["status"] for check in found}
        assert {name for name, one in status.items() if one == "failed"} == set()
        assert {name for name, one in status.items() if one == "xfail"} == set(unfit)
        assert sum(one == "passed" for one in status.values()) > 40


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"model": "class-nngq"}, "Did you mean class-nngp"),
        ({"model": "dbk-rbf"}, "unknown model of classes"),
        ({"members": 0}, "members from 1"),
        ({"preset": "quik"}, "unknown preset"),
        ({"scaling": "max"}, "expected scaling as 'none' or 'minmax'"),
        ({"validation": "blocks"}, "validation as random, or a mask of 300 rows"),
        ({"validation": np.zeros(3, bool)}, "mask of 300 rows, found bool"),
        ({"epochs": 0}, "epochs from 1"),
        ({"random_state": -1}, "random_state"),
        ({"device": "tpu"}, "auto, cpu or cuda"),
    ],
)
def test_parameters_that_are_refused(table, parameters, match):
    with pytest.raises(RequestError, match=match):
        ClassGP(**{**TINY, **parameters}).fit(table[["east"]], table["class"])


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (lambda t: t["class"][:5], "expected 300 classes"),
        (lambda t: t["east"], "not whole"),
        (lambda t: t["east"].where(t.index > 3).round(), "finite classes"),
        (lambda _: None, "requires y"),
        (lambda _: np.zeros(300, int), "found one class"),
        (lambda t: t["class"].where(t.index > 3, None), "of one kind"),
    ],
)
def test_targets_that_are_refused(table, y, match):
    with pytest.raises(DataError, match=match):
        ClassGP("class-dnn", **TINY).fit(table[["east"]], y(table))


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (lambda t: t[["same"]], "has the same value in all"),
        (lambda t: t[["east"]].where(t[["east"]] > 3), "finite inputs"),
        (lambda t: t[["class"]], "found other objects"),
        (lambda t: t[["east"]].to_numpy()[:, 0], "Reshape your data"),
        (lambda t: t[["east"]].to_numpy()[:, :0], "minimum of 1"),
    ],
)
def test_inputs_that_are_refused(table, x, match):
    with pytest.raises(DataError, match=match):
        ClassGP("class-dnn", **TINY).fit(x(table), table["class"])


def test_a_mask_of_all_rows_is_refused(table):
    with pytest.raises(DataError, match="selects some of the rows"):
        ClassGP("class-dnn", validation=np.ones(300, bool)).fit(table[["east"]], table["class"])


def test_what_is_not_fitted_says_so(table, tmp_path):
    with pytest.raises(RequestError, match="not fitted yet"):
        ClassGP().predict(table)
    with pytest.raises(RequestError, match="not fitted yet"):
        ClassGP().save(tmp_path / "model.safetensors")


def test_other_widths_and_lengths_are_refused(table):
    x = table[["east", "north"]].to_numpy()
    model = ClassGP("class-dnn", **TINY).fit(x, table["class"])
    with pytest.raises(DataError, match="1 features, but ClassGP is expecting 2"):
        model.predict(x[:, :1])
    with pytest.raises(DataError, match="expected 300 classes"):
        model.score(x, table["class"][:5])


def test_a_table_with_numbered_columns_is_predicted_after_loading(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    table, sides = pd.DataFrame(x), np.where(x[:, 0] > 0, "east", "west")
    for columns in (None, table.columns, np.arange(2)):
        model = ClassGP(columns=columns, epochs=2, rank=np.int64(8), random_state=np.int64(3)).fit(
            table, sides
        )
        model.save(tmp_path / "model.safetensors")
        again = load_model(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))


@pytest.mark.parametrize("name", ["columns", "classes"])
def test_a_text_is_no_list(name):
    with pytest.raises(RequestError, match=f"expected {name} as a list or None, found 'ab'"):
        ClassGP(**{name: "ab"}).fit(np.zeros((4, 2)), [0, 1, 0, 1])


def test_classes_to_score_are_of_the_kind_of_the_fit():
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    model = ClassGP(epochs=2, rank=8).fit(x, x[:, 0] > 0)
    with pytest.raises(DataError, match="expected classes like False, found 'True'"):
        model.score(x, (x[:, 0] > 0).astype(str))
    with pytest.raises(DataError, match="found one class"):
        ClassGP(classes=[]).fit(x, x[:, 0] > 0)
