import numpy as np
import pytest

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.errors import RequestError
from geogp.geodata.tiles.targets import SPEED_TIERS, find_target, tier_codes
from geogp.geodata.tiles.tiers import parse_tier, tiers_of

THREE = "download,upload,latency"


@pytest.mark.parametrize(
    ("target", "service", "names"),
    [
        (THREE, "mobile", ["5/1", "7/1", "35/3", "100/20", "100/20/100ms"]),
        ("download,upload", "mobile", ["5/1", "7/1", "35/3", "100/20"]),
        ("upload,download", "fixed", ["25/3", "100/20"]),
        ("latency,download", "mobile", ["7/100ms", "35/100ms", "100/100ms"]),
        ("upload,latency", "fixed", ["3/100ms", "20/100ms"]),
        ("download", "mobile", []),
    ],
)
def test_default_tiers_are_those_of_the_service(target, service, names):
    assert [tier.name for tier in tiers_of(target, None, service)] == names


def test_a_tier_holds_where_each_of_its_thresholds_holds():
    random = np.random.default_rng(0)
    values = np.stack([random.uniform(1, 60, 500), random.uniform(0.2, 6, 500)])
    codes = tier_codes(*values)
    y = np.log10(values.T)
    for code, name in list(enumerate(SPEED_TIERS["mobile"]))[1:]:
        tier = parse_tier(name, ("download", "upload"))
        np.testing.assert_array_equal(tier.holds(y, ("download", "upload")), codes >= code)
        np.testing.assert_array_equal(
            tier.holds(y[None, :, ::-1], ("upload", "download")), codes[None] >= code
        )


def test_the_order_of_the_targets_does_not_change_a_tier():
    one, other = (
        parse_tier("9.5/2/80 MS", t.split(",")) for t in (THREE, "latency,upload,download")
    )
    assert one == other
    assert one.name == "9.5/2/80ms"
    assert one.variable == "p_tier_9_5_2_80ms"
    assert one.missed == "below 9.5/2 Mbps or above 80 ms"


def test_the_probability_is_that_of_all_limits_together():
    tier = parse_tier("10/1/50ms", THREE.split(","))
    mean = np.array([[1.2, 0.3, 1.6], [0.9, -0.4, 1.9]])
    marginals = tuple(Prediction(m, np.full(2, 0.05), np.full(2, 0.04)) for m in mean.T)
    R = np.broadcast_to([[1.0, 0.6, -0.3], [0.6, 1.0, -0.2], [-0.3, -0.2, 1.0]], (2, 3, 3))
    joint = JointPrediction(tuple(THREE.split(",")), marginals, R)
    drawn = joint.sample(100_000)
    np.testing.assert_allclose(
        tier.probability(joint), tier.holds(drawn, joint.names).mean(0), atol=0.006
    )


@pytest.mark.parametrize(
    ("target", "given", "match"),
    [
        (THREE, ["fast"], "expected a tier like 7/1 or 100/20/100ms, found 'fast'"),
        (THREE, ["7"], r"such as 7/1, or 7/1/100ms \(download/upload in Mbps\), found '7'"),
        (
            THREE,
            ["100ms/20/7"],
            "expected a tier of download, upload, latency such as 7/1, or 7/1/100ms",
        ),
        (THREE, ["7/1", "7.0/1"], "expected each tier once"),
        (
            "download,upload",
            ["100/20/100ms"],
            "has a latency, but the map has the targets download",
        ),
        ("download,upload", ["7/0"], "expected a threshold from"),
        ("download", ["7/1"], "--tier is for several targets"),
    ],
)
def test_wrong_tiers_are_refused(target, given, match):
    with pytest.raises(RequestError, match=match):
        tiers_of(target, given)


def test_several_targets_have_the_columns_of_all():
    several = find_target("download, latency")
    assert several.columns == ("avg_d_kbps", "avg_lat_ms")
    assert several.divisors == (1000.0, 1.0)
    values = np.array([[10.0, 100.0], [50.0, 20.0]])
    np.testing.assert_allclose(several.modelled(values), [1, 2])
    np.testing.assert_allclose(several.modelled_together(values), np.log10(values).T)
    assert find_target("download").modelled_together(values[:1]) is None


@pytest.mark.parametrize("target", ["download,tests", "upload,upload", "tier,upload"])
def test_targets_that_do_not_go_together_are_refused(target):
    with pytest.raises(RequestError, match="different ones of download, upload, latency together"):
        find_target(target)
