"""CSV tables in which a spreadsheet program does not run names as formulas.

A spreadsheet program runs a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, even
in quotes. So `shown` puts an apostrophe before such a text; `named` removes this apostrophe.
"""

import csv
import re
from pathlib import Path

import pandas as pd

from geogp.files import write_bytes

_RUN = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Texts that a spreadsheet program may run as formulas.

The signs ``=``, ``+``, ``-`` and ``@`` may be full-width characters. The text may already begin
with apostrophes: `shown` adds one more, and `named` removes only this one.
"""


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV; see `csv_content`. Raises OutputError if it cannot be written."""
    write_bytes(path, csv_content(table))


def csv_content(table: pd.DataFrame) -> bytes:
    """Return a table, without its index, as CSV that is safe in a spreadsheet program.

    Texts are quoted, because a spreadsheet program may split lines at other signs than commas.
    """
    texts = table.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]]
    written = table.assign(**{name: table[name].map(shown) for name in texts})
    written.columns = pd.Index([shown(name) for name in written.columns])
    return str(written.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)).encode()


def shown(value: object) -> object:
    """Return the value of a cell, with an apostrophe before a text that could run as a formula.

    Examples
    --------
    >>> shown("=1+1"), shown("'Ewa"), shown(-5)
    ("'=1+1", "'Ewa", -5)
    """
    return f"'{value}" if isinstance(value, str) and _RUN.match(value) else value


def named(text: str) -> str:
    """Return a text without the apostrophe of `shown`; usable in ``converters`` of pandas.

    Examples
    --------
    >>> named("'=1+1"), named("'Ewa"), named(shown("'=1+1"))
    ('=1+1', "'Ewa", "'=1+1")
    """
    return text[1:] if text.startswith("'") and _RUN.match(text[1:]) else text
