"""The figure of joint regions: the right colour at the right place, and keys that say so."""

import io

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from shapely.geometry import box

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.figures.excursion_figures import COLOURS, excursion_figure
from geogp.models.joint.excursions import JointRegion

REGION = Region.from_geometry("XX", "Testland", box(-66.3, 18.0, -66.0, 18.3))
TILES = REGION.tiles(13)


def joint(inside):
    return JointRegion(0.95, inside, inside * 0.97, 0.96, 0.94, 0.98, 0, len(inside))


def draw(met, short):
    found = joint(met), joint(short)
    picture = excursion_figure(
        REGION, TILES, found, Threshold(25, "download"), subtitle="Testland, 2023Q4"
    )
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def share_and_middle(image, name):
    """Return the share of the picture in a colour, and its median place: across, and down."""
    colour = np.round(255 * np.array(to_rgb(COLOURS[name])))
    down, across = np.nonzero((np.abs(image - colour) <= 1).all(2))
    return len(down) / image[:, :, 0].size, np.median(across), np.median(down)


def test_met_short_and_undecided_tiles_have_their_colours_where_they_lie():
    """Met in the north-west, short of it in the south-east, undecided between."""
    longitude, latitude = TILES.centres
    met = (longitude < -66.15) & (latitude > 18.15)
    short = (longitude > -66.2) & (latitude < 18.1)
    image = draw(met, short)
    places = {name: share_and_middle(image, name) for name in COLOURS}
    a_tile = places["met"][0] / met.sum()
    assert places["short"][0] == pytest.approx(a_tile * short.sum(), rel=0.05)
    assert places["undecided"][0] == pytest.approx(a_tile * (~(met | short)).sum(), rel=0.05)
    assert places["met"][1] < places["short"][1]  # further west
    assert places["met"][2] < places["short"][2]  # further north


def test_another_number_of_tiles_is_refused():
    none = np.zeros(len(TILES) - 1, np.bool_)
    with pytest.raises(
        DataError, match=rf"each of {len(TILES)} tiles, found shape \({len(none)},\)"
    ):
        draw(none, none)
