"""An S3 server on this machine as the bucket: synthetic files, and the real ones."""

import logging

import numpy as np
import pytest
import requests
from bucket_files import values
from moto.server import ThreadedMotoServer

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


def test_a_bucket_gives_what_the_folder_gives(s3, bucket, testland, cache, monkeypatch):
    put(s3, "given", bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    assert open_source("s3://given").where == f"{s3}/given"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3)
    found = read_observations(open_source("s3://given"), testland)
    local = read_observations(Folder(bucket), testland)
    for key, value in values(local).items():
        np.testing.assert_array_equal(values(found)[key], value)
    assert None not in {file.etag for file in found.files}
    again = read_observations(open_source("s3://given"), testland)
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
