"""The names of strata, and how texts and figures say them; needs no table."""

from typing import Any

URBAN, RURAL, UNKNOWN = "urban", "rural", "unknown"
STRATA = (URBAN, RURAL)
ALL = "all"  # name of all strata together; no stratum may have this name


def phrase(name: str) -> str:
    """Return a phrase for a stratum, such as ``in town``."""
    return {"urban": "in town", "rural": "in the country"}.get(name, f"in stratum {name}")


def marked(names: Any, first: Any, second: Any, whole: Any) -> dict[str, Any]:
    """Return the mark of each stratum in `names`: `first`, `second`, or `whole` for ``all``."""
    own = [name for name in names if name not in {ALL, *STRATA}]
    order = {**dict(zip(STRATA, (first, second), strict=True)), ALL: whole}
    order |= {name: (first, second)[k % 2] for k, name in enumerate(own)}
    return {name: order[name] for name in names}
