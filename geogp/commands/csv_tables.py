"""Tables as CSV in which a spreadsheet shows names and runs none.

Areas are called what a file of polygons calls them, and a spreadsheet takes a cell that begins
with ``=``, ``+``, ``-`` or ``@`` for a formula, in quotes or not: quotes are gone before it looks.
pandas takes the same quotes away, so no text can be the name for `pandas.read_csv` and harmless in
a spreadsheet. Such a name is written after an apostrophe, which `named` takes away again.
"""

import csv
import re
from pathlib import Path

import pandas as pd

from geogp.files import write_bytes

_RUN = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""What a spreadsheet may run, also in wide signs, or move to where it runs; with apostrophes in
front, so that those of `shown` are told from those of a name."""


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, its index left out, so that a spreadsheet runs nothing of it.

    Texts stand in quotes, as a spreadsheet may split lines at another sign than the comma, and are
    written as `shown`. Numbers stay numbers.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    texts = table.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]]
    written = table.assign(**{name: table[name].map(shown) for name in texts})
    content = written.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    write_bytes(path, content.encode())


def shown(value: object) -> object:
    """Return what stands for a value: a text that a spreadsheet may run after an apostrophe.

    Examples
    --------
    >>> shown("=1+1"), shown("'Ewa"), shown(-5)
    ("'=1+1", "'Ewa", -5)
    """
    return f"'{value}" if isinstance(value, str) and _RUN.match(value) else value


def named(text: str) -> str:
    """Return the text that `shown` was given, for ``pandas.read_csv(path, converters=...)``.

    Examples
    --------
    >>> named("'=1+1"), named("'Ewa"), named(shown("'=1+1"))
    ('=1+1', "'Ewa", "'=1+1")
    """
    return text[1:] if text.startswith("'") and _RUN.match(text[1:]) else text
