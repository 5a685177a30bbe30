"""The reader of Ookla's tiles, on files the tests write and on real ones."""

import hashlib
import re
import shutil
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket_files import (
    NEW,
    OLD,
    TOWN,
    small_region,
    spoil_chunk,
    tile_columns,
    tiles_around,
    write_quarter,
)
from shapely.geometry import Point, box

from geogp.errors import DataError
from geogp.geodata.places.region import Region
from geogp.geodata.store.sources import Folder
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import ATTRIBUTION, SIMULATED, read_observations
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.tile_files import tile_file

QUARTERS = ("2020Q1", "2020Q2", "2020Q3")


def _expected(tiles, region, seed: int, column: str = "avg_d_kbps") -> pd.DataFrame:
    """The rows of one quarter by the plainest route: every tile's centroid, one by one."""
    table = pd.DataFrame({k: v for k, v in tile_columns(tiles, seed).items() if k in OLD})
    codes = quadkeys.parse_quadkeys(table["quadkey"].to_numpy())
    longitude, latitude = quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes))
    table = table.assign(longitude=longitude, latitude=latitude, value=table[column])
    points = [Point(*at) for at in zip(longitude, latitude, strict=True)]
    table["urban"] = [TOWN.contains(point) for point in points]
    return table[[region.boundary.contains(point) for point in points]].sort_values("quadkey")


def _read(folder, region, quarters: str | None = None, **options):
    request = parse_quarters(quarters) if quarters else None
    return read_observations(Folder(folder), region, quarters=request, **options)


@pytest.mark.parametrize(
    ("target", "column", "divisor"),
    [
        ("download", "avg_d_kbps", 1000),
        ("upload", "avg_u_kbps", 1000),
        ("latency", "avg_lat_ms", 1),
    ],
)
def test_the_right_rows_come_back(bucket, testland, target, column, divisor):
    found = _read(bucket, testland, "2020Q1..2020Q3", target=target).observations
    parts = [_expected(tiles_around(), testland, seed, column) for seed in range(3)]
    wanted = pd.concat(parts)
    assert 100 < len(parts[0]) < len(tiles_around())
    assert len(found) == len(wanted)
    assert quadkeys.format_quadkeys(found.quadkey).tolist() == wanted["quadkey"].tolist()
    labels = np.repeat([quarter_index(q) for q in QUARTERS], [len(part) for part in parts])
    np.testing.assert_array_equal(found.quarter, labels)
    np.testing.assert_allclose(found.y, np.log10(wanted["value"] / divisor), rtol=1e-14)
    for name in ("tests", "devices", "longitude", "latitude"):
        np.testing.assert_array_equal(getattr(found, name), wanted[name])
    np.testing.assert_array_equal(found.stratum == "urban", wanted["urban"])
    assert set(found.stratum) == {"urban", "rural"}
    assert (found.target, found.service) == (target, "mobile")


def test_todays_eleven_columns_give_what_seven_do(tmp_path, bucket, testland):
    for seed, quarter in enumerate(QUARTERS):
        write_quarter(tmp_path, quarter, tile_columns(tiles_around(), seed), names=NEW, rows=71)
    old, new = (_read(folder, testland).observations for folder in (bucket, tmp_path))
    pd.testing.assert_frame_equal(_frame(old), _frame(new))


def _frame(observations) -> pd.DataFrame:
    table = {k: v for k, v in vars(observations).items() if isinstance(v, np.ndarray)}
    return pd.DataFrame(table)


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_the_order_of_rows_in_a_file_does_not_matter(tmp_path, bucket, testland, kind):
    columns = tile_columns(tiles_around(), 0)
    shuffled = np.random.default_rng(1).permutation(len(tiles_around()))
    columns = {name: pa.array(values).take(shuffled) for name, values in columns.items()}
    columns["quadkey"] = columns["quadkey"].cast(kind)
    write_quarter(tmp_path, "2020Q1", columns)
    sorted_, mixed = (_read(folder, testland, "2020Q1") for folder in (bucket, tmp_path))
    pd.testing.assert_frame_equal(_frame(sorted_.observations), _frame(mixed.observations))


def test_files_without_statistics_are_read_too(tmp_path, bucket, testland):
    write_quarter(tmp_path, "2020Q1", tile_columns(tiles_around(), 0), write_statistics=False)
    with_, without = (_read(folder, testland, "2020Q1") for folder in (bucket, tmp_path))
    pd.testing.assert_frame_equal(_frame(with_.observations), _frame(without.observations))


