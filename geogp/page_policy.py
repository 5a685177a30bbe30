"""What a browser may run and load for a page: its Content-Security-Policy."""

import base64
import hashlib
from collections.abc import Sequence

_NOTHING = "'none'"


def page_policy(
    styles: Sequence[str], scripts: Sequence[str] = (), image_hosts: Sequence[str] = ()
) -> str:
    """Return the policy of a page, for a ``meta`` element before all that it rules.

    The page runs the scripts and has the styles whose bytes are those given, and shows images that
    stand in it. Of the network it may ask the image hosts for images, and nothing else: what text
    from outside could smuggle into a page neither runs nor tells anyone.

    Parameters
    ----------
    styles, scripts
        Contents of the page's ``style`` and ``script`` elements. None may hold text from outside:
        the policy allows whatever is given.
    image_hosts
        Such as ``https://tiles.example.org``.

    Examples
    --------
    >>> page_policy(["p { margin: 0 }"])[:56]
    "default-src 'none'; script-src 'none'; style-src 'sha256"
    """
    rules = {
        "default-src": [],
        "script-src": [_hashed(one) for one in scripts],
        "style-src": [_hashed(one) for one in styles],
        "img-src": ["data:", *image_hosts],
        # The default holds for the next three, and not for the last two.
        "connect-src": [],
        "object-src": [],
        "frame-src": [],
        "base-uri": [],
        "form-action": [],
    }
    told = (f"{name} {' '.join(sources or [_NOTHING])}" for name, sources in rules.items())
    return "; ".join(told)


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
