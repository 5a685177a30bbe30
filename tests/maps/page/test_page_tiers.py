"""The tiers in the data of the page: what is decoded gives the probabilities of `Tier`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from maps_worlds import irregular_region, make_joint, make_slices, make_world
from scipy.stats import multivariate_normal

from geogp.distributions.student_sum import NormalPlusStudent
from geogp.errors import DataError
from geogp.geodata.tiles.thresholds import thresholds_of
from geogp.geodata.tiles.tiers import parse_tier, tiers_of
from geogp.maps.frame import Frame
from geogp.maps.page.packing import text_bytes, unpack
from geogp.maps.page.page_data import PageContent, page_data
from geogp.maps.page.page_quantiles import QuarterMap, normal_scores, unpack_quantiles
from geogp.maps.page.page_tiers import STEP, WEAKEST, rounded_correlations

TARGETS = {2: "download,upload", 3: "download,upload,latency"}


@pytest.fixture(scope="module")
def world():
    return make_world(irregular_region(), 15)


def content_of(world, **changes):
    options = {
        "region": world.region,
        "tiles": world.tiles,
        "title": "Isla: download speed",
        "predicted": "new measurements",
        "quarters": [QuarterMap("2023Q4", world.tiles, world.prediction)],
        "shown": 0,
        "slices": make_slices(world.tiles),
        "thresholds": thresholds_of("download"),
    }
    return PageContent(**(options | changes))


def joint_and_tiers(world, t):
    names = tuple(TARGETS[t].split(","))
    first = world.prediction
    return make_joint(world.tiles, first, names), tiers_of(TARGETS[t])


def made(world, t, **changes):
    joint, tiers = joint_and_tiers(world, t)
    content = content_of(world, **({"joint": joint, "tiers": tiers} | changes))
    return json.loads(json.dumps(page_data(world.grid, content), allow_nan=False))


def at_tiles(raster, tiles):
    return raster[(..., *Frame.of_tiles(tiles).pixels(tiles))]


def decoded_probability(data, tiles, values, rows):
    """Return the probability of values of each target from the page's data, by SciPy."""
    targets, signs, scores = data["tiers"]["targets"], [], []
    for target, value in zip(targets, values, strict=True):
        if value is not None:
            of = data if target["levels"] is None else target
            held = at_tiles(unpack_quantiles(of["quantiles"], of["levels"]), tiles)[:, rows]
            at_most = target["threshold"]["at_most"]
            scores.append(normal_scores(held, of["levels"], np.log10([[value]]))[0])
            signs.append(1.0 if at_most else -1.0)
    t, limited = len(targets), [k for k, value in enumerate(values) if value is not None]
    R = np.tile(np.eye(t), (len(rows), 1, 1))
    for (i, j), packed in zip(
        zip(*np.triu_indices(t, 1), strict=True), data["tiers"]["correlations"], strict=True
    ):
        R[:, i, j] = R[:, j, i] = at_tiles(unpack(packed), tiles)[rows]
    R = R[:, limited][:, :, limited] * np.outer(signs, signs)
    at = np.array(signs)[:, None] * scores
    return np.array([multivariate_normal(cov=R[k]).cdf(at[:, k]) for k in range(len(rows))])


