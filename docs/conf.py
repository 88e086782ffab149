"""The settings of the documentation site: `make docs` builds it into site/.

The pages are Markdown that reads on its own. What the site adds is here: the API reference from
the docstrings, the proofs from beside the code, and nothing that is loaded from another host.
"""

from __future__ import annotations

import re
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import hereish

project = "hereish"
author = "the hereish authors"
release = version = hereish.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["images", "figures"]
nitpicky = True
# The objects of other projects are named and not linked: their indexes would be fetched.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!hereish\b).*"),
    (r"py:class", r"hereish\..*\.(Item|Frame|R|_\w+)"),  # type variables, and what is private
    (r"py:class", r"hereish\.gateway\..*\.Ledger"),  # the gateway has pages, and no reference
]

myst_heading_anchors = 3
highlight_language = "sh"  # an indented block is a command
smartquotes = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("Bools", "Floats", "Ints", "PerLane")}

html_theme = "furo"
html_title = f"hereish {version}"
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # it is fetched, which browsers refuse to pages from disk
html_static_path: list[str] = []

_PROOF_LINK = re.compile(r"\]\((?:\.\./)+src/hereish/(?:\w+/)*(\w+)\.proof\.md\)")
_CODE = re.compile(r"(`[^`]+`)")


def point_to_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead links to a proof beside the code to its page on the site."""
    source[0] = _PROOF_LINK.sub(r"](/proofs/\1.md)", source[0])


def read_markdown(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring's Markdown (code in backticks, indented examples) into reStructuredText."""
    out: list[str] = []
    example = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not example and not (out and out[-1]):
            out += [".. code-block:: python", ""]
            example = True
        elif line and not indented:
            example = False
        out.append(line if example or not line else _escaped(line))
    lines[:] = out


def skip_exported(
    app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave what `hereish` itself exports out of the page of the module that it is made in."""
    exported = what == "module" and name in hereish.__all__
    return True if exported and getattr(hereish, name) is thing else None


def _escaped(line: str) -> str:
    """One line of prose: code as code, and no other character with a meaning."""
    parts = [
        f"`{part}`" if part.startswith("`") else re.sub(r"([\\*|_])", r"\\\1", part)
        for part in _CODE.split(line)
    ]
    return re.sub(r"^(\w+):(?= )", r"**\1:**", "".join(parts)) if line[0] == "G" else "".join(parts)


def setup(app: Sphinx) -> None:
    """Register what stands above."""
    app.add_lexer("caddyfile", TextLexer)
    app.connect("source-read", point_to_pages)
    app.connect("autodoc-process-docstring", read_markdown)
    app.connect("autodoc-skip-member", skip_exported)
