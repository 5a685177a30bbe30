"""The tiers of a map of several targets: probabilities that thresholds hold together."""

import numpy as np
import pandas as pd
import pytest
from browser_acts import facts, serious
from browser_pages import PHONE
from browser_values import assert_coloured, cells, joint, layer_of, normal_joint, place_of
from scipy.stats import multivariate_normal

from geogp.geodata.tiles.tiers import parse_tier
from geogp.maps.frame import Frame
from geogp.maps.page.interactive_page import PageAnswers, with_answers

ALL = "download,upload,latency"

EXACT = 1e-4
"""The error that Python states for its own probabilities."""

SHARES = """async cases => {
  const {constructor: law} = await geogp.page.pictures.painter.tiers.law();
  return cases.map(([ends, r]) => law.share(ends, r));
}"""

AT = """async ([numbers, values]) => {
  const joint = await geogp.page.pictures.painter.tiers.law();
  return numbers.map(joint.meeting(values));
}"""


@pytest.fixture(scope="module")
def three(make):
    return make(together=ALL)


def shares(seen, ends, R):
    """Return the page's probabilities that scores with correlations R are at most `ends`."""
    rows, columns = np.triu_indices(ends.shape[1], 1)
    cases = [[h.tolist(), r[rows, columns].tolist()] for h, r in zip(ends, R, strict=True)]
    return np.array(seen.evaluate(SHARES, cases))


