"""What a browser may run and load for a page: the Content-Security-Policy."""

import base64
import hashlib
from collections.abc import Sequence

_NOTHING = "'none'"


def page_policy(
    styles: Sequence[str], scripts: Sequence[str] = (), image_hosts: Sequence[str] = ()
) -> str:
    """Return the policy of a page, for a ``meta`` element before everything that it rules.

    The browser runs the given scripts, uses the given styles, and shows images of the page. It asks
    the image hosts (such as ``https://tiles.example.org``) for images, and no other host for
    anything. Another script, such as one in a name of the data, does not run. Links work. `styles`
    and `scripts` are contents of the page's ``style`` and ``script`` elements; none may hold
    outside text, because the policy allows whatever is given.

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
        # The default covers the next three, but not the last two.
        "connect-src": [],
        "object-src": [],
        "frame-src": [],
        "base-uri": [],
        "form-action": [],
    }
    directives = (f"{name} {' '.join(sources or [_NOTHING])}" for name, sources in rules.items())
    return "; ".join(directives)


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
