"""The fitted field as an object: its device, its stored tensors, and the level it remembers."""

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmark_scripts import load
from field_worlds import grid, make_field, with_home
from scipy.spatial.distance import cdist
from torch import Tensor

from geogp.errors import DataError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field.fit import reach_of
from geogp.models.field.fitted import FittedField
from geogp.models.field.home import Home
from geogp.models.field.learned_home import learned_home
from geogp.models.field.measurement import ENDLESS
from geogp.models.field.parameters import FieldParameters
from geogp.models.field.prediction_errors import FieldErrors
from geogp.models.field.predictive_law import no_law
from geogp.models.joint.level import joint_level

second = load("speed.second_device")

HOME_NAMES = "home", "reach_km"
"""Names of the tensors of a field that say what it does far from its rows."""

LAW_NAMES = "law_", "networks_law_", "networks_share", "order_seed", "near_places", *HOME_NAMES
"""First letters of the names of the tensors that a field keeps as numbers and NumPy arrays."""

OUT_OF_RANGE = {
    "range_km": 0.0,
    "doubt_km": -1.0,
    "doubt_power": 0.0,
    "variance": -0.2,
    "doubt": -0.1,
    "trend": 0.5,
}
"""Numbers that a home cannot have, in the order of its tensor."""

PARTS = ("mean", "function_variance", "tile_variance", "noise_variance")


@pytest.fixture
def field() -> FittedField:
    """A field whose errors and networks differ from those before a fit."""
    made = make_field(5, 60)
    made = with_home(made, 3.0, 0.2, trend=True, doubt=0.1, doubt_km=4.0, doubt_power=2.0)
    law = no_law()
    law.coefficients[:2, 0] = 0.1, 0.3
    with torch.no_grad():
        made.errors.networks.last[:, -1] = 0.2
    errors = replace(made.errors, law=law, networks_share=0.3, reach_km=4.0)
    return replace(made, errors=errors, drift=torch.tensor([0.05, 0.01], dtype=torch.float64))


def _same(one: FittedField, other: FittedField, **close: float) -> None:
    """Compare predictions of two fields, also far from the rows and after their times."""
    for x in (grid(5), grid(5, 2.0), np.add(grid(5), [1.5, 0, 0])):
        for how in ({"level": True}, {"tests": 4.0, "devices": 2.0}):
            first, second = one.predict(x, **how), other.predict(x, **how)
            for part in PARTS:
                np.testing.assert_allclose(getattr(first, part), getattr(second, part), **close)


def _tensors(field: FittedField) -> dict[str, Tensor]:
    """All tensors of a field."""
    rows = {
        f"rows.{name}": value
        for name, value in vars(field.rows).items()
        if isinstance(value, torch.Tensor)
    }
    return field.state_dict() | rows