@pytest.mark.parametrize("r", [-0.99, -0.9, -0.5, 0.0, 0.3, 0.7, 0.95, 0.99])
def test_the_probability_of_two_targets_is_that_of_scipy(visit, three, r):
    seen, at = visit(three.page), [-6.0, -4.9, -2.0, -0.4, 0.0, 0.7, 2.0, 4.9, 6.0]
    ends = np.array([(one, other) for one in at for other in at])
    R = np.array([[1, r], [r, 1]])
    expected = multivariate_normal(cov=R).cdf(ends)
    found = shares(seen, ends, np.tile(R, (len(ends), 1, 1)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)


def test_the_probability_of_three_targets_is_that_of_scipy(visit, three):
    seen, random = visit(three.page), np.random.default_rng(0)
    r = np.round(random.uniform(-0.9, 0.95, (2_000, 3)), 2)
    R = np.tile(np.eye(3), (2_000, 1, 1))
    for place, (one, other) in enumerate([(0, 1), (0, 2), (1, 2)]):
        R[:, one, other] = R[:, other, one] = r[:, place]
    R = R[np.linalg.eigvalsh(R)[:, 0] > 1e-3][:400]
    # Many ends are nearly those between which a correlation near 1 divides.
    ends = random.normal(0, 1.5, (400, 3))
    ends[:150, 1] = ends[:150, 0] + random.normal(0, 0.1, 150)
    ends[150:200] = random.choice([-6, -4.9, 0, 4.9, 6], (50, 3))
    found = shares(seen, ends, R)
    own = normal_joint(R).probability(at_most=list(ends.T))
    np.testing.assert_allclose(found, own, rtol=0, atol=EXACT)
    for k in range(0, 400, 10):
        expected = multivariate_normal(cov=R[k], abseps=1e-6, maxpts=10**5, seed=1).cdf(ends[k])
        assert found[k] == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("targets", ["download,upload", ALL, "latency,upload"])
def test_each_tier_has_the_colours_of_its_probability(visit, make, targets):
    made = make(together=targets, target=targets.split(",")[0])
    seen, data = visit(made.page), made.data
    seen.check("input[name=geogp-layer][value=tier]")
    scale = layer_of(data, "tier")["scale"]
    extreme = [max(v for v in t["threshold"]["values"] if v) for t in data["tiers"]["targets"]]
    for values in [*(one["values"] for one in data["tiers"]["choices"]), extreme]:
        seen.update(tier=values)
        wanted = joint(data, values)
        some = np.flatnonzero(np.isfinite(wanted))[::7]
        found = seen.evaluate(AT, [some.tolist(), values])
        np.testing.assert_allclose(found, wanted.ravel()[some], rtol=0, atol=EXACT)
        assert_coloured(seen.picture(), wanted, scale, edge=EXACT)


def test_pages_probabilities_are_those_of_the_map(visit, three):
    seen, data, tiles = visit(three.page), three.data, three.world.tiles
    row, column = Frame(**data["frame"]).pixels(tiles)
    numbers = (row * data["frame"]["width"] + column).tolist()
    for tier, choice in zip(three.content.tiers, data["tiers"]["choices"], strict=True):
        found = seen.evaluate(AT, [numbers, choice["values"]])
        exact = tier.probability(three.content.joint)
        most = data["steps"]["tier_probability"] + EXACT
        np.testing.assert_allclose(found, exact, rtol=0, atol=most)


def test_tiers_and_sliders_change_the_picture_and_the_words(visit, three):
    seen, data = visit(three.page), three.data
    assert seen.is_hidden("#geogp-tier")
    assert seen.is_visible("#geogp-threshold")
    seen.check("input[value=tier]")
    assert seen.is_hidden("#geogp-threshold")
    choices = data["tiers"]["choices"]
    seen.locator("#geogp-tier-choice").select_option(label="100/20/100ms")
    seen.settle()
    before = seen.picture()
    legend = seen.inner_text("#geogp-legend")
    words = "at least 100 Mbps download, at least 20 Mbps upload and at most 100 ms latency"
    assert f"Probability of {words}" in legend
    slider = seen.locator("#geogp-tier-0-field")
    slider.focus()
    seen.keyboard.press("Home")
    seen.settle()
    least = data["tiers"]["targets"][0]["threshold"]["values"][0]
    assert seen.state["tier"] == [least, 20, 100]
    assert seen.picture() != before
    assert slider.get_attribute("aria-valuetext") == f"at least {least:g} Mbps"
    assert seen.inner_text("#geogp-tier-0-words") == f"at least {least:g} Mbps"
    assert seen.locator("#geogp-tier-choice").input_value() == ""
    assert f"at least {least:g} Mbps download" in seen.inner_text("#geogp-legend")
    seen.locator("#geogp-tier-2-field").focus()
    seen.keyboard.press("End")
    seen.settle()
    assert seen.state["tier"] == [least, 20, None]
    assert seen.inner_text("#geogp-tier-2-words") == "any latency"
    assert "latency" not in seen.inner_text("#geogp-legend h2")
    label = seen.locator("label[for=geogp-tier-1-field]").inner_text()
    assert label == "Upload speed"
    # The legend tells that no tile is served, and offers a tier that divides the region.
    seen.update(tier=choices[-1]["values"])
    note = seen.inner_text("#geogp-legend .geogp-note")
    assert "the probability is below 50 %" in note
    seen.click("#geogp-legend .geogp-offer")
    seen.settle()
    offered = joint(data, seen.state["tier"])
    assert np.nanpercentile(offered, 1) < 0.5 < np.nanpercentile(offered, 99)
    assert seen.state["tier"] in [one["values"] for one in choices]


def text_of(tier):
    return ",".join("" if value is None else f"{value:g}" for value in tier)


def test_the_address_has_the_thresholds(visit, three):
    seen, data = visit(three.page), three.data
    seen.update(layer="tier", beside="probability", tier=[7, 1, None], split=0.4)
    seen.evaluate("geogp.page.address.writeNow()")
    address = seen.evaluate("window.location.hash")
    assert "&tier=7,1,any&" in address
    again = visit(three.page, hash=address)
    assert again.state["tier"] == [7, 1, None]
    assert again.state["beside"] == "probability"
    assert again.picture() == seen.picture()
    assert again.picture("beside") == seen.picture("beside")
    assert again.is_visible("#geogp-threshold")  # it is that of the layer on the right
    first = data["tiers"]["choices"][data["tiers"]["shown"]]["values"]
    for wrong in ("7,1", "7,any,any", "7,1,1e9", "a,b,c"):
        seen.update(tier=[7, 1, None])
        seen.evaluate("hash => { window.location.hash = hash; }", f"tier={wrong}")
        seen.until("tier => String(geogp.page.state.tier) === tier", text_of(first))


def test_the_card_tells_the_tier_and_each_target(visit, three):
    seen, data = visit(three.page), three.data
    row, column = cells(data, 9)[6]
    values = [7, 1, 100]
    seen.update(layer="tier", tier=values, point=place_of(data["frame"], row, column))
    told = facts(seen)
    words = "at least 7 Mbps download, at least 1 Mbps upload and at most 100 ms latency"
    share = joint(data, values)[row, column]
    assert told[f"Probability of {words} together"] == f"{share:.0%}".replace("%", " %")
    rows, columns = Frame(**data["frame"]).pixels(three.world.tiles)
    law = three.content.joint[(rows == row) & (columns == column)]
    tier = parse_tier("7/1/100ms", law.names)
    alone = [one.probability(law.marginal(one.target))[0] for one in tier.thresholds]
    names = ["at least 7 Mbps download", "at least 1 Mbps upload", "at most 100 ms latency"]
    for name, expected in zip(names, alone, strict=True):
        assert int(told[f"Alone: {name}"].split()[0]) == pytest.approx(100 * expected, abs=1)
    low, high = law.interval(0.95)
    for k, subject, unit in ((1, "upload speed", "Mbps"), (2, "latency", "ms")):
        band = told[f"Median {subject}, 95 % interval"]
        median, least, most = (float(band.translate(PLAIN).split()[i]) for i in (0, 2, 4))
        assert unit in band
        found = np.log10([median, least, most])
        exact = [law.median[0, k], low[0, k], high[0, k]]
        np.testing.assert_allclose(found, exact, atol=0.004)
    sentence = seen.inner_text("#geogp-place-body > .geogp-hint >> nth=0")
    apart = f"{np.prod(alone):.0%}".replace("%", " %")
    assert sentence == (
        f"The tier: {share:.0%} of averages of 5 tests here are expected to meet all its ".replace(
            "%", " %"
        )
        + f"thresholds together. If the targets were unrelated, it would be {apart}."
    )
    assert f"together: {share:.0%}".replace("%", " %") in seen.inner_text("#geogp-status")


PLAIN = str.maketrans("", "", "(),")


def test_tiers_are_of_the_shown_quarter(visit, three):
    seen, data = visit(three.page), three.data
    point = place_of(data["frame"], *cells(data, 9)[6])
    seen.update(layer="tier", beside="level", point=point)
    picture, beside = seen.picture(), seen.picture("beside")
    assert any("together" in name for name in facts(seen))
    seen.update(quarter=0)
    assert seen.picture() == picture
    assert seen.picture("beside") != beside
    shown = data["quarters"][data["shown"]]
    said = f"Tiers are those of {shown} only."
    assert seen.inner_text("#geogp-legend .geogp-note") == said
    assert "same for all quarters" not in seen.inner_text("#geogp-legend")
    assert said in seen.inner_text("#geogp-place")
    assert not any("together" in name for name in facts(seen))
    seen.click(f"#geogp-legend >> text=Show {shown}")
    seen.settle()
    assert seen.state["quarter"] == data["shown"]
    assert said not in seen.inner_text("body")


def test_the_download_has_the_probability_of_the_tier(visit, three, tmp_path):
    seen, data = visit(three.page), three.data
    seen.update(tier=[100, 20, 100])
    seen.evaluate("document.getElementById('geogp-download').open = true")
    seen.select_option("#geogp-extent", "all")
    table = read(seen, tmp_path / "one.csv")
    wanted = joint(data, [100, 20, 100])
    np.testing.assert_allclose(
        table["p_tier_100_20_100ms"], wanted[np.isfinite(wanted)], atol=EXACT, rtol=1e-3
    )
    assert three.content.tiers[-1].variable == "p_tier_100_20_100ms"
    seen.update(quarter=0)
    assert not any(name.startswith("p_tier") for name in read(seen, tmp_path / "two.csv"))


def read(seen, path):
    with seen.tab.expect_download() as found:
        seen.click("#geogp-csv")
    found.value.save_as(path)
    return pd.read_csv(path, skiprows=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [None, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious_with_tiers(visit, three, npm, size, scheme):
    seen = visit(three.page, size=size, color_scheme=scheme)
    point = place_of(three.data["frame"], 12, 15)
    seen.update(layer="tier", beside="probability", point=point)
    assert serious(seen, npm) == []
    seen.update(beside=None, quarter=0)
    seen.evaluate("document.getElementById('geogp-panel').open = true")
    assert serious(seen, npm) == []
    width = "document.documentElement.scrollWidth"
    assert seen.evaluate(width) <= (size["width"] if size else 1280)


def test_answers_change_nothing_else_of_a_page_with_tiers(three):
    assert with_answers(three.page, PageAnswers()) == three.page
    changed = with_answers(three.page, PageAnswers([("areas_x", "Areas")]))
    assert changed is not None
    assert changed != three.page


def test_a_page_of_one_target_has_no_tiers(visit, made, three):
    for script in ("class JointLaw", "class Tiers", 'id="geogp-tier"'):
        assert script in three.page
        assert script not in made.page
    seen = visit(made.page, hash="#layer=tier&tier=7,1,any")
    assert seen.state["layer"] == made.data["layers"][0]["id"]
    assert seen.state["tier"] is None
    assert seen.is_hidden("#geogp-tier")
    seen.evaluate("geogp.page.address.writeNow()")
    assert "tier" not in seen.evaluate("window.location.hash")
    seen.update(point=place_of(made.data["frame"], 12, 15))
    assert "ogether" not in seen.inner_text("#geogp-place")
