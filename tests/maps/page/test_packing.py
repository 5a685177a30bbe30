"""Packed arrays: what is decoded is what was packed, within half a step."""

import base64
import json
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from geogp.errors import DataError
from geogp.maps.page import packing
from geogp.maps.page.packing import filled, pack, text_bytes, unpack

SHAPES = st.one_of(
    st.tuples(st.integers(1, 6), st.integers(1, 7)),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)),
)


def fields(high, *, none):
    number = st.floats(-high, high)
    return SHAPES.flatmap(
        lambda shape: arrays.arrays(
            np.float64, shape, elements=st.one_of(number, st.just(np.nan)) if none else number
        )
    )


@given(fields(100.0, none=True), st.sampled_from([0.01, 0.3, 7.0]))
def test_sixteen_bits_keep_values_within_half_a_step_and_no_data(values, step):
    packed = json.loads(json.dumps(pack(values, step, 16)))
    found = unpack(packed)
    assert found.shape == values.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    assert np.nanmax(np.abs(found - values), initial=0) <= step / 2 * (1 + 1e-9)


@given(fields(12.0, none=False))
def test_eight_bits_keep_values_within_half_a_step(values):
    packed = pack(values, 0.1, 8)
    assert not packed["none"]
    assert np.abs(unpack(packed) - values).max() <= 0.05 * (1 + 1e-9)


@given(fields(2.0**31 - 1, none=True))
def test_thirty_two_bits_keep_whole_numbers(values):
    values = np.round(values)
    found = unpack(json.loads(json.dumps(pack(values, 1.0, 32, none=True))))
    np.testing.assert_array_equal(found, values)


def test_large_arrays_are_deflated_faster(monkeypatch):
    values = np.round(np.cumsum(np.random.default_rng(0).standard_normal((200, 100)), 1)) + 50
    small = pack(values, 1.0, 8)
    monkeypatch.setattr(packing, "LARGE", 200 * 100)
    large = pack(values, 1.0, 8)
    for packed, level in (small, 9), (large, 7):
        deflated = base64.b64decode(packed["data"])
        assert deflated == zlib.compress(zlib.decompress(deflated), level)
    assert small != large
    np.testing.assert_array_equal(unpack(large), values)


def test_the_bytes_are_those_of_the_format():
    packed = pack([[300.0, 302.0], [299.0, np.nan]], 1.0, 16, offset=0.0)
    # n is [[301, 303], [300, 0]]; differences are 301, 2, -1 and -300 modulo 2^16.
    raw = zlib.decompress(base64.b64decode(packed["data"]))
    assert list(raw) == [301 & 255, 2, 255, -300 & 255, 1, 0, 255, (65536 - 300) >> 8]
    wide = pack([[65_536.0, 1.0]], 1.0, 32, offset=0.0)
    # The second difference is -65535 modulo 2^32.
    raw = zlib.decompress(base64.b64decode(wide["data"]))
    assert list(raw) == [0, 1, 0, 0, 1, 255, 0, 255]
    planes = pack(np.array([[[5.0], [7.0]], [[1.0], [0.0]]]), 1.0, 8)
    assert list(zlib.decompress(base64.b64decode(planes["data"]))) == [5, 2, 1, 255]


def test_an_offset_is_a_multiple_of_the_step():
    packed = pack([[0.37, 1.0]], 0.25, 8)
    assert packed["offset"] == 0.25
    np.testing.assert_allclose(unpack(packed), [[0.25, 1.0]])


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([[0.0, 256.0]], {"bits": 8}, "from 0 to 255, which 8 bits hold"),
        ([[0.0, 255.0]], {"bits": 8, "none": True}, "from 0 to 254"),
        ([[-1.0]], {"bits": 8, "offset": 0.0}, "found -1 to -1"),
        ([[np.nan]], {"bits": 8, "none": False}, "NaN with none=True"),
        ([[np.inf]], {"bits": 16}, "expected finite values"),
        ([1.0], {"bits": 8}, r"shape \(1,\)"),
        ([[1.0]], {"bits": 12}, "12 bits"),
    ],
)
def test_what_does_not_fit_is_refused(values, options, message):
    with pytest.raises(DataError, match=message):
        pack(np.array(values), 1.0, **options)


def test_a_packed_array_of_other_length_is_refused():
    packed = pack([[1.0, 2.0]], 1.0, 8)
    with pytest.raises(DataError, match=r"shape \(2, 2\), found 2 bytes"):
        unpack(packed | {"shape": [2, 2]})


def test_all_no_data_is_kept():
    assert np.isnan(unpack(pack(np.full((2, 3), np.nan), 0.1, 8))).all()


def test_filling_takes_the_value_to_the_left():
    nan = np.nan
    values = np.array([[nan, nan, nan], [nan, 2.0, nan], [nan, nan, nan], [1.0, nan, 3.0]])
    expected = [[0, 0, 0], [2, 2, 2], [2, 2, 2], [1, 1, 3]]
    np.testing.assert_array_equal(filled(values), expected)


@given(SHAPES.filter(lambda shape: len(shape) == 2), st.integers(0, 2**32 - 1))
def test_filling_leaves_values_and_no_nan(shape, seed):
    random = np.random.default_rng(seed)
    values = np.where(random.random(shape) < 0.5, np.nan, random.normal(size=shape))
    found = filled(values)
    held = ~np.isnan(values)
    np.testing.assert_array_equal(found[held], values[held])
    assert np.isfinite(found).all()


def test_text_of_one_and_of_several_arrays_is_counted():
    one = pack([[1.0]], 1.0, 8)
    assert text_bytes([one, one]) == 2 * text_bytes(one) == 2 * len(one["data"])


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": None},
        {"shape": "12"},
        {"shape": [2]},
        {"shape": [2, -2]},
        {"shape": [2, 2.0]},
        {"shape": [1 << 20, 1 << 20]},
        {"bits": 12},
        {"bits": "8"},
        {"bits": {}},
        {"step": None},
        {"step": "1"},
        {"step": float("nan")},
        {"offset": float("inf")},
        {"offset": 10**400},
        {"none": 1},
        {"data": 5},
    ],
    ids=str,
)
def test_what_is_no_packed_array(change):
    packed = pack(np.ones((2, 2)), 1, 8)
    with pytest.raises(DataError, match="expected a packed array with shape, step"):
        unpack(packed | change)
    with pytest.raises(DataError, match="expected a packed array with shape, step"):
        unpack({key: value for key, value in packed.items() if key not in change})


@pytest.mark.parametrize("data", ["", "!", "AAAA", "é", _deflated(bytes(4))[:-4]])
def test_data_that_are_not_deflated(data):
    with pytest.raises(DataError, match="expected a packed array"):
        unpack(pack(np.ones((2, 2)), 1, 8) | {"data": data})


def test_a_bomb_is_not_unpacked():
    """A billion zeros in a megabyte: the shape says how many are taken."""
    deflater = zlib.compressobj()
    zeros = bytes(1 << 24)
    parts = [deflater.compress(zeros) for _ in range(64)]
    bomb = base64.b64encode(b"".join([*parts, deflater.flush()])).decode()
    tracemalloc.start()
    with pytest.raises(DataError, match="found 5 bytes"):
        unpack(pack(np.ones((2, 2)), 1, 8) | {"data": bomb})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
