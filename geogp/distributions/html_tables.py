"""Small tables in HTML, as notebooks show objects."""

from collections.abc import Mapping, Sequence
from html import escape

SHOWN_ROWS = 5
"""Number of rows that a notebook shows of many."""


def html_table(title: str, columns: Mapping[str, Sequence[object]], *, rows: int = 0) -> str:
    """Return a table with columns of equal length as HTML; all texts are escaped.

    `rows` is the number of rows of which `columns` has the first; a last line tells of the others.

    Examples
    --------
    >>> html_table("one", {"a": [0.5]})
    '<p>one</p><table><tr><th>a</th></tr><tr><td>0.5</td></tr></table>'
    """
    lines = (
        [f"<th>{escape(name)}</th>" for name in columns],
        *(
            [f"<td>{escape(_shown(value))}</td>" for value in row]
            for row in zip(*columns.values(), strict=True)
        ),
    )
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    left = rows - (len(lines) - 1)
    more = f"<p>... and {left:,} more rows</p>" if left > 0 else ""
    return f"<p>{escape(title)}</p><table>{body}</table>{more}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
