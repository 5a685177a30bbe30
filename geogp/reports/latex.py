"""The table of a report for a paper."""

from geogp.evaluation.score_groups import GroupReport
from geogp.reports.run_report import Report
from geogp.reports.split_report import SplitReport

_MISSING = "--"
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # \textquotedbl is an error in LaTeX's own encoding, OT1.
        '"': "{''}",
        "\N{EN DASH}": "--",
        "\N{MINUS SIGN}": "$-$",
        "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    }
)
_COLUMNS = (
    ("Stratum", "l"),
    ("$n$", "r"),
    (r"50\,\%", "r"),
    (r"80\,\%", "r"),
    (r"90\,\%", "r"),
    (r"95\,\%", "r"),
    ("Width", "r"),
    ("CRPS", "r"),
    ("Log score", "r"),
    ("Gain", "r"),
)


def escape(text: str) -> str:
    """Return text in which LaTeX finds no commands, on one line."""
    return " ".join(text.split()).translate(_SPECIAL)


def report_latex(report: Report) -> str:
    """Return a booktabs table of splits and strata, for a document to input.

    Coverage at four levels in percent, median width and CRPS of the 95 % intervals on the scale of
    the target, log score, and its gain over the baseline. Needs the package booktabs, and a line
    of 12 cm: that of LaTeX's class article on A4 paper.
    """
    head = " & ".join(name for name, _ in _COLUMNS)
    body = [line for split in report.splits.values() for line in _lines(split)]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{_caption(report)}}}",
            r"\label{tab:geogp-calibration}",
            r"\small\setlength{\tabcolsep}{5pt}",
            f"\\begin{{tabular}}{{{''.join(side for _, side in _COLUMNS)}}}",
            r"\toprule",
            r" & & \multicolumn{4}{c}{Coverage (\%)} & & & & \\",
            r"\cmidrule(lr){3-6}",
            rf"{head} \\",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _lines(split: SplitReport) -> list[str]:
    """Return a rule, the name of a split, and its rows."""
    shown = [name for name in split.groups if split.groups[name].n]
    return [
        r"\midrule",
        rf"\multicolumn{{{len(_COLUMNS)}}}{{l}}{{\emph{{{escape(split.title)}}}}} \\",
        *(rf"{escape(name)} & {_cells(split.groups[name])} \\" for name in shown),
    ]


def _cells(group: GroupReport) -> str:
    cells = [
        f"{group.n:,}".replace(",", r"\,"),
        *(_number(_hundred(group.scores[f"coverage_{level}"]), 1) for level in (50, 80, 90, 95)),
        _number(group.median_width_95),
        _number(group.scores["crps"]),
        _number(group.scores["nll"]),
        _number(group.gain),
    ]
    return " & ".join(cells)


def _caption(report: Report) -> str:
    service = f"{report.service} " if report.service else ""
    unit = escape(report.unit).replace("log10", r"$\log_{10}$")
    return (
        f"{escape(report.region)}: {escape(service + report.target)}, model "
        f"{escape(report.model)}. Coverage of central intervals; median width of the "
        rf"95\,\% intervals, CRPS (both in {unit}) and "
        "log score of test rows; the gain is the log score of the baseline, which knows the mean "
        "and variance of each quarter, minus the model's (above 0: the model is better)."
    )


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return _MISSING
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return f"$-${text[1:]}" if text.startswith("-") else text