@pytest.mark.parametrize("t", [2, 3])
def test_decoded_probabilities_are_those_of_the_tiers(world, t):
    data = made(world, t)
    joint, tiers = joint_and_tiers(world, t)
    steps = data["steps"]
    rows = np.argsort(joint.correlation[:, 0, 1])[:: len(joint) // 60]
    assert np.ptp(joint.correlation[rows, 0, 1]) > 1.8
    assert [one["name"] for one in data["tiers"]["choices"]] == [tier.name for tier in tiers]
    for tier, choice in zip(tiers, data["tiers"]["choices"], strict=True):
        found = decoded_probability(data, world.tiles, choice["values"], rows)
        np.testing.assert_allclose(
            found, tier.probability(joint)[rows], rtol=0, atol=steps["tier_probability"] + 2e-4
        )
    assert 0 < steps["tier_probability"] < 0.004
    assert steps["tier_probability_tiles"] == 2_000
    assert steps["correlation"] == STEP
    assert {f"{name}_quantile_log10" for name in joint.names[1:]} <= set(steps)


def test_rounding_is_what_separates_the_page_from_the_map(world):
    joint, _ = joint_and_tiers(world, 3)
    exact = rounded_correlations(np.round(joint.correlation, 2))
    packed = made(world, 3)["tiers"]["correlations"]
    for (i, j), one in zip(((0, 1), (0, 2), (1, 2)), packed, strict=True):
        np.testing.assert_allclose(at_tiles(unpack(one), world.tiles), exact[:, i, j], atol=1e-9)
        assert np.abs(exact[:, i, j] - joint.correlation[:, i, j]).max() <= STEP / 2 + 1e-9


def test_rounded_correlations_stay_positive_definite():
    random = np.random.default_rng(0)
    factors = random.standard_normal((500, 3, 3))
    factors[:250, 2] = factors[:250, :2].sum(1) + 1e-4 * factors[:250, 2]
    factors /= np.linalg.norm(factors, axis=2, keepdims=True)
    R = factors @ factors.transpose(0, 2, 1)
    assert (np.linalg.eigvalsh(np.round(R, 2))[:, 0] < WEAKEST).sum() > 20
    found = rounded_correlations(R)
    assert np.linalg.eigvalsh(found)[:, 0].min() >= WEAKEST
    np.testing.assert_array_equal(np.diagonal(found, axis1=1, axis2=2), 1)
    assert np.abs(found - R).max() < 0.03
    pair = np.array([[[1, 0.9999], [0.9999, 1]], [[1, -0.9999], [-0.9999, 1]]])
    np.testing.assert_allclose(rounded_correlations(pair)[:, 0, 1], [0.99, -0.99])


def test_sliders_have_the_thresholds_of_the_tiers(world):
    tiers = tuple(parse_tier(text, ("download", "upload", "latency")) for text in ("11/2.2/77ms",))
    data = made(world, 3, tiers=tiers)
    down, up, ping = (one["threshold"] for one in data["tiers"]["targets"])
    assert 11 in down["values"]
    assert 2.2 in up["values"]
    assert 77 in ping["values"]
    assert ping["values"][-1] is None  # a tier need not have a latency
    assert None not in down["values"] + up["values"]
    assert [one["at_most"] for one in (down, up, ping)] == [False, False, True]
    assert data["tiers"]["choices"] == [{"name": "11/2.2/77ms", "values": [11, 2.2, 77]}]
    assert 11 not in data["threshold"]["values"]


def test_the_first_tier_divides_the_region_best(world):
    joint, tiers = joint_and_tiers(world, 3)
    means = [tier.probability(joint).mean() for tier in tiers]
    assert made(world, 3)["tiers"]["shown"] == np.abs(np.array(means) - 0.5).argmin()
    assert len({round(mean, 2) for mean in means}) > 3


def test_targets_with_other_shapes_have_more_levels(world):
    joint, _ = joint_and_tiers(world, 2)
    heavy = joint.marginals[1]
    shape = NormalPlusStudent(heavy.function_variance, heavy.noise_variance, 3.0)
    marginals = (joint.marginals[0], replace(heavy, shape=shape))
    data = made(world, 2, joint=type(joint)(joint.names, marginals, joint.correlation))
    assert len(data["tiers"]["targets"][1]["levels"]) > len(data["levels"])
    assert data["steps"]["tier_probability"] < 0.01


def test_a_map_of_one_target_has_no_tiers(world):
    alone = json.loads(json.dumps(page_data(world.grid, content_of(world))))
    several = made(world, 3)
    assert alone["tiers"] is None
    same = [name for name in alone if name not in {"tiers", "layers", "steps"}]
    assert {name: alone[name] for name in same} == {name: several[name] for name in same}
    assert [one for one in several["layers"] if one["id"] != "tier"] == alone["layers"]
    assert alone["steps"].items() < several["steps"].items()
    served = [one["id"] for one in several["layers"] if one["group"] == "Who is served"]
    assert served == ["probability", "tier"]


def test_tiers_keep_the_page_small(world):
    data = made(world, 3)
    tiers = sum(text_bytes(one["quantiles"] or []) for one in data["tiers"]["targets"])
    tiers += text_bytes(data["tiers"]["correlations"])
    assert tiers < 3 * text_bytes(data["quantiles"])


def test_joint_predictions_that_do_not_fit_are_refused(world):
    joint, tiers = joint_and_tiers(world, 2)
    with pytest.raises(DataError, match="with tiers, or neither, found joint predictions alone"):
        page_data(world.grid, content_of(world, joint=joint))
    with pytest.raises(DataError, match="found tiers alone"):
        page_data(world.grid, content_of(world, tiers=tiers))
    turned = type(joint)(joint.names[::-1], joint.marginals[::-1], joint.correlation)
    with pytest.raises(DataError, match="download first, found upload, download"):
        page_data(world.grid, content_of(world, joint=turned, tiers=tiers))
    with pytest.raises(DataError, match=r"joint predictions of \d+ tiles, found 3"):
        page_data(world.grid, content_of(world, joint=joint[:3], tiers=tiers))
