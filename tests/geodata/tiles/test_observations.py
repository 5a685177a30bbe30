"""Targets and the table of observations."""

import dataclasses

import numpy as np
import pytest

from geogp.errors import RequestError
from geogp.geodata.tiles.observations import Observations
from geogp.geodata.tiles.targets import TARGETS, find_target


@pytest.mark.parametrize(
    ("name", "column", "of_raw", "unit"),
    [
        ("download", "avg_d_kbps", 25.0, "Mbps"),
        ("upload", "avg_u_kbps", 25.0, "Mbps"),
        ("latency", "avg_lat_ms", 25_000.0, "ms"),
        ("tests", "tests", 25_000.0, "tests"),
    ],
)
def test_targets_name_column_and_unit(name, column, of_raw, unit):
    target = find_target(name)
    assert target.columns == (column,)
    assert 25_000 / target.divisor == of_raw
    assert (target.unit, target.suffix) == (unit, unit.lower())
    assert set(TARGETS) == {"download", "upload", "latency", "tests", "tier"}
    assert TARGETS["tier"].columns == ("avg_d_kbps", "avg_u_kbps")
    assert target.counted == (name == "tests")


def test_an_unknown_target_is_refused():
    with pytest.raises(
        RequestError, match="'speed'; choose one of download, upload, latency, tests"
    ):
        find_target("speed")


def test_observations_know_their_length_and_quarters():
    empty = {
        field.name: np.zeros(3)
        for field in dataclasses.fields(Observations)
        if field.name not in {"target", "service"}
    }
    changes = {"quarter": np.array([8080, 8077, 8080]), "target": "download", "service": "mobile"}
    table = Observations(**(empty | changes))
    assert len(table) == 3
    assert table.quarters == (8077, 8080)
