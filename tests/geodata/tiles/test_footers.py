"""Footers of Parquet files that say other than what geogp expects, or what is so."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket_files import read, tile_columns, tiles_around, write_quarter

from geogp.errors import DataError
from geogp.geodata.store.remote import Patience
from geogp.geodata.store.sources import Folder, Web

QUICK = Patience(attempts=2, first_wait_s=0.01, longest_wait_s=0.02, timeout_s=2.0)


@pytest.fixture
def written(tmp_path):
    """Return the file of a quarter in a folder."""
    return write_quarter(tmp_path / "served", "2020Q1", tile_columns(tiles_around()), rows=100)


@pytest.fixture
def server(faulty, tmp_path, written, cache):
    with faulty.serving(tmp_path / "served") as running:
        yield running


def test_nested_columns_before_the_quadkey_shift_nothing(server, tmp_path, written, testland):
    plain = read(Folder(tmp_path / "served"), testland)
    table = pq.read_table(written)
    nested = pa.array([{"a": place, "b": "x"} for place in range(len(table))])
    pq.write_table(table.add_column(0, "more", nested), written, row_group_size=100)
    for source in (Folder(tmp_path / "served"), Web(server.url, QUICK)):
        found = read(source, testland)
        np.testing.assert_array_equal(found.observations.quadkey, plain.observations.quadkey)
        np.testing.assert_array_equal(found.observations.y, plain.observations.y)


def test_a_footer_that_points_past_the_end_is_damage_and_no_change(server, written, testland):
    """As of a file from whose middle bytes are lost."""
    columns = tile_columns(tiles_around())
    columns["tile"] = [f"POLYGON(({tile}))" * 20 for tile in columns["quadkey"]]
    write_quarter(written.parents[5], "2020Q1", columns, rows=500, compression="none")
    content = written.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    written.write_bytes(content[:4] + content[-footer:])
    with pytest.raises(
        DataError, match=r"the footer places column \w+ at bytes \d+ to \d+, but the file has \d+"
    ):
        read(Web(server.url, QUICK), testland)
