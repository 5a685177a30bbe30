"""The page's decoder and its normal law, against Python's."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from geogp.maps.page.packing import pack, unpack

DECODE = """async packed => {
  const array = await geogp.unpack(packed);
  return Array.from(array.numbers, (_, cell) => (array.holds(cell) ? array.at(cell) : null));
}"""


@pytest.fixture(scope="module")
def plain(browser, make, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "map.html"
    path.write_text(make(base_map=False).page, "utf-8")
    tab = browser.new_page()
    tab.goto(path.as_uri())
    yield tab
    tab.close()


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (3, 4, 6), (1, 300), (300, 1)])
def test_arrays_decode_as_in_python(plain, bits, none, shape, along):
    along &= len(shape) == 3
    random = np.random.default_rng(bits + none + sum(shape))
    step, offset = 0.03, -1.7
    numbers = random.integers(0, (1 << bits) - 1, shape)
    numbers.ravel()[:2] = [0, (1 << bits) - 2][: numbers.size]
    values = offset + step * numbers
    if none:
        values[random.random(shape) < 0.3] = np.nan
    packed = pack(values, step, bits, none=none, offset=offset, along=along)
    found = np.array(plain.evaluate(DECODE, packed), float).reshape(shape)
    np.testing.assert_allclose(found, unpack(packed), rtol=1e-15, atol=1e-9)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))


def test_a_damaged_array_is_an_error(plain):
    packed = pack(np.ones((4, 4)), 1.0, 8) | {"shape": [4, 5]}
    with pytest.raises(Exception, match="expected 20 numbers of 8 bits, found 16 bytes"):
        plain.evaluate(DECODE, packed)


def test_the_normal_law_is_that_of_scipy(plain):
    scores = np.concatenate([np.linspace(-8, 8, 161), [-30, 30]])
    found = plain.evaluate("scores => scores.map(geogp.normalShare)", scores.tolist())
    np.testing.assert_allclose(found, ndtr(scores), rtol=0, atol=2e-15)
    shares = np.array([0.001, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.999])
    found = plain.evaluate("shares => shares.map(geogp.normalScore)", shares.tolist())
    np.testing.assert_allclose(found, ndtri(shares), rtol=0, atol=1e-12)
