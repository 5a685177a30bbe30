"""The table for papers: its structure, its figures, and text from outside."""

import re

import pytest
from run_worlds import as_record

from geogp.reports.rendering import latex_text as escape
from geogp.reports.run_report import build_report, report_latex


@pytest.fixture
def table(both, run_of):
    return report_latex(build_report(as_record(run_of(both)), both))


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
    for rule, times in {"toprule": 1, "midrule": 2, "bottomrule": 1}.items():
        assert table.count(f"\\{rule}") == times


def test_every_row_has_as_many_cells_as_columns(table):
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", table).group(1)
    body = table.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    titles = [row for row in rows if r"\multicolumn" in row]
    assert len(titles) == 2
    assert all(rf"\multicolumn{{{len(columns)}}}{{l}}" in row for row in titles)
    assert len(rows) == 2 + 6
    assert {row.count("&") for row in rows if row not in titles} == {len(columns) - 1}
    head = table.partition(r"\midrule")[0].splitlines()[-1]
    assert head.count("&") == len(columns) - 1


def test_every_command_is_there_in_plain_latex_with_booktabs(both, run_of):
    """Those that pdflatex was seen to compile, in the encodings OT1 and T1."""
    bad = '\\{}&%$#_~^<>|"\N{EN DASH}\N{MINUS SIGN}\N{HORIZONTAL ELLIPSIS}'
    found = report_latex(build_report(as_record(run_of(both) | {"region": bad}), both))
    known = {
        *("begin", "end", "centering", "caption", "label", "small", "setlength", "tabcolsep"),
        *("toprule", "midrule", "bottomrule", "cmidrule", "multicolumn", "emph", "log", "dots"),
        *("textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater"),
        "textbar",
    }
    body = found.partition("\n")[2]
    assert set(re.findall(r"\\([a-zA-Z]+)", body.replace("\\\\", ""))) == known
    assert body.isascii()


def test_figures_are_those_of_the_report(both, run_of):
    report = build_report(as_record(run_of(both)), both)
    group = report.splits["blocks"].groups["rural"]
    shares = [f"{100 * group.scores[f'coverage_{k}']:.1f}" for k in (50, 80, 90, 95)]
    assert f"rural & {group.n} & {' & '.join(shares)} & " in report_latex(report)
    assert f"{-group.difference['nll']:.3f} \\\\" in report_latex(report)


def test_missing_figures_are_dashes(both, run_of):
    run = {**run_of(both), "baseline": {}}
    assert " & -- \\\\" in report_latex(build_report(as_record(run), both))


def test_text_from_outside_is_escaped(both, run_of):
    bad = r"\input{x} 50% & a_b #1 $y$ ~ ^ \\"
    text = report_latex(build_report(as_record(run_of(both) | {"region": bad}), both))
    assert escape(bad) in text
    assert r"\input" not in text.replace(r"\textbackslash{}input", "")
    assert escape("a_b & 50%\n{x}") == r"a\_b \& 50\% \{x\}"
