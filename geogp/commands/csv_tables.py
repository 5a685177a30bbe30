"""CSV tables with names that a spreadsheet program shows, but does not run as formulas.

A spreadsheet program runs a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, even
in quotes. So an apostrophe is written before such a name; `named` removes this apostrophe.
"""

import csv
import re
from pathlib import Path

import pandas as pd

from geogp.files import write_bytes

_RUN = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Texts that a spreadsheet program may run as formulas, or move to the start of a cell and run.

The signs may be full-width. Texts with leading apostrophes are included, so that `named` removes
only the apostrophe that `shown` adds.
"""


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, without its index, as CSV in which a spreadsheet program runs nothing.

    Texts are quoted, because a spreadsheet program may split lines at a sign other than the comma.
    Raises OutputError if the file cannot be written.
    """
    texts = table.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]]
    written = table.assign(**{name: table[name].map(shown) for name in texts})
    content = written.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    write_bytes(path, content.encode())


def shown(value: object) -> object:
    """Return the value for a cell; put an apostrophe before a text that a spreadsheet may run.

    Examples
    --------
    >>> shown("=1+1"), shown("'Ewa"), shown(-5)
    ("'=1+1", "'Ewa", -5)
    """
    return f"'{value}" if isinstance(value, str) and _RUN.match(value) else value


def named(text: str) -> str:
    """Undo `shown` for a text from a cell, as in ``pandas.read_csv(path, converters=...)``.

    Examples
    --------
    >>> named("'=1+1"), named("'Ewa"), named(shown("'=1+1"))
    ('=1+1', "'Ewa", "'=1+1")
    """
    return text[1:] if text.startswith("'") and _RUN.match(text[1:]) else text
