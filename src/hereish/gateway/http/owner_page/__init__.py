"""The owner's page: the releases and what is left of the budget. It holds no true position.

Static files, and the headers to send with each of them. The page's own addresses are relative, so
a proxy may serve it under a prefix; the prefix must then end with a slash.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple


class PageFile(NamedTuple):
    """One file of the page."""

    media_type: str
    content: bytes


_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_NAMES = ("index.html", "page.css", "page.js", "format.js", "map.js", "icon.svg")

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text can become markup or script, whatever a later change to the scripts may try.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "geolocation=(), camera=(), microphone=()",
        # Files of two versions must never meet in one page, and they are small.
        "Cache-Control": "no-store",
        "X-Robots-Tag": "noindex, nofollow, noarchive",
    }
)


def _read(name: str) -> PageFile:
    suffix = name.rpartition(".")[2]
    return PageFile(_MEDIA_TYPES[suffix], (files(__name__) / name).read_bytes())


def _path(name: str) -> str:
    return "/" if name == "index.html" else f"/{name}"


FILES: Mapping[str, PageFile] = MappingProxyType({_path(name): _read(name) for name in _NAMES})