def test_strata_are_unknown_without_urban_areas(bucket):
    found = _read(bucket, small_region(urban=False), "2020Q1").observations
    assert set(found.stratum) == {"unknown"}


def test_the_geometry_text_is_never_read(bucket, testland):
    before = _read(bucket, testland, "2020Q1").observations
    path = bucket / tile_file("mobile", quarter_index("2020Q1"))
    for group in range(pq.read_metadata(path).num_row_groups):
        spoil_chunk(path, group, "tile")
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path, columns=["tile"])
    pd.testing.assert_frame_equal(
        _frame(before), _frame(_read(bucket, testland, "2020Q1").observations)
    )


def test_row_groups_far_from_the_region_are_never_decoded(tmp_path, testland):
    codes = np.arange(200, dtype=np.uint64)
    before, after = (quadkeys.format_quadkeys(codes + np.uint64(at)) for at in (10**6, 4**16 - 200))
    near = tiles_around()[: len(tiles_around()) // 200 * 200]
    columns = tile_columns([*before, *near, *after])
    path = write_quarter(tmp_path, "2020Q1", columns)
    whole = _read(tmp_path, testland, "2020Q1")
    for group in (0, pq.read_metadata(path).num_row_groups - 1):
        for name in OLD:
            spoil_chunk(path, group, name)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path, columns=["quadkey"])
    spoilt = _read(tmp_path, testland, "2020Q1")
    pd.testing.assert_frame_equal(_frame(whole.observations), _frame(spoilt.observations))
    assert spoilt.files[0].rows == len(columns["quadkey"])


def test_a_damaged_row_group_of_the_region_is_refused(bucket, testland):
    path = bucket / tile_file("mobile", quarter_index("2020Q1"))
    inside = _expected(tiles_around(), testland, 0).index[0] // 200
    spoil_chunk(path, inside, "avg_d_kbps")
    with pytest.raises(DataError, match=f"{path.name} is not a complete Parquet file"):
        _read(bucket, testland, "2020Q1")


def test_inputs_are_recorded(bucket, testland):
    found = _read(bucket, testland)
    assert [file.name for file in found.files] == [
        tile_file("mobile", quarter_index(quarter)) for quarter in QUARTERS
    ]
    for file in found.files:
        content = (bucket / file.name).read_bytes()
        assert file.sha256 == hashlib.sha256(content).hexdigest()
        assert file.rows == len(tiles_around())
    assert sum(file.rows_used for file in found.files) == len(found.observations)


def test_the_name_of_a_file_is_that_of_the_bucket():
    assert tile_file("fixed", quarter_index("2022Q4")) == (
        "parquet/performance/type=fixed/year=2022/quarter=4/"
        "2022-10-01_performance_fixed_tiles.parquet"
    )


def test_the_service_chooses_the_files(bucket, testland):
    write_quarter(bucket, "2021Q1", tile_columns(tiles_around()), service="fixed")
    found = _read(bucket, testland, service="fixed")
    assert found.observations.quarters == (quarter_index("2021Q1"),)
    assert found.observations.service == "fixed"


def test_simulated_tiles_are_not_attributed_to_ookla(bucket, testland):
    credits_of_ookla = {"attribution": ATTRIBUTION, "license": "CC-BY-NC-SA-4.0"}
    assert _read(bucket, testland).credits == credits_of_ookla
    assert "Ookla" in ATTRIBUTION
    (bucket / "simulation.json").write_text("{}")
    found = _read(bucket, testland)
    assert found.credits == {"attribution": SIMULATED}
    assert "Ookla" not in SIMULATED


def test_a_gap_inside_a_range_is_a_warning(bucket, testland):
    (bucket / tile_file("mobile", quarter_index("2020Q2"))).unlink()
    found = _read(bucket, testland, "2019Q4..2020Q3")
    assert found.missing == (quarter_index("2019Q4"), quarter_index("2020Q2"))
    assert len(found.warnings) == 1
    assert "no tiles of Testland for 2019Q4, 2020Q2" in found.warnings[0]
    # Nobody asked for what was before the first file and after the last.
    assert _read(bucket, testland).missing == (quarter_index("2020Q2"),)


def test_a_named_quarter_must_be_there(bucket, testland):
    with pytest.raises(
        DataError, match=r"2021Q1 was requested but .*2021-01-01_performance_mobile"
    ):
        _read(bucket, testland, "2020Q1..2020Q3,2021Q1")


