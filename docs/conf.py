"""Settings of Sphinx for the documentation, which `make docs` builds."""

import logging
import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent), str(HERE.parent / "apps")]

from geogp import __version__  # noqa: E402

project = "geogp"
author = "the authors of geogp"
project_copyright = author
version = release = __version__

extensions = [
    "made",
    "plain",
    "myst_parser",
    "numpydoc",
    "rooms",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
exclude_patterns = ["_build", "_extensions"]
templates_path = ["_templates"]
root_doc = "index"

smartquotes = False  # options begin with two hyphens
html_theme = "furo"
html_title = f"geogp {release}"
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_maximum_signature_line_length = 88

default_role = "py:obj"
nitpicky = True
# The build needs no network, so Sphinx does not look up names of other packages. It must find the
# names that api.rst lists.
_LISTED = re.findall(r"^   (geogp\.[\w.]+)$", (HERE / "api.rst").read_text("utf-8"), re.MULTILINE)
nitpick_ignore_regex = [("py:.*", rf"(?!({'|'.join(map(re.escape, _LISTED))})\b).*")]


def _outside(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001
    """Replace links to files outside docs, which work only in the repository, by their paths."""
    up = re.escape("../" * (docname.count("/") + 1))
    source[0] = re.sub(rf"(?<!!)\[([^\]]+)\]\({up}([^)]+)\)", r"\1 (`\2`)", source[0])


def setup(app: Sphinx) -> None:
    """Replace links to files that are not pages of the documentation."""
    app.connect("source-read", _outside)


# The examples run in this process, where a package of the theme makes logging print messages.
for _name in ("geogp", "pyogrio"):
    logging.getLogger(_name).setLevel(logging.WARNING)
os.environ.setdefault("MPLBACKEND", "agg")
