"""The routes of the pages: the owner's, and that of the API. Files in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hereish.gateway.http import api_page, owner_page
from hereish.gateway.http.owner_page import PageFile


def page_routes() -> list[Route]:
    """One route per file."""
    return [
        Route(path, _serve_file(file, headers), methods=["GET"])
        for files, headers in (
            (owner_page.FILES, owner_page.HEADERS),
            (api_page.files(), api_page.HEADERS),
        )
        for path, file in files.items()
    ]


def _serve_file(
    file: PageFile, headers: Mapping[str, str]
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return Response(file.content, headers={**headers, "Content-Type": file.media_type})

    return serve