def test_a_range_without_any_file_is_refused(bucket, testland):
    with pytest.raises(DataError, match=r"no mobile tiles of Testland .* 2022Q1 to 2022Q3"):
        _read(bucket, testland, "2022Q1..2022Q3")
    with pytest.raises(DataError, match="no fixed tiles of Testland"):
        _read(bucket, testland, service="fixed")


@pytest.mark.parametrize("rows", [0, 300])
def test_a_file_without_a_tile_of_the_region(bucket, testland, rows):
    far = quadkeys.format_quadkeys(np.arange(rows, dtype=np.uint64)).tolist()
    columns = tile_columns(far, quadkey=pa.array(far, pa.string()), tile=pa.array(far, pa.string()))
    write_quarter(bucket, "2020Q2", columns)
    assert _read(bucket, testland, "2020Q1..2020Q3").missing == (quarter_index("2020Q2"),)
    with pytest.raises(DataError, match=r"the file of 2020Q2 .* has no tile of Testland"):
        _read(bucket, testland, "2020Q2")


def test_a_sparse_quarter_is_a_warning(bucket, testland):
    inside = _expected(tiles_around(), testland, 0)["quadkey"].tolist()
    write_quarter(bucket, "2020Q2", tile_columns(inside[: round(0.81 * len(inside))]))
    assert _read(bucket, testland).warnings == ()
    fewer = round(0.61 * len(inside))
    write_quarter(bucket, "2020Q2", tile_columns(inside[:fewer]))
    (warning,) = _read(bucket, testland).warnings
    assert f"2020Q2 has {fewer} rows in Testland, 61% of the median" in warning


INSIDE = quadkeys.format_quadkeys(
    quadkeys.tiles_to_codes(*quadkeys.tiles_at([-66.05], [18.27]))
).item()


def _refused(tmp_path, region, columns, *, names=OLD) -> str:
    """Return the message with which a file is refused."""
    path = write_quarter(tmp_path, "2020Q1", columns, names=names)
    with pytest.raises(DataError, match="cannot be used:") as refusal:
        _read(tmp_path, region, "2020Q1")
    assert str(path) in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("name", ["quadkey", "avg_d_kbps", "tests", "devices"])
def test_a_missing_column_is_refused(tmp_path, testland, name):
    names = [other for other in OLD if other != name]
    message = _refused(tmp_path, testland, tile_columns(tiles_around()), names=names)
    assert f"expected a column {name}, found {', '.join(names)}" in message


def test_columns_of_wrong_type_are_all_named(tmp_path, testland):
    tiles = tiles_around()
    columns = tile_columns(
        tiles, quadkey=[int(tile) for tile in tiles], avg_d_kbps=["5"] * len(tiles)
    )
    message = _refused(tmp_path, testland, columns)
    assert "expected strings in column quadkey, found int64" in message
    assert "expected numbers in column avg_d_kbps, found string" in message


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (INSIDE[:-1] + "7", "digits 0 to 3, found 1 .*" + INSIDE[:-1] + "7"),
        (INSIDE[:-1], "16 digits .*found 1 of another length, the first '" + INSIDE[:-1] + "'"),
        (INSIDE + "0", "of another length"),
        ("banana", "of another length.*'banana'"),
        ("!", "of another length.*'!'"),
        ("z" * 16, "digits 0 to 3.*zzzz"),
    ],
)
def test_bad_quadkeys_are_refused_wherever_they_are(tmp_path, testland, tile, message):
    tiles = sorted([*tiles_around(), tile])
    columns = tile_columns(tiles)
    path = write_quarter(tmp_path, "2020Q1", columns)
    with pytest.raises(DataError, match=f"(?s){path.name} cannot be used:.*{message}"):
        _read(tmp_path, testland, "2020Q1")


def test_quadkeys_that_are_no_text_are_refused(tmp_path, testland):
    for tile, statistics in [(b"\xf5" * 16, True), (INSIDE[:-1].encode() + b"\xf5", False)]:
        content = sorted([*(tile.encode() for tile in tiles_around()), tile])
        binary = pa.StringArray.from_buffers(len(content), *pa.array(content).buffers()[1:])
        columns = tile_columns(tiles_around()[:1] * len(content), quadkey=binary)
        columns["avg_d_kbps"][content.index(tile)] = -1
        write_quarter(tmp_path, "2020Q1", columns, write_statistics=statistics)
        with pytest.raises(DataError, match="found bytes that are not text"):
            _read(tmp_path, testland, "2020Q1")


