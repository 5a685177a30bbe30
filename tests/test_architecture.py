"""Dependencies point one way: apps, workflow, maps and calibration, models and geodata."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A layer, and what it may import of geogp.
ALLOWED = {
    "geogp/models": {"errors", "files", "models"},
    "geogp/geodata": {"errors", "files", "geodata"},
    "geogp/calibration": {"errors", "files", "page_policy", "geodata", "models", "calibration"},
    "geogp/maps": {"errors", "files", "page_policy", "geodata", "models", "maps"},
}

# A layer, and foreign packages that it must do without.
FORBIDDEN = {
    # SciPy, which every machine with GPyTorch has, searches neighbours (its KDTree).
    "geogp/models": {"geopandas", "shapely", "rasterio", "xarray", "pandas", "pyarrow"},
    "geogp/geodata": {"torch", "folium", "matplotlib"},
    "geogp/calibration": {"folium", "rasterio"},
    "geogp/maps": {"torch"},
}


def imported(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("layer", ALLOWED)
def test_layers_import_only_what_lies_below(layer):
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        for name in imported(path):
            top, *rest = name.split(".")
            if top == "geogp":
                assert rest, f"{path} imports the whole package"
                assert rest[0] in ALLOWED[layer], f"{path} imports {name}"
            assert top not in FORBIDDEN[layer], f"{path} imports {name}"


def test_modules_are_short():
    """About 400 lines: what is longer holds two things."""
    lengths = {path: len(path.read_text().splitlines()) for path in ROOT.glob("geogp/**/*.py")}
    assert len(lengths) > 100
    assert {str(path): length for path, length in lengths.items() if length > 420} == {}


def test_the_library_does_not_know_the_command():
    for path in (ROOT / "geogp").rglob("*.py"):
        assert not any(name.startswith("geogp_cli") for name in imported(path)), path


def test_the_command_holds_no_numerics():
    for path in (ROOT / "apps").rglob("*.py"):
        tops = {name.split(".")[0] for name in imported(path)}
        assert not tops & {"numpy", "torch", "pandas", "scipy", "xarray"}, path
