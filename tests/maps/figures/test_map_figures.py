from dataclasses import replace
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from maps_worlds import VIEWS, make_world, stretched
from PIL import Image

from geogp.errors import RequestError
from geogp.maps.figures.figure_layout import Canvas, degree_label
from geogp.maps.figures.map_figures import map_figure, write_map_figures
from geogp.maps.scales import BOUND_PALETTE, SPEED_PALETTE
from geogp.maps.views import find_view
from geogp.reports.words import DEFAULT_ATTRIBUTION


def pixels_of(png):
    with Image.open(BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def border_is_white(picture, width=4):
    edges = [picture[:width], picture[-width:], picture[:, :width], picture[:, -width:]]
    return all(np.all(edge == 255) for edge in edges)


def test_the_attribution_stands_in_the_picture_and_in_its_metadata():
    world = make_world(stretched(1.0, 1.0), 12)
    named = world.grid.assign_attrs(attribution="Data of Somebody, CC BY 4.0")
    pictures = [map_figure(grid, world.region, "median") for grid in (world.grid, named)]
    infos = [Image.open(BytesIO(one)).info.get("Copyright") for one in pictures]
    assert infos == [None, "Data of Somebody, CC BY 4.0"]
    before, after = map(pixels_of, pictures)
    changed = np.flatnonzero((before != after).any((1, 2)))
    assert len(changed) > 5
    assert changed.min() > 0.93 * len(before)


@pytest.mark.parametrize(("across", "up"), [(1.0, 1.0), (2.4, 0.8), (0.25, 1.8)])
def test_wide_and_tall_regions_fit_their_figures(across, up):
    world = make_world(stretched(across, up), 12)
    picture = pixels_of(map_figure(world.grid, world.region, "median", quarter="2023Q4"))
    height, width = picture.shape[:2]
    assert border_is_white(picture)  # nothing is cut off
    assert 0.3 < width / height < 4
    assert 600 < width < 2600
    assert height < 2600


@pytest.mark.parametrize(
    ("across", "up"),
    [
        (1.0, 1.0),
        pytest.param(2.4, 0.8, marks=pytest.mark.trial),
        pytest.param(0.25, 1.8, marks=pytest.mark.trial),
    ],
)
def test_texts_are_whole_and_overlap_nothing(across, up, monkeypatch):
    drawn = []
    draw = Canvas.png
    monkeypatch.setattr(
        Canvas, "png", lambda self, named: (drawn.append(self.figure), draw(self, named))[1]
    )
    world = make_world(stretched(across, up), 12)
    grid = world.grid.assign_attrs(attribution=DEFAULT_ATTRIBUTION)
    for view in VIEWS:
        map_figure(grid, world.region, view, quarter="2023Q4")
    for figure in drawn:
        # A label at the end of an axis may stand out beside it, but not into a text.
        boxes = [text.get_window_extent() for text in [*figure.texts, *figure.legends]]
        panels = [axes.get_window_extent() for axes in figure.axes]
        for place, one in enumerate(boxes):
            others = [*boxes[place + 1 :], *(axes.get_tightbbox() for axes in figure.axes)]
            assert not any(one.overlaps(other) for other in others)
            assert figure.bbox.x0 <= one.x0 < one.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= one.y0 < one.y1 <= figure.bbox.y1
        for place, one in enumerate(panels):
            assert not any(one.overlaps(other) for other in panels[place + 1 :])
    assert any(world.region.name in text.get_text() for text in drawn[-1].texts)


@pytest.mark.parametrize(
    ("view", "variable", "palette"),
    [
        ("median", "median_mbps", SPEED_PALETTE),
        ("mean", "mean_mbps", SPEED_PALETTE),
        ("bound", "lower_mbps", BOUND_PALETTE),
    ],
)
def test_the_map_is_the_right_way_up_and_in_the_right_colours(world, view, variable, palette):
    grid = world.grid.copy()
    north = grid["y"].values > grid["y"].values.mean()
    values = np.where(north[:, None], 100.0, 10.0)
    outside = np.isnan(grid[variable].values)
    grid[variable] = (("y", "x"), np.where(outside, np.nan, values).astype(np.float32))
    grid["far"] = (("y", "x"), np.zeros_like(grid["far"].values))
    picture = pixels_of(map_figure(grid, world.region, view))
    shades = (mpl.colormaps[palette]([0.0, 1.0], bytes=True))[:, :3]
    body = picture[: int(0.8 * len(picture))]
    low_rows, high_rows = (np.nonzero((body == shade).all(axis=2))[0] for shade in shades)
    assert min(len(low_rows), len(high_rows)) > 20_000
    assert high_rows.max() <= low_rows.min()


def test_far_tiles_are_greyed(world):
    near = world.grid.copy()
    near["far"] = (("y", "x"), np.zeros_like(near["far"].values))
    greyed = pixels_of(map_figure(world.grid, world.region, "median")).astype(int)
    plain = pixels_of(map_figure(near, world.region, "median")).astype(int)
    assert greyed.shape == plain.shape

    def vivid(picture):
        return (np.ptp(picture, axis=2) > 60).sum()

    share = (world.distance_km <= 5.0).mean()
    assert vivid(greyed) / vivid(plain) == pytest.approx(share, abs=0.15)


def test_figures_are_written_and_repeatable(world, tmp_path):
    paths = write_map_figures(world.grid, world.region, tmp_path, quarter="2023Q4")
    assert [path.name for path in paths] == ["median.png", "mean.png", "bound.png", "width.png"]
    contents = [path.read_bytes() for path in paths]
    assert len(set(contents)) == 4
    for view, content in zip(("median", "mean", "bound", "width"), contents, strict=True):
        assert content == map_figure(world.grid, world.region, view, quarter="2023Q4")


def test_names_are_never_read_as_mathematics(world):
    plain = replace(world.region, name="A $\\frac{1$ B")
    assert len(map_figure(world.grid, plain, "median")) > 10_000


def test_the_cautious_bound_is_the_upper_one_for_latency(world, latency_world):
    assert [find_view(world.grid, view).variable for view in VIEWS] == [
        "median_mbps",
        "mean_mbps",
        "lower_mbps",
        "width_log10",
    ]
    assert [find_view(latency_world.grid, view).variable for view in VIEWS] == [
        "median_ms",
        "mean_ms",
        "upper_ms",
        "width_log10",
    ]
    assert find_view(latency_world.grid, "bound").scale(latency_world.grid).label.endswith(", ms")
    assert find_view(world.grid, "median").scale(world.grid).label == "median download speed, Mbps"
    assert find_view(world.grid, "mean").scale(world.grid).label == "mean download speed, Mbps"
    assert (
        find_view(latency_world.grid, "mean").scale(latency_world.grid).label == "mean latency, ms"
    )


def test_the_mean_has_a_scale_of_its_own(world):
    p = world.prediction
    mean = 10**p.mean * np.exp(np.log(10) ** 2 * (p.function_variance + p.noise_variance) / 2)
    scale = find_view(world.grid, "mean").scale(world.grid)
    low, high = np.percentile(mean, [1, 99])
    assert scale.low <= low < high <= scale.high
    assert scale.palette == find_view(world.grid, "median").scale(world.grid).palette
    assert scale.high > find_view(world.grid, "median").scale(world.grid).high


def test_longitudes_beyond_the_antimeridian_are_labelled_as_people_write_them():
    labels = [degree_label(v, "E", "W") for v in (-66.5, -182.0, 0.0, -180.0)]
    assert labels == ["66.5° W", "178° E", "0°", "180°"]


def test_refusals(world):
    with pytest.raises(
        RequestError, match="unknown view 'level'; choose one of median, mean, bound, width"
    ):
        map_figure(world.grid, world.region, "level")
