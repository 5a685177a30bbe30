"""What geogp reads from a file of your own tests, and a template of such a file."""

from typing import Any

import numpy as np

from geogp.commands.data_requests import PointsRequest
from geogp.errors import RequestError
from geogp.geodata.places.distances import nearest_km
from geogp.geodata.points.checks import extent_km, mistakes
from geogp.geodata.points.point_tests import PointTests
from geogp.geodata.tiles.quadkeys import NORTHMOST
from geogp.geodata.tiles.quarters import quarter_label
from geogp.maps.page.page_places import town_places
from geogp.models.numerics.devices import pick_device
from geogp.runs.output_files import OutputFiles
from geogp.runs.pipeline.plan import plan_map
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.splits import make_splits
from geogp.runs.progress import ProgressListener, RunListener

FAR_FROM_TOWNS_KM, NEAR_TOWNS_KM, TOWNS_ASKED = 100.0, 30.0, 1000
"""Median distances from towns of 1,000 tests that suggest a lost sign of the coordinates."""

TEMPLATE = """\
time,latitude,longitude,download_mbps,upload_mbps,latency_ms,provider,technology
2023-11-05T14:30:00Z,18.20013,-66.40027,48.2,9.6,31,North Telecom,5G
2023-11-05T14:31:10Z,18.20188,-66.40301,12.7,3.1,54,North Telecom,4G
2023-12-24,18.21950,-66.42333,88.0,17.4,22,South Mobile,5G
"""
"""A file of three tests; the last time is a bare date, which is in UTC."""


def write_template(request: PointsRequest) -> dict[str, Any]:
    """Write `TEMPLATE` to a CSV file; raise RequestError for another file (see `OutputFiles`)."""
    path = request.file
    if path.suffix.lower() != ".csv":
        raise RequestError(f"expected a file that ends in .csv, found another ending: {path}.")
    output = OutputFiles("points", [path], force=request.force, cure="choose another file")
    output.write(path, TEMPLATE.encode())
    return {"template": str(path), "columns": TEMPLATE.partition("\n")[0].split(",")}


def describe_points(request: PointsRequest, listener: ProgressListener) -> dict[str, Any]:
    """Return what `geogp map --points` would read; raise its errors of everything before the fit.

    Warnings go to the listener.
    """
    heard = RunListener()
    inputs = read_inputs(request.map, heard)
    settings = inputs.settled(request.map)
    plan = plan_map(settings, inputs, pick_device(settings.device), heard)
    make_splits(plan.model.settings, inputs, heard)
    points, seen = inputs.points, inputs.observations
    assert points is not None, "the request has a file of tests"
    warnings = [*heard.warnings, *_mistaken(points)]
    for text in warnings:
        listener.warn(text)
    quarters, rows = np.unique(seen.quarter, return_index=True)
    tests = np.add.reduceat(seen.tests, rows)
    wide, high = extent_km(points.longitude, points.latitude)
    return {
        "points": str(request.file),
        "target": points.target,
        "understood": dict(points.notes),
        "columns": points.columns,
        "units": {
            name: {"unit": unit, "from": origin} for name, (unit, origin) in points.units.items()
        },
        "rows": points.rows,
        "left_out": points.counts,
        "tests": len(points.value),
        "tiles": len(np.unique(seen.quadkey)),
        "tile_quarters": len(np.unique(np.column_stack([seen.quadkey, seen.quarter]), axis=0)),
        "quarters": dict(zip(map(quarter_label, quarters.tolist()), tests.tolist(), strict=True)),
        "bounds": [
            *(float(points.longitude.min()), float(points.latitude.min())),
            *(float(points.longitude.max()), float(points.latitude.max())),
        ],
        "extent_km": [round(wide, 1), round(high, 1)],
        "warnings": warnings,
    }


def _mistaken(points: PointTests) -> list[str]:
    """Return a warning if no town is near, but towns are with a swap or another sign."""
    east, north = town_places()
    some = np.linspace(0, len(points.value) - 1, min(TOWNS_ASKED, len(points.value))).astype(int)
    x, y = points.longitude[some], points.latitude[some]
    towns_km = float(np.median(nearest_km(x, y, east, north)))
    if towns_km < FAR_FROM_TOWNS_KM:
        return []
    near = []
    for hint, turned_x, turned_y in mistakes(x, y):
        if np.abs(turned_y).max() < NORTHMOST:
            km = float(np.median(nearest_km(turned_x, turned_y, east, north)))
            near += [f"{km:,.0f} km with {hint}"] * (km < NEAR_TOWNS_KM)
    if not near:
        return []
    begin = f"the tests of {points.path.name} lie {towns_km:,.0f} km from the nearest towns, but "
    return [f"{begin}{' or '.join(near)}. Are the coordinates right?"]
