"""Which files a request may read, so that a kept request is of the same files."""

import pytest

from geogp.records.map_settings import MapSettings
from geogp.runs import known_requests
from geogp.runs.known_requests import files_of_request


@pytest.fixture
def asked(tmp_path):
    """A request whose source has tiles in a linked folder."""
    for name in ("tiles", "source", "boundaries"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "parquet").symlink_to(tmp_path / "tiles")
    (tmp_path / "boundaries" / "states.parquet").write_text("states")
    (tmp_path / "tiles" / "one.parquet").write_text("tiles")
    places = {name: str(tmp_path / name) for name in ("source", "boundaries")}
    return MapSettings(region="PR", **places)


def test_files_in_linked_folders_count(asked, tmp_path):
    before = files_of_request(asked)
    assert sorted(path.rpartition("/")[2] for path in before) == ["one.parquet", "states.parquet"]
    (tmp_path / "tiles" / "one.parquet").write_text("other tiles")
    assert files_of_request(asked) != before


def test_a_folder_that_links_to_itself_ends(asked, tmp_path):
    (tmp_path / "tiles" / "again").symlink_to(tmp_path / "tiles")
    assert len(files_of_request(asked)) > 2


def test_a_request_with_more_files_than_are_kept_is_not_known(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(known_requests, "MOST_FILES", 2)
    assert len(files_of_request(asked)) == 2
    (tmp_path / "tiles" / "two.parquet").write_text("tiles")
    assert files_of_request(asked) is None
