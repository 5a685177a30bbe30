"""Which row groups of a file are read."""

import numpy as np
from bucket_files import tile_columns, write_quarter

from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters


def test_row_groups_that_touch_the_region_at_one_tile_are_read(tmp_path, testland):
    """At the last tile of a range of codes, which starts its group, and at the first of one."""
    first, last = testland.code_ranges.T
    tiles = testland.tiles()
    inside = quadkeys.tiles_to_codes(tiles.column, tiles.row).astype(np.int64)
    end, start = np.intersect1d(last, inside)[0], np.intersect1d(first, inside)[0]
    codes = np.array([end, end + 1, start - 1, start])
    for code in (end + 1, start - 1):
        assert not ((first <= code) & (code <= last)).any()
    texts = quadkeys.format_quadkeys(codes.astype(np.uint64)).tolist()
    write_quarter(tmp_path, "2020Q1", tile_columns(texts), rows=2)
    read = read_observations(Folder(tmp_path), testland, quarters=parse_quarters("2020Q1"))
    assert read.observations.quadkey.astype(np.int64).tolist() == [end, start]
