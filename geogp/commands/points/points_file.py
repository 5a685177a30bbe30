"""What geogp reads from a file of your own tests, and a template of such a file."""

from typing import Any

import numpy as np

from geogp.commands.data_requests import PointsRequest
from geogp.commands.output_files import OutputFiles
from geogp.errors import RequestError
from geogp.geodata.points.point_roles import PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.tiles.quadkeys import tiles_at, tiles_to_codes
from geogp.geodata.tiles.quarters import quarter_label

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


def describe_points(request: PointsRequest) -> dict[str, Any]:
    """Return what `geogp map --points` would read; raise the errors of `read_point_tests`."""
    source = PointSource(
        str(request.file), request.columns, request.units, request.provider, request.technology
    )
    found = read_point_tests(source, target=request.target, service=request.service)
    code = tiles_to_codes(*tiles_at(found.longitude, found.latitude))
    quarters, tests = np.unique(found.quarter, return_counts=True)
    pooled = np.unique(np.column_stack([code.astype(np.int64), found.quarter]), axis=0)
    return {
        "points": str(request.file),
        "target": request.target,
        "columns": found.columns,
        "rows": found.rows,
        "tests": len(found.value),
        "tiles": len(np.unique(code)),
        "tile_quarters": len(pooled),
        "quarters": dict(zip(map(quarter_label, quarters.tolist()), tests.tolist(), strict=True)),
        "bounds": [
            *(float(found.longitude.min()), float(found.latitude.min())),
            *(float(found.longitude.max()), float(found.latitude.max())),
        ],
        "warnings": list(found.warnings),
    }
