"""An S3 server on this machine as the bucket: synthetic files, and the real ones."""

import logging

import numpy as np
import pytest
import requests
from bucket_files import values
from moto.server import ThreadedMotoServer

from geogp.geodata.places.census import read_region
from geogp.geodata.store.cache import cache_items
from geogp.geodata.store.sources import Folder, open_source
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters

PUBLIC = {"x-amz-acl": "public-read"}  # what the server lets be read without a name


@pytest.fixture(scope="module")
def s3():
    """Return the address of an empty S3 server."""
    logging.getLogger("werkzeug").setLevel("ERROR")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def put(s3, name, folder):
    """Put a folder into a new bucket, to be read by everybody."""
    assert requests.put(f"{s3}/{name}", timeout=30).ok
    for path in folder.rglob("*"):
        if path.is_file():
            address = f"{s3}/{name}/{path.relative_to(folder)}"
            assert requests.put(address, path.read_bytes(), headers=PUBLIC, timeout=30).ok


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_bucket_gives_what_the_folder_gives(
    s3, bucket, testland, cache, monkeypatch, *, variable
):
    name = variable.lower().replace("_", "-")
    put(s3, name, bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(variable, s3)
    found = read_observations(open_source(f"s3://{name}"), testland)
    local = read_observations(Folder(bucket), testland)
    for key, value in values(local).items():
        np.testing.assert_array_equal(values(found)[key], value)
    assert None not in {file.etag for file in found.files}
    again = read_observations(open_source(f"s3://{name}"), testland)
    assert again.files == found.files


def test_a_file_replaced_in_the_bucket_is_said(s3, bucket, testland, cache, monkeypatch):
    put(s3, "replaced", bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3)
    source = open_source("s3://replaced")
    wanted = parse_quarters("2020Q1")
    first = read_observations(source, testland, quarters=wanted)
    other = bucket / read_observations(Folder(bucket), testland).files[1].name
    address = f"{s3}/replaced/{first.files[0].name}"
    assert requests.put(address, other.read_bytes(), headers=PUBLIC, timeout=30).ok
    (warning,) = read_observations(source, testland, quarters=wanted).warnings
    assert "changed the files of 2020Q1" in warning


@pytest.mark.real
def test_the_real_tiles_from_a_bucket(s3, real_data, cache, monkeypatch):
    put(s3, "ookla-open-data", real_data / "ookla-open-data")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3)
    region = read_region(Folder(real_data / "census"), "PR").region
    wanted = parse_quarters("2019Q1..2023Q4")
    remote, local = (
        read_observations(source, region, quarters=wanted)
        for source in (open_source("s3://ookla-open-data"), Folder(real_data / "ookla-open-data"))
    )
    assert len(remote.observations) == 133_436
    assert remote.missing == local.missing
    assert remote.warnings == local.warnings
    for key, value in values(local).items():
        np.testing.assert_array_equal(values(remote)[key], value)
    # Of seven columns the geometry, which packs well, is a good part of the bytes.
    assert sum(file.bytes_read for file in remote.files) < sum(
        file.bytes_stored for file in remote.files
    )
    assert {item.state for item in cache_items(check=True)} == {"whole"}


@pytest.mark.real
def test_the_real_tiles_over_http(faulty, real_data, cache):
    region = read_region(Folder(real_data / "census"), "PR").region
    wanted = parse_quarters("2023Q1..2023Q4")
    local = read_observations(Folder(real_data / "ookla-open-data"), region, quarters=wanted)
    with faulty.serving(real_data / "ookla-open-data") as server:
        faults = [faulty.Fault(kind, place) for place, kind in enumerate(("cut", "503", "short"))]
        server.tell(*faults)
        remote = read_observations(open_source(server.url), region, quarters=wanted)
    for key, value in values(local).items():
        np.testing.assert_array_equal(values(remote)[key], value)
