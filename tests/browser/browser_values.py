"""What a page should show, worked out in Python from its data."""

import numpy as np

from geogp.distributions.joint_prediction import JointPrediction
from geogp.distributions.prediction import Prediction
from geogp.maps.page.packing import unpack
from geogp.maps.page.page_quantiles import (
    normal_scores,
    past_quantiles,
    probabilities,
    unpack_quantiles,
)
from geogp.value_scales import scale_of

LEVELS = 96


def pixels(picture):
    """Return a canvas as an array of RGBA, (h, w, 4)."""
    shape = (picture["height"], picture["width"], 4)
    return np.frombuffer(picture["data"], np.uint8).reshape(shape)


def quantiles(data, quarter):
    """Return the quantiles of a quarter at the page's levels, (m, h, w); NaN outside the region."""
    shown = unpack_quantiles(data["quantiles"], data["levels"])
    if quarter == data["shown"]:
        return shown
    place = quarter - (quarter > data["shown"])
    middle, lower, more = (spread(data, unpack(one)[place]) for one in data["past"]["quantiles"])
    past = np.stack([middle - lower, middle, middle + lower + more])
    inside = np.isfinite(shown[0])
    found = np.full(shown.shape, np.nan)
    found[:, inside] = past_quantiles(shown[:, inside], data["levels"], past[:, inside])
    return found


def spread(data, raster):
    """Return the values of larger tiles on the map's own tiles."""
    fine, coarse = data["frame"], data["past"]["frame"]
    shift = fine["zoom"] - coarse["zoom"]
    row = (fine["row"] + np.arange(fine["height"]) >> shift) - coarse["row"]
    column = (fine["column"] + np.arange(fine["width"]) >> shift) - coarse["column"]
    return raster[np.ix_(row, column)]


def on_map(data, raster, quarter):
    """Return the values of an array in a quarter; NaN outside the region."""
    inside = np.isfinite(unpack(data["arrays"]["far"]))
    held = raster if quarter == data["shown"] else spread(data, raster)
    return np.where(inside, held, np.nan)


def quantile(data, quarter, level):
    return quantiles(data, quarter)[data["levels"].index(level)]


def probability(data, quarter, threshold):
    """Return the probabilities of a threshold, (h, w); NaN outside the region."""
    found = quantiles(data, quarter)
    inside = np.isfinite(found[0])
    result = np.full(inside.shape, np.nan)
    result[inside] = probabilities(
        found[:, inside],
        data["levels"],
        [scale_of(data["unit"]).modelled(threshold)],
        at_most=data["threshold"]["at_most"],
    )[0]
    return result


def joint(data, values):
    """Return the probability that all values of a tier hold, (h, w); NaN outside the region."""
    tiers, signs, scores = data["tiers"], [], []
    inside = np.isfinite(unpack(data["arrays"]["far"]))
    for target, value in zip(tiers["targets"], values, strict=True):
        of = data if target["levels"] is None else target
        held = unpack_quantiles(of["quantiles"], of["levels"])[:, inside]
        signs.append(-1 if target["threshold"]["at_most"] else 1)
        endless = np.full((1, held.shape[1]), -np.inf)
        at = endless if value is None else normal_scores(held, of["levels"], np.log10([[value]]))
        scores.append(signs[-1] * at[0])
    R = np.tile(np.eye(len(signs)), (inside.sum(), 1, 1))
    pairs = zip(*np.triu_indices(len(signs), 1), strict=True)
    for (one, other), packed in zip(pairs, tiers["correlations"], strict=True):
        R[:, one, other] = R[:, other, one] = unpack(packed)[inside]
    result = np.full(inside.shape, np.nan)
    result[inside] = normal_joint(R * np.outer(signs, signs)).probability(at_least=scores)
    return result


def normal_joint(R):
    """Return standard normal targets with correlations R, (n, t, t)."""
    ones = np.ones(len(R))
    normal = Prediction(0 * ones, ones / 2, ones / 2)
    return JointPrediction(tuple("abc"[: R.shape[1]]), (normal,) * R.shape[1], R)


def layer_of(data, name):
    return next(one for one in data["layers"] if one["id"] == name)


def values_of(data, name, quarter, threshold=None):
    """Return the values that a layer shows, (h, w); NaN outside the region."""
    source, scale = layer_of(data, name)["source"], scale_of(data["unit"])
    if "quantile" in source:
        return scale.values(quantile(data, quarter, source["quantile"]))
    if "width" in source:
        low, high = (quantile(data, quarter, level) for level in source["width"])
        return high - low
    if "probability" in source:
        return probability(data, quarter, threshold)
    if "change" in source:
        return scale.changes(quantile(data, quarter, 0.5) - quantile(data, 0, 0.5))
    if "slice" in source:
        return unpack(data["slices"][source["slice"]])
    held = unpack(data["arrays"][source["array"]])
    return held[0] if held.ndim == 3 else held


def assert_coloured(picture, values, scale, edge=1e-9):
    """Check every pixel: the colour of its value, and none outside the region.

    Where a value lies on the edge of two colours (`edge` of the scale), either is right.
    """
    found = pixels(picture)
    low, high = scale["low"] + scale["shift"], scale["high"] + scale["shift"]
    with np.errstate(invalid="ignore", divide="ignore"):
        place = (
            np.log((values + scale["shift"]) / low) / np.log(high / low)
            if scale["logarithmic"]
            else (values - low) / (high - low)
        )
    inside = np.isfinite(values)
    assert found.shape[:2] == values.shape
    assert np.all(found[~inside] == 0)
    assert np.all(found[inside, 3] == 255)
    colours = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in scale["colours"]])
    assert len(colours) == LEVELS
    right = np.zeros(inside.sum(), bool)
    for nudge in (-edge, edge):
        number = np.clip(np.floor((place[inside] + nudge) * LEVELS), 0, LEVELS - 1).astype(int)
        right |= np.all(colours[number] == found[inside, :3], axis=1)
    assert right.all()


def cells(data, many, quarter=None):
    """Return some cells of the region, (row, column), among them the four at its ends."""
    frame = data["frame"]
    values = quantile(data, data["shown"] if quarter is None else quarter, 0.5)
    row, column = np.nonzero(np.isfinite(values))
    assert values.shape == (frame["height"], frame["width"])
    ends = [row.argmin(), row.argmax(), column.argmin(), column.argmax()]
    some = np.linspace(0, len(row) - 1, many).astype(int)
    return [(int(row[k]), int(column[k])) for k in [*ends, *some]]


def place_of(frame, row, column, *, down=0.5, across=0.5):
    """Return latitude and longitude of a point in a cell."""
    size = 2.0 ** frame["zoom"]
    longitude = (frame["column"] + column + across) / size * 360 - 180
    angle = np.pi * (1 - 2 * (frame["row"] + row + down) / size)
    return float(np.degrees(np.arctan(np.sinh(angle)))), float(longitude)
