import numpy as np
import pytest
from maps_worlds import middle_values
from rasterio.enums import ColorInterp
from rasterio.io import MemoryFile

from geogp.errors import DataError
from geogp.maps.scales import (
    LEVELS,
    SPEED_PALETTE,
    change_scale,
    class_scale,
    format_tick,
    kernel_scale,
    linear_scale,
    paletted_png,
    speed_scale,
    width_scale,
)


def speeds(low, high, n=1000):
    return np.geomspace(low, high, n)


@pytest.mark.parametrize(
    ("low", "high"), [(0.013, 900), (4, 70), (11, 19), (48, 52), (30, 30), (100, 151), (1, 1e5)]
)
def test_ticks_are_few_round_and_span_the_scale(low, high):
    scale = speed_scale(speeds(low, high), label="Mbps", palette="viridis")
    assert 3 <= len(scale.ticks) <= 8
    assert (scale.ticks[0], scale.ticks[-1]) == (scale.low, scale.high)
    assert np.all(np.diff(scale.ticks) > 0)
    middle = np.percentile(speeds(low, high), [2, 98])
    assert scale.low <= middle[0] <= middle[1] <= scale.high
    for tick in scale.ticks:
        assert float(f"{tick:.3g}") == pytest.approx(tick)
    gaps = np.diff(scale.fraction(scale.ticks))
    assert gaps.min() > 0.05


def test_a_wide_range_is_logarithmic_and_a_narrow_one_linear():
    assert speed_scale(speeds(4, 70), label="", palette="viridis").logarithmic
    assert not speed_scale(speeds(48, 52), label="", palette="viridis").logarithmic


@pytest.mark.parametrize(
    ("low", "high"), [(-1, 1), (3, 8), (-40, 10), (90, 140), (-99.9, 50), (0, 1e7), (0, 0)]
)
def test_changes_have_no_change_in_the_middle(low, high):
    values = np.linspace(low, high, 50)
    scale = change_scale(values, label="%")
    assert scale.fraction([scale.low, 0, scale.high]) == pytest.approx([0, 0.5, 1], abs=2e-3)
    ups = np.array([5.0, 20.0])
    downs = 100 / (1 + ups / 100) - 100
    np.testing.assert_allclose(scale.fraction(ups) + scale.fraction(downs), 1, atol=5e-3)
    middle = np.clip(np.percentile(values, [5, 95]), -99, 9_900)
    assert scale.low <= middle[0] <= middle[1] <= scale.high
    assert np.all(np.diff(scale.ticks) > 0)


def test_one_outlier_does_not_take_the_colours():
    values = np.append(speeds(10, 100), 1e6)
    assert speed_scale(values, label="", palette="viridis").high <= 100


def test_indices_invert_within_a_level():
    values = speeds(10, 100)
    scale = speed_scale(values, label="", palette="viridis")
    indices = scale.indices(values)
    assert indices.min() >= 1
    assert indices.max() <= LEVELS
    back = middle_values(scale)[indices.astype(int) - 1]
    step = (scale.high / scale.low) ** (1 / LEVELS)
    inside = (values >= scale.low) & (values <= scale.high)
    assert np.all(np.abs(np.log(back / values))[inside] <= 0.5 * np.log(step) + 1e-12)
    assert inside.mean() > 0.95


def test_nan_is_transparent_and_values_are_opaque():
    scale = linear_scale(np.array([0.0, 1.0]), label="", palette="magma")
    np.testing.assert_array_equal(scale.indices(np.array([np.nan, 0.0, 1.0])), [0, 1, LEVELS])
    colours = scale.colours()
    assert colours.shape == (LEVELS + 1, 4)
    assert colours[0, 3] == 0
    assert np.all(colours[1:, 3] == 255)


def test_kernel_scale_diverges_about_zero_only_for_negative_values():
    scale = kernel_scale(np.array([-0.1, 0.0, 0.28]), label="k")
    assert scale.low == -scale.high
    assert 0.0 in scale.ticks
    assert scale.high >= 0.28
    scale = kernel_scale(np.array([-1e-9, 0.0, 0.28]), label="k")
    assert scale.low == 0.0