def test_a_long_quadkey_at_the_end_of_the_regions_range_is_seen(tmp_path, testland):
    last = np.array([quadkeys.code_ranges(*testland.bounds, most=16)[-1][1]], np.uint64)
    tile = quadkeys.format_quadkeys(last).item() + "0"
    columns = tile_columns([*tiles_around(), tile])
    write_quarter(tmp_path, "2020Q1", columns, write_statistics=False)
    with pytest.raises(DataError, match=f"of another length, the first '{tile}'"):
        _read(tmp_path, testland, "2020Q1")


def test_duplicates_in_a_quarter_are_refused(tmp_path, testland):
    inside = _expected(tiles_around(), testland, 0)["quadkey"].tolist()
    tiles = [*tiles_around(), inside[7], inside[3]]
    message = _refused(tmp_path, testland, tile_columns(tiles))
    assert f"found 2 duplicates, the first in tile {inside[3]}" in message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("avg_d_kbps", 0.0, "expected finite avg_d_kbps above 0, found 1 .* first 0.0"),
        ("avg_d_kbps", -5.0, "expected finite avg_d_kbps above 0, found 1 .* first -5.0"),
        ("avg_d_kbps", np.inf, "expected finite avg_d_kbps above 0, found 1 .* first inf"),
        ("avg_d_kbps", np.nan, "expected finite avg_d_kbps above 0, found 1 .* first nan"),
        ("tests", 0.0, "expected whole numbers of tests, 1 or more, found 1 .* first 0.0"),
        ("tests", np.nan, "expected whole numbers of tests, 1 or more, found 1 .* first nan"),
        ("tests", np.inf, "expected whole numbers of tests, 1 or more, found 1 .* first inf"),
        ("devices", 0.0, "devices, from 1 to the number of tests, found 1 .* first 0.0"),
        ("devices", 999.0, "devices, from 1 to the number of tests, found 1 .* first 999.0"),
        ("devices", np.nan, "devices, from 1 to the number of tests, found 1 .* first nan"),
    ],
)
def test_impossible_numbers_are_refused_with_the_tile(tmp_path, testland, name, value, message):
    tiles = tiles_around()
    place = _expected(tiles, testland, 0).index[11]
    columns = tile_columns(tiles)
    columns[name] = columns[name].astype(float)
    columns[name][place] = value
    write_quarter(tmp_path, "2020Q1", columns)
    with pytest.raises(DataError, match=f"{message} in tile {tiles[place]}"):
        _read(tmp_path, testland, "2020Q1")


@pytest.mark.parametrize("name", ["quadkey", "avg_d_kbps", "tests", "devices"])
def test_empty_values_are_refused(tmp_path, testland, name):
    columns = tile_columns(tiles_around())
    place = _expected(tiles_around(), testland, 0).index[11]
    values = pa.array(columns[name]).to_pylist()
    values[place] = None
    message = _refused(tmp_path, testland, columns | {name: values})
    assert f"expected no empty values in {name}, found 1" in message


def test_an_empty_quadkey_outside_the_region_is_refused_too(tmp_path, testland):
    """It could be any tile's; and dropped in silence it would shift all other columns."""
    tiles = tiles_around()
    place = _expected(tiles, testland, 0).index[0] - 5
    message = _refused(
        tmp_path,
        testland,
        tile_columns(tiles) | {"quadkey": [*tiles[:place], None, *tiles[place + 1 :]]},
    )
    assert message.count("expected no empty values in quadkey, found 1") == 1
    assert "another length" not in message


def test_faults_are_reported_together(tmp_path, testland):
    tiles = tiles_around()
    inside = _expected(tiles, testland, 0).index
    columns = tile_columns(tiles)
    columns["avg_d_kbps"][inside[:2]] = 0
    columns["tests"][inside[3]] = 0
    message = _refused(tmp_path, testland, columns)
    assert "avg_d_kbps above 0, found 2" in message
    assert "whole numbers of tests, 1 or more, found 1" in message
    assert "whole numbers of devices, from 1 to the number of tests, found 1" in message
    columns["quadkey"][inside[4]] = columns["quadkey"][inside[4]][:15]
    message = _refused(tmp_path, testland, columns)
    assert "1 of another length" in message
    assert "avg_d_kbps above 0, found 2" in message


