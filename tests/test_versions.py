"""The versions that pyproject.toml promises are those that `make test-oldest` installs."""

import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LATER = {"torch"}
"""What `make test-oldest` takes from the environment."""


def test_each_oldest_version_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    promised = {}
    for line in chain(project["dependencies"], *extras.values()):
        wanted = Requirement(line)
        assert {one.operator for one in wanted.specifier} <= {">="}
        for one in wanted.specifier:
            promised.setdefault(wanted.name, set()).add(Version(one.version))
    assert {Requirement(line).name for line in project["dependencies"]} <= set(promised)
    lines = (ROOT / "tests" / "oldest-versions.txt").read_text("utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert tested.pop("distributed") == tested["dask"]  # the extra of dask
    expected = {name: {Version(version)} for name, version in tested.items()}
    assert {name: found for name, found in promised.items() if name not in LATER} == expected
