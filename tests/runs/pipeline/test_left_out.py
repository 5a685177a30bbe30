"""Rows that are left out for one target: the split stays, and the run says which."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_worlds import Small

from geogp.errors import DataError
from geogp.geodata.tiles.quadkeys import parse_quadkeys
from geogp.runs.pipeline.read import read_inputs
from geogp.runs.pipeline.splits import make_splits
from geogp.runs.progress import RunListener

SPLITS = "random,tiles,blocks,buffer,latest"


def _spoil(small: Small, rows: int, name: str = "avg_d_kbps", quarter: int = 0) -> list[str]:
    """Put a value that cannot be into some rows of a quarter; return their quadkeys."""
    path = small.tiles(quarter)
    table = pq.read_table(path)
    values = table[name].to_numpy().copy()
    values[:rows] = 10**18
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(values)), path)
    return table["quadkey"].to_pylist()[:rows]


def _parts(small: Small, out, **changes) -> dict:
    """Return the part of each row, by split, quadkey and quarter."""
    request = small.request(out, split=SPLITS, **changes)
    inputs = read_inputs(request, RunListener())
    plan, seen = make_splits(request, inputs, RunListener()), inputs.observations
    return {
        (split, key, quarter): code
        for (split, _), codes in plan.codes.items()
        for key, quarter, code in zip(
            seen.quadkey.tolist(), seen.quarter.tolist(), codes.tolist(), strict=True
        )
    }


@pytest.mark.parametrize("conformal", ["none", "marginal"])
def test_the_parts_of_the_other_rows_stay(own_small, tmp_path, conformal):
    before = _parts(own_small, tmp_path / "run", conformal=conformal)
    gone = parse_quadkeys(_spoil(own_small, 5)).tolist()
    after = _parts(own_small, tmp_path / "run", conformal=conformal)
    first = min(quarter for _, _, quarter in before)
    assert after == {
        (split, key, quarter): code
        for (split, key, quarter), code in before.items()
        if not (key in gone and quarter == first)
    }
    assert len(before) - len(after) == 5 * len(SPLITS.split(","))


def test_other_targets_are_not_touched(own_small, tmp_path):
    before = _parts(own_small, tmp_path / "run")
    _spoil(own_small, 5, "avg_u_kbps")
    assert _parts(own_small, tmp_path / "run") == before


def test_a_run_says_which_rows_were_left_out(own_small, tmp_path):
    tiles = _spoil(own_small, 2)
    request, listener = own_small.request(tmp_path / "run"), RunListener()
    inputs = read_inputs(request, listener)
    (told,) = [one.described() for one in inputs.ingested.left_out]
    first = tuple(
        {"column": "avg_d_kbps", "quadkey": tile, "value": "1000000000000000000"} for tile in tiles
    )
    file = inputs.files[-2].name
    assert told == {"file": file, "quarter": "2023Q3", "rows": 2, "first": first}
    (warning,) = listener.warnings
    assert all(tile in warning for tile in tiles)
    assert make_splits(request, inputs, listener).sizes("random", 0).rows == 1498
    assert inputs.observations.y.max() < 5  # log10 of Mbps


def test_six_bad_rows_end_a_run(own_small, tmp_path):
    _spoil(own_small, 6)
    with pytest.raises(DataError, match=r"impossible values in 6 of 7\d\d rows of the region"):
        read_inputs(own_small.request(tmp_path / "run"), RunListener())


def test_simulated_tiles_are_within_the_limits(small, tmp_path):
    for target in ("download", "upload", "latency"):
        listener = RunListener()
        inputs = read_inputs(small.request(tmp_path / "run", target=target), listener)
        assert inputs.ingested.left_out == ()
        assert listener.warnings == []
        assert np.isfinite(inputs.observations.y).all()
