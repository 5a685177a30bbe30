"""The Content-Security-Policy of a page, which limits what a browser runs and loads."""

import base64
import hashlib
from collections.abc import Sequence

_NOTHING = "'none'"


def page_policy(
    styles: Sequence[str], scripts: Sequence[str] = (), image_hosts: Sequence[str] = ()
) -> str:
    """Return the policy of a page, for a ``meta`` element before all scripts and styles.

    `styles` and `scripts` are the contents of the page's ``style`` and ``script`` elements. The
    browser accepts all text in them, so they must contain no text from the data. From other hosts,
    the browser loads only images, and only from `image_hosts`. Links work.

    Examples
    --------
    >>> page_policy(["p { margin: 0 }"])[:56]
    "default-src 'none'; script-src 'none'; style-src 'sha256"
    """
    rules = {
        "default-src": [],
        "script-src": [_hashed(script) for script in scripts],
        "style-src": [_hashed(style) for style in styles],
        "img-src": ["data:", *image_hosts],
        # `default-src` includes the next three rules, but not the last two.
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