def test_only_the_column_asked_for_must_be_sound(tmp_path, testland):
    columns = tile_columns(tiles_around(), avg_u_kbps=np.zeros(len(tiles_around())))
    write_quarter(tmp_path, "2020Q1", columns)
    assert len(_read(tmp_path, testland, "2020Q1").observations)
    with pytest.raises(DataError, match="finite avg_u_kbps above 0"):
        _read(tmp_path, testland, "2020Q1", target="upload")


def _with_unknown_type(content: bytes) -> bytes:
    """Spoil the stored type of the quadkey chunks, at which pyarrow ends the process."""
    spoilt, changes = re.subn(rb"(?s)\x15\x0c(?=\x19.{2,9}\x07quadkey)", b"\x15\x4e", content)
    assert changes
    return spoilt


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "length of the footer": lambda content: content[:-8] + b"\xff" * 4 + content[-4:],
    "name of a column": lambda content: content.replace(b"devices", b"\xf5evices"),
    "type of a chunk": _with_unknown_type,
    "empty": lambda _: b"",
    "html": lambda _: b"<html>not found</html>" * 20,
    "only the magic": lambda _: b"PAR1PAR1",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_files_that_are_not_whole_are_refused(bucket, testland, damage):
    path = bucket / tile_file("mobile", quarter_index("2020Q2"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{path.name} is not a complete Parquet file"):
        _read(bucket, testland, "2020Q1..2020Q3")


def test_a_file_in_the_way_of_a_folder_is_no_file(bucket, testland):
    path = bucket / tile_file("mobile", quarter_index("2020Q2"))
    path.unlink()
    path.mkdir()
    assert _read(bucket, testland, "2020Q1..2020Q3").missing == (quarter_index("2020Q2"),)


def test_whatever_bytes_are_wrong_only_data_errors_come(bucket, testland):
    path = bucket / tile_file("mobile", quarter_index("2020Q2"))
    good = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(50):
        content = bytearray(good)
        for place in random.integers(len(good) - 6000, len(good), 2):
            content[place] = random.integers(256)
        path.write_bytes(content)
        try:
            _read(bucket, testland, "2020Q2")
        except DataError:
            refused += 1
    assert refused > 15


@pytest.mark.real
def test_every_row_of_puerto_rico_is_read(real_data, puerto_rico):
    found = _read(real_data / "ookla-open-data", puerto_rico, "2019Q1..2023Q4")
    assert len(found.observations) == 133_436
    assert len(found.observations.quarters) == 18
    assert found.missing == (quarter_index("2019Q4"), quarter_index("2020Q2"))
    last = found.observations.quarter == quarter_index("2023Q4")
    assert last.sum() == 6_345
    # Of the 5,423 tiles in an urban area 7 lie off the generalised coast.
    assert (found.observations.stratum[last] == "urban").sum() == 5_416
    median = np.median(found.observations.y[last])
    assert 10**median == pytest.approx(96.5, rel=0.05)


@pytest.mark.real
def test_real_damaged_quarters_are_warnings(real_data, puerto_rico, tmp_path):
    for folder in ("ookla-open-data", "ookla-open-data-damaged"):
        for path in (real_data / folder).rglob("*mobile_tiles.parquet"):
            beside = tmp_path / path.relative_to(real_data / folder)
            beside.parent.mkdir(parents=True, exist_ok=True)
            beside.symlink_to(path)
    found = _read(tmp_path, puerto_rico)
    assert found.missing == ()
    assert [warning[:6] for warning in found.warnings] == ["2019Q4", "2020Q2"]
    assert all("may be incomplete" in warning for warning in found.warnings)


@pytest.mark.real
def test_the_sample_of_todays_schema_is_read(real_data, tmp_path):
    sample = real_data / "ookla-schema-sample-2021-2-mobile.parquet"
    path = tmp_path / tile_file("mobile", quarter_index("2021Q2"))
    path.parent.mkdir(parents=True)
    shutil.copy(sample, path)
    table = pq.read_table(sample)
    codes = quadkeys.parse_quadkeys(table["quadkey"].to_numpy())
    longitude, latitude = quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes))
    edges = (longitude.min() - 1, latitude.min() - 1, longitude.max() + 1, latitude.max() + 1)
    found = _read(tmp_path, Region.from_geometry("S", "Sample", box(*edges)), "2021Q2")
    order = np.argsort(codes)
    speeds = table["avg_d_kbps"].to_numpy()[order] / 1000
    np.testing.assert_allclose(found.observations.y, np.log10(speeds), rtol=1e-14)
