"""Names that a user chooses from."""

import difflib
from collections.abc import Iterable

from geogp.errors import RequestError


def one_of(what: str, found: str, allowed: Iterable[str]) -> None:
    """Refuse a name that is not among those allowed, and say which come near.

    Raises
    ------
    RequestError
        It is not.
    """
    names = list(allowed)
    if found not in names:
        near = difflib.get_close_matches(found, names, n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise RequestError(f"unknown {what} {found!r}; choose one of {', '.join(names)}.{hint}")
