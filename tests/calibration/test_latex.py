"""The table for papers: its structure, its figures, and text from outside."""

import re

import pytest

from geogp.calibration.latex import escape, report_latex
from geogp.calibration.report import build_report


@pytest.fixture
def table(both, run_of):
    return report_latex(build_report(run_of(both), both))


def test_environments_and_braces_are_balanced(table):
    opened = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", table):
        if word == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    bare = table.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    assert table.count("$") % 2 == 0
    for rule in ("toprule", "midrule", "bottomrule"):
        assert table.count(f"\\{rule}") == 1


def test_every_row_has_as_many_cells_as_columns(table):
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", table).group(1)
    body = table.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 6
    assert {row.count("&") for row in rows} == {len(columns) - 1}


def test_figures_are_those_of_the_report(both, run_of):
    report = build_report(run_of(both), both)
    group = report.splits["blocks"].groups["rural"]
    shares = [f"{100 * group.scores[f'coverage_{k}']:.1f}" for k in (50, 80, 90, 95)]
    assert f" & rural & {group.n} & {' & '.join(shares)} & " in report_latex(report)
    assert f"{-group.difference['nll']:.3f} \\\\" in report_latex(report)


def test_missing_figures_are_dashes(both, run_of):
    run = {**run_of(both), "baseline": {}}
    assert " & -- \\\\" in report_latex(build_report(run, both))


def test_text_from_outside_is_escaped(both, run_of):
    bad = r"\input{x} 50% & a_b #1 $y$ ~ ^ \\"
    text = report_latex(build_report(run_of(both) | {"region": bad}, both))
    assert escape(bad) in text
    assert r"\input" not in text.replace(r"\textbackslash{}input", "")
    assert escape("a_b & 50%\n{x}") == r"a\_b \& 50\% \{x\}"
