"""Tables as CSV: a spreadsheet shows names and runs none, and each name can be read back."""

import csv
import io
import re
from pathlib import Path

import pandas as pd
import pytest

from geogp.maps.csv_tables import named, shown, write_csv

FORMULAS = [
    "=1+1",
    '=HYPERLINK("http://127.0.0.1:9","a")',
    "+1",
    "-1+1",
    "@SUM(1,1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\N{FULLWIDTH EQUALS SIGN}1",
    "'=1",
    "''-1",
]
NAMES = ["Ponce", "'Ewa", "O'Higgins", "a=b", "'", "1-2", "Añasco, PR", 'the "old" town', "a;=1"]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_stands_after_an_apostrophe_and_comes_back(name):
    assert shown(name) == f"'{name}"
    assert named(shown(name)) == name


@pytest.mark.parametrize("name", NAMES)
def test_other_names_stay_as_they_are(name):
    assert shown(name) == named(name) == name


def test_what_is_read_back_is_what_was_written(tmp_path):
    table = pd.DataFrame(
        {
            "area": [*FORMULAS, *NAMES, "001", "-5"],
            "level": range(-12, 11),
            "sd": [-0.5, None] * 11 + [1e-9],
            "tests_per_tile": None,
        }
    )
    write_csv(tmp_path / "areas.csv", table)
    read = pd.read_csv(tmp_path / "areas.csv", converters={"area": named})
    pd.testing.assert_frame_equal(read[["area", "level", "sd"]], table[["area", "level", "sd"]])
    assert read["tests_per_tile"].isna().all()


@pytest.mark.parametrize("separator", [",", ";"])
def test_no_cell_of_a_spreadsheet_begins_as_a_formula_does(tmp_path, separator):
    """It takes quotes away first, and may split lines at semicolons."""
    write_csv(tmp_path / "a.csv", pd.DataFrame({"area": [*FORMULAS, *NAMES], "level": -1.5}))
    text = (tmp_path / "a.csv").read_bytes().decode()
    cells = [
        cell
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for cell in row
    ]
    risky = [cell for cell in cells if re.match(r"\s*[=+\-@\uff1d]", cell) and cell != "-1.5"]
    assert (len(cells) > 20, risky) == (True, [])


@pytest.mark.parametrize("form", ["{}", '"{}"', '""{}'])
def test_no_text_is_harmless_in_a_spreadsheet_and_the_name_for_pandas(form):
    """Both take the quotes away, so what is the name for one is a formula for the other."""
    text = f"area,level\n{form.format('=1+1')},2\n"
    assert pd.read_csv(io.StringIO(text))["area"][0] == "=1+1"
    assert list(csv.reader(io.StringIO(text)))[1][0] == "=1+1"


def test_nothing_else_writes_csv():
    root = Path(__file__).parents[2]
    own = root / "geogp" / "maps" / "csv_tables.py"
    for path in sorted({*root.glob("geogp/**/*.py"), *root.glob("apps/**/*.py")} - {own}):
        found = re.findall(
            r"to_csv|csv\.writer|DictWriter|^from csv import", path.read_text(), re.MULTILINE
        )
        assert not found, path
