"""The API documentation at /docs: Swagger UI from an installed package, so no outside request."""

from __future__ import annotations

from importlib.resources import files as resources

from hereish.gateway.http.owner_page import PageFile

HEADERS = {
    "Content-Security-Policy": "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # Swagger UI sets inline styles
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "max-age=3600",
}
_HTML = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>hereish API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = b"""SwaggerUIBundle({ url: "openapi.json", dom_id: "#api", validatorUrl: null });
"""


def files() -> dict[str, PageFile]:
    """The files of the page by their paths."""
    swagger = resources("fastapi_offline") / "static"
    script = "text/javascript; charset=utf-8"
    return {
        "/docs": PageFile("text/html; charset=utf-8", _HTML),
        "/docs/start.js": PageFile(script, _START),
        "/docs/swagger-ui-bundle.js": PageFile(
            script, (swagger / "swagger-ui-bundle.js").read_bytes()
        ),
        "/docs/swagger-ui.css": PageFile(
            "text/css; charset=utf-8", (swagger / "swagger-ui.css").read_bytes()
        ),
    }
