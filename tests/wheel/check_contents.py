"""Tell whether a wheel holds every file that git has of the packages and of the demo region."""

import subprocess
import sys
import zipfile
from pathlib import Path

PLACES = {
    "geogp/": "geogp/",
    "apps/geogp_cli/": "geogp_cli/",
    "data/demo/": "geogp/demo_data/",
    "docs/schema/": "geogp/schema/",
}
"""Folders of the repository, and where their files are in the wheel."""


def missing(root: Path, wheel: Path) -> list[str]:
    """Return the files of the repository that a wheel should hold and does not."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--", *PLACES],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")[:-1]
    with zipfile.ZipFile(wheel) as opened:
        held = set(opened.namelist())
    found = []
    for source, target in PLACES.items():
        names = [name for name in listed if name.startswith(source)]
        if not names:
            sys.exit(f"expected files in {source}, found none that git knows.")
        found += [name for name in names if target + name.removeprefix(source) not in held]
    return found


if __name__ == "__main__":
    lacking = missing(Path(sys.argv[1]), Path(sys.argv[2]))
    if lacking:
        sys.exit(f"the wheel lacks {', '.join(lacking)}; see [tool.hatch.build] in pyproject.toml.")
