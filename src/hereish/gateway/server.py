"""The HTTP server around the application."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

_END_S = 10  # for requests that are under way when it is told to end


def config_of(app: FastAPI, host: str, port: int) -> uvicorn.Config:
    """As the gateway is served, in tests and benchmarks too."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # hereish.gateway.logs has set it up
        access_log=False,  # addresses may hold tokens and places; the guard logs requests
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_END_S,
    )


def serve(app: FastAPI, host: str, port: int) -> bool:
    """Serve until told to end; what is under way is finished. False if it could not start."""
    server = uvicorn.Server(config_of(app, host, port))
    server.run()
    return server.started