def _changed(place: int, value: float) -> Callable[[Tensor], Tensor]:
    """Return a function that sets one number of a tensor."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed[place] = value
        return changed

    return change


class TestDevice:
    def test_a_field_that_has_moved_stays_where_it_was(self, field):
        before = field.predict(grid(5), 4, 2).mean
        with second.second_device():
            there = field.to(second.DEVICE)
            assert there.parameters is not field.parameters
        assert field.device == field.rows.x.device == torch.device("cpu")
        np.testing.assert_array_equal(field.predict(grid(5), 4, 2).mean, before)

    def test_the_device_of_a_field_is_its_own(self, field):
        assert field.to(torch.device("cpu")) is field

    def test_everything_moves_and_predicts_the_same(self, field):
        x, asked = np.add(grid(5), [0.8, 0, 0]), ({"level": True}, {"tests": 4.0})
        plain = [field.predict(x, **how) for how in asked]
        # These are on the host, wherever the field is: they become tensors in a file.
        host = {name for name in field.state_dict() if name.startswith(LAW_NAMES)}
        with second.second_device():
            there = field.to(second.DEVICE)
            found = [there.predict(x, **how) for how in asked]
            tensors = _tensors(there)
            stayed = {name for name, value in tensors.items() if value.device != second.DEVICE}
            assert there.device == second.DEVICE
        assert {"rows.x", "rows.points", "rows.logs", "networks.last", "drift"} < tensors.keys()
        assert stayed == host
        assert there.rows.home.anchors.device == there.rows.home.times.device == second.DEVICE
        for one, expected in zip(found, plain, strict=True):
            for part in PARTS:
                np.testing.assert_allclose(
                    getattr(one, part), getattr(expected, part), rtol=1e-9, err_msg=part
                )

    def test_the_level_that_it_remembers_stays_behind(self, field):
        with second.second_device(), field.remembering(grid(5)) as level:
            assert level
            assert field.to(second.DEVICE).cache.at(grid(5)) is None


def _without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def _with(name: str, change: Callable[[Tensor], Tensor]) -> Callable[..., dict[str, Tensor]]:
    return lambda tensors: tensors | {name: change(tensors[name])}


class TestStored:
    @staticmethod
    def _start(field: FittedField) -> FieldParameters:
        parameters = build("field", field.architecture, None)
        assert isinstance(parameters, FieldParameters)
        return parameters

    def test_a_field_is_restored(self, field):
        tensors = {name: value.clone() for name, value in field.state_dict().items()}
        same = FittedField.restored(self._start(field), tensors)
        _same(same, field, rtol=0)
        assert same.rows.numbers == field.rows.numbers
        assert same.rows.seed == field.rows.seed
        np.testing.assert_array_equal(same.rows.home.places, field.rows.home.places)
        assert same.errors.reach_km == 4.0
        assert same.state_dict().keys() == tensors.keys()
        for name, value in same.state_dict().items():
            assert torch.equal(value, tensors[name]), name

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (_without("rows.y"), r"missing tensors \['rows.y'\]"),
            (_without("drift"), r"missing tensors \['drift'\], unknown tensors \[\]"),
            (_without("networks.last"), r"missing tensors \['networks.last'\]"),
            (_without("reach_km"), r"missing tensors \['reach_km'\]"),
            (_with("reach_km", torch.zeros_like), "a reach above 0, found 0.3 and 0"),
            *(
                (_with("home", _changed(k, value)), rf"expected ranges .*found .*{name} {value:g}")
                for k, (name, value) in enumerate(OUT_OF_RANGE.items())
            ),
            (_with("home", lambda t: t[:2]), r"expected home of shape \(6,\), found \(2,\)"),
            (
                lambda tensors: tensors | {"other": tensors["drift"]},
                r"missing tensors \[\], unknown .*'other'",
            ),
            (_with("drift", lambda t: t[:1]), r"expected drift of shape \(2,\), found \(1,\)"),
            (_with("rows.x", lambda t: t[:, :2]), r"expected rows.x of shape .* found \(60, 2\)"),
            (_with("rows.counts", lambda t: t[:, 0]), r"expected rows.counts .* found \(60,\)"),
            (_with("rows.y", lambda t: t[0]), r"expected rows.y of shape .* found \(\)"),
            (_with("rows.y", lambda t: t[:-1]), "equally many inputs, .* found 60, 59 and 60"),
            (_with("rows.counts", lambda t: t[1:]), "equally many inputs, .* found 60, 60 and 59"),
            (_with("rows.counts", lambda t: 0 * t), "counts of 1 or more"),
            (
                lambda tensors: {k: v[:0] if k[:5] == "rows." else v for k, v in tensors.items()},
                "one or more, .* found 0, 0 and 0",
            ),
        ],
    )
    def test_tensors_that_are_no_field_are_refused(self, field, change, message):
        tensors = change(field.state_dict())
        with pytest.raises(ValueError, match=message):
            FittedField.restored(self._start(field), tensors)

    def test_a_file_of_an_earlier_version_learns_its_home_from_its_rows(self, field):
        tensors = {name: v for name, v in field.state_dict().items() if name not in HOME_NAMES}
        same = FittedField.restored(self._start(field), tensors)
        expected = learned_home(field.parameters, field.rows)
        assert expected.exists
        for name in ("range_km", "variance", "trend"):
            assert getattr(same.rows.home, name) == getattr(expected, name)
        assert same.errors.reach_km == ENDLESS
        errors = replace(field.errors, reach_km=ENDLESS)
        rows = replace(field.rows, home=expected)
        _same(same, replace(field, errors=errors, rows=rows), rtol=1e-12)

    def test_the_level_of_an_earlier_version_has_the_largest_counts_of_its_rows(self, field):
        tensors = field.state_dict()
        del tensors["noise.well_measured"]
        same = FittedField.restored(self._start(field), tensors)
        law, counts = field.parameters.law, field.rows.counts
        largest = counts.max(0).values[None]
        rise = law.shift(largest) - law.shift(field.parameters.well_measured(1))
        earlier = replace(field, errors=FieldErrors.none(field.parameters))
        same = replace(same, errors=earlier.errors)
        change = same.predict(grid(5), level=True).mean - earlier.predict(grid(5), level=True).mean
        assert rise.item() > 0
        np.testing.assert_allclose(change, float(field.y_sd) * rise.item(), rtol=1e-9)

    def test_a_field_that_goes_nowhere_is_restored(self, field):
        rows = replace(field.rows, home=Home.nowhere(field.rows.x))
        plain = replace(field, rows=rows)
        same = FittedField.restored(self._start(field), plain.state_dict())
        assert not same.rows.home.exists
        _same(same, plain, rtol=0)

    def test_a_file_of_a_field_without_a_fit_is_refused(self, field, tmp_path):
        save_model(self._start(field), tmp_path / "m.safetensors")
        with pytest.raises(DataError, match=r"missing tensors .*'rows.x'"):
            load_model(tmp_path / "m.safetensors")


class TestRemembering:
    def test_predictions_are_those_of_the_stored_level(self, field):
        x, sd = grid(5), float(field.y_sd)
        plain = field.predict(x, level=True), field.predict(x, 4, 2), field.predict(x[:7], 4, 2)
        with field.remembering(x) as level:
            stored = dict(level)
        stored["mean"] = stored["mean"] + 1.0
        # The share of the networks has its own mean.
        moved = sd * (1 - field.errors.networks_share)
        with field.remembering(x, stored=stored) as level:
            assert level is stored
            found = field.predict(x, level=True), field.predict(x, 4, 2), field.predict(x[:7], 4, 2)
            joint = joint_level(field, None, x)
        for one, expected in zip(found[:2], plain[:2], strict=True):
            np.testing.assert_allclose(one.mean, expected.mean + moved, rtol=1e-9)
        np.testing.assert_array_equal(found[2].mean, plain[2].mean)  # other inputs
        np.testing.assert_allclose(joint.mean, found[0].mean, rtol=1e-12)
        np.testing.assert_array_equal(field.predict(x, 4, 2).mean, plain[1].mean)

    def test_after_the_block_nothing_is_remembered(self, field):
        x = grid(5)

        def stopped() -> None:
            with field.remembering(x):
                assert field.cache.at(x) is not None
                assert field.cache.at(x[:7]) is None
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert field.cache.kept is None

    def test_blocks_inside_each_other_keep_their_own_inputs(self, field):
        x, y = grid(5), grid(7)
        with field.remembering(x):
            with field.remembering(y):
                assert field.cache.at(x) is None
                assert field.cache.at(y) is not None
            assert field.cache.at(x) is not None
            with field.widened(2.0).remembering(y):
                assert field.cache.at(x) is not None

    def test_a_copy_and_another_thread_remember_nothing(self, field):
        x, found = grid(5), []
        with field.remembering(x):
            found.append(copy.deepcopy(field).cache.at(x))
            found.append(pickle.loads(pickle.dumps(field)).cache.at(x))
            thread = threading.Thread(target=lambda: found.append(field.cache.at(x)))
            thread.start()
            thread.join()
        assert found == [None, None, None]

    def test_inputs_that_change_in_place_are_other_inputs(self, field):
        x = grid(5)
        with field.remembering(x):
            x += 0.05
            expected = field.predict(x.copy(), level=True).mean
        np.testing.assert_array_equal(field.predict(x, level=True).mean, expected)

    @pytest.mark.parametrize(
        "change", [lambda level: level | {"mean": level["mean"][:-1]}, _without("field")]
    )
    def test_a_stored_level_of_something_else_is_refused(self, field, change):
        x = grid(5)
        with field.remembering(x) as level:
            stored = change(dict(level))
        with (
            pytest.raises(DataError, match="expected the level at 25 inputs, found tensors"),
            field.remembering(x, stored=stored),
        ):
            pass
        assert field.cache.kept is None

    def test_no_level_is_remembered_outside_the_times_of_the_rows(self, field):
        x = grid(5, 2.0)
        plain = field.predict(x, 4, 2)
        with field.remembering(x) as level:
            assert level == {}
            assert field.cache.kept is None
            np.testing.assert_array_equal(field.predict(x, 4, 2).sd, plain.sd)


class TestFade:
    """Beyond the distance up to which errors were seen, their laws and the networks fade."""

    @staticmethod
    def _at(*east: float) -> np.ndarray:
        """Places in the east, in km beyond the rows."""
        return np.array([[(4.8 + km) / 6, 0.0, 1.0] for km in east])

    def test_the_share_of_a_law_falls_with_the_square_of_the_distance(self, field):
        errors = replace(field.errors, reach_km=4.0)
        found = errors.fade(np.array([0.0, 3.9, 4.0, 8.0, 40.0]))
        np.testing.assert_allclose(found, [1, 1, 1, 0.25, 0.01], rtol=1e-12)
        assert FieldErrors.none(field.parameters).fade(np.array([1e9])).tolist() == [1]

    def test_predictions_keep_a_part_of_the_law(self, field):
        law = field.errors.law
        errors = replace(field.errors, networks_share=0.0)
        faded, x = replace(field, errors=errors), self._at(0.5, 6.0, 12.0, 1e5)
        plain = replace(faded, errors=FieldErrors.none(field.parameters)).predict(x, 4, 2)
        found = faded.predict(x, 4, 2)
        apart = cdist(6 * x[:, :2], field.rows.points[:, :2]).min(1)
        share = np.minimum(1, 4.0 / apart) ** 2
        assert (share[0], len(np.unique(share))) == (1, 4)
        sd = np.sqrt(plain.variance)
        np.testing.assert_allclose(found.mean, plain.mean + 0.1 * share * sd, rtol=1e-9)
        np.testing.assert_allclose(found.sd, np.exp(0.3 * share) * sd, rtol=1e-9)
        assert law.coefficients[0, 0] == 0.1

    @pytest.mark.parametrize("asked", [{"level": True}, {"tests": 4.0, "devices": 2.0}])
    def test_far_away_the_process_is_left(self, field, asked):
        x = self._at(1e6)
        process = replace(field, errors=FieldErrors.none(field.parameters))
        found, expected = field.predict(x, **asked), process.predict(x, **asked)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-8)
        here = field.predict(x * [0, 0, 1], **asked).mean
        assert here != process.predict(x * [0, 0, 1], **asked).mean

    def test_what_is_remembered_fades_too(self, field):
        x = self._at(0.5, 12.0)
        expected = field.predict(x, 4, 2)
        with field.remembering(x):
            found = field.predict(x, 4, 2)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
        np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-9)

    def test_the_reach_holds_most_of_the_distances_above_zero(self):
        away = np.concatenate([np.zeros(500), np.arange(1.0, 101.0)])
        assert reach_of(away) == pytest.approx(95.05)
        assert reach_of(np.zeros(9)) == ENDLESS


def test_a_field_that_is_widened_stays_as_it_is(field):
    before = field.predict(grid(5), 4, 2)
    wide = field.widened(2.0)
    assert wide.errors.networks_share == 0
    normal = replace(field, errors=replace(field.errors, law=no_law(), networks_share=0.0))
    np.testing.assert_allclose(wide.predict(grid(5), 4).sd, 2 * normal.predict(grid(5), 4).sd)
    np.testing.assert_array_equal(field.predict(grid(5), 4, 2).sd, before.sd)
