"""CSV tables in which a spreadsheet shows names and runs no formula.

Names of areas come from a file of polygons. A spreadsheet takes a cell that begins with ``=``,
``+``, ``-`` or ``@`` for a formula, quoted or not: it removes quotes first. pandas removes them
too, so no quoting both keeps the name for `pandas.read_csv` and is harmless in a spreadsheet. Such
a name is written after an apostrophe, which `named` removes.
"""

import csv
import re
from pathlib import Path

import pandas as pd

from geogp.files import write_bytes

_RUN = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Text that a spreadsheet may run (also in wide signs) or move to where it runs.

Leading apostrophes are part of it, so that the apostrophe of `shown` differs from a name's own.
"""


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table without its index, so that a spreadsheet runs nothing in it.

    Texts are quoted, as a spreadsheet may split lines at another sign than the comma, and written
    by `shown`. Numbers stay numbers. A file that cannot be written is an OutputError.
    """
    texts = table.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]]
    written = table.assign(**{name: table[name].map(shown) for name in texts})
    content = written.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
    write_bytes(path, content.encode())


def shown(value: object) -> object:
    """Return the value for a cell: a text that a spreadsheet may run gets an apostrophe in front.

    Examples
    --------
    >>> shown("=1+1"), shown("'Ewa"), shown(-5)
    ("'=1+1", "'Ewa", -5)
    """
    return f"'{value}" if isinstance(value, str) and _RUN.match(value) else value


def named(text: str) -> str:
    """Return the original text of `shown`, for ``pandas.read_csv(path, converters=...)``.

    Examples
    --------
    >>> named("'=1+1"), named("'Ewa"), named(shown("'=1+1"))
    ('=1+1', "'Ewa", "'=1+1")
    """
    return text[1:] if text.startswith("'") and _RUN.match(text[1:]) else text