@pytest.mark.parametrize(("low", "high"), [(0.371, 0.418), (0.0051, 0.0099), (210.0, 290.0)])
def test_kernel_scale_starts_below_values_that_are_all_in_the_upper_half(low, high):
    values = np.linspace(low, high, 50)
    scale = kernel_scale(values, label="k")
    assert 0 < scale.low <= low < high <= scale.high
    assert np.ptp(scale.fraction(values)) > 0.6  # the values use most of the colours
    for tick in scale.ticks:
        assert float(f"{tick:.3g}") == pytest.approx(tick)
    assert scale.palette == kernel_scale(np.array([0.0, high]), label="k").palette


@pytest.mark.parametrize("low", [0.0, 0.01, 0.15, 0.2])
def test_kernel_scale_starts_at_zero_where_a_value_is_in_the_lower_half(low):
    scale = kernel_scale(np.array([[low, 0.3], [0.4, np.nan]]), label="k")
    assert scale.low == scale.ticks[0] == 0.0
    assert scale.high == 0.4


def test_ticks_read_well():
    assert [format_tick(v) for v in (0.1 + 0.2, 2.0, 12000.0, -0.5, -1500.0)] == [
        "0.3",
        "2",
        "12,000",
        "\N{MINUS SIGN}0.5",
        "\N{MINUS SIGN}1,500",
    ]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("count", [2, 3, 16, 17, 97, 256])
@pytest.mark.parametrize("smooth", [True, False])
def test_png_reads_back_in_another_library(smooth, count):
    random = np.random.default_rng(0).integers(0, count, (40, 57)).astype(np.uint8)
    ramp = (np.add.outer(np.arange(40), np.arange(57)) % count).astype(np.uint8)
    indices = ramp if smooth else random
    colours = np.random.default_rng(1).integers(0, 256, (count, 4)).astype(np.uint8)
    with MemoryFile(paletted_png(indices, colours)) as memory, memory.open() as image:
        assert image.driver == "PNG"
        assert image.count == 1
        assert image.colorinterp == (ColorInterp.palette,)
        palette = image.colormap(1)
        found = image.read(1)
    np.testing.assert_array_equal(found, indices)
    np.testing.assert_array_equal([palette[k] for k in range(count)], colours)


def test_refusals():
    with pytest.raises(DataError, match="expected finite values"):
        linear_scale(np.array([np.nan]), label="width", palette="magma")
    with pytest.raises(DataError, match="positive values for Mbps, found 0"):
        speed_scale(np.array([0.0, 1.0]), label="Mbps", palette="viridis")
    with pytest.raises(DataError, match="2 colours and indices up to 2"):
        paletted_png(np.array([[2]], np.uint8), np.zeros((2, 4), np.uint8))


def test_widths_of_log10_are_shown_as_factors():
    widths = np.log10(np.geomspace(1.9, 21, 500))
    scale = width_scale(widths, label="width", palette="magma", unit="Mbps")
    times = "\N{MULTIPLICATION SIGN}"
    factors = [f"{round(10**tick, 6):g}" for tick in scale.ticks]
    assert (factors[0], factors[-1]) == ("1.5", "30")
    assert scale.labels == [times + factor for factor in factors]
    assert (scale.low, scale.high) == (scale.ticks[0], scale.ticks[-1])
    # Equal steps of log10 are equal distances.
    np.testing.assert_allclose(
        np.diff(scale.fraction([0.5, 0.7, 0.9])), 0.2 / (scale.high - scale.low)
    )
    assert scale.text(0.5, 3) == f"{times}3.16"
    narrow = width_scale(np.log10([1.21, 1.3, 1.38]), label="width", palette="magma", unit="ms")
    assert narrow.labels[0] == f"{times}1.2"
    decibels = width_scale(np.array([3.0, 9.0]), label="width", palette="magma", unit="dB")
    assert decibels.labels == [format_tick(tick) for tick in decibels.ticks]


def test_each_class_has_one_colour_and_its_name():
    scale = class_scale(np.arange(4.0), label="tier", palette=SPEED_PALETTE, names=tuple("abcd"))
    shades = scale.colours()
    chosen = shades[scale.indices(np.array([0.0, 1.0, 2.0, 3.0]))]
    assert len(np.unique(shades[1:], axis=0)) == len(np.unique(chosen, axis=0)) == 4
    assert scale.labels == list("abcd")
    assert scale.fraction(scale.ticks) == pytest.approx([0.125, 0.375, 0.625, 0.875])
    steps = scale.colour_map((np.arange(4) + 0.5) / 4, bytes=True)
    np.testing.assert_array_equal(chosen, steps)
