"""A server for the benchmark of the gateway: the gateway itself, or one bare insert a request.

Run as a program: gateway_server.py hereish|bare DATABASE FOLDER PORT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fastapi import FastAPI, Request
from sqlalchemy import Column, Double, Integer, MetaData, Table, insert
from starlette.concurrency import run_in_threadpool

from hereish.gateway.http.app import create_app
from hereish.gateway.http.middleware import GatewayMiddleware
from hereish.gateway.http.schemas import ReportRequestBody
from hereish.gateway.http.server import serve
from hereish.gateway.ledger.database import Database
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.observability.metrics import Metrics
from hereish.gateway.paths import GatewayPaths

points = Table(
    "points",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("at_s", Double),
    Column("lat", Double),
    Column("lon", Double),
)


def bare(database: str) -> FastAPI:
    """The same server, layers and database settings, and one durable insert: no ledger."""
    opened = Database(database)
    points.metadata.create_all(opened.engine)
    app = FastAPI()
    app.add_middleware(GatewayMiddleware, metrics=Metrics())

    def write(told: ReportRequestBody) -> None:
        row = {"at_s": time.time(), "lat": told.lat, "lon": told.lon}
        with opened.writing() as tx:
            tx.execute(insert(points), row)

    @app.post("/v1/report")
    async def report(request: Request) -> ReportRequestBody:
        told = ReportRequestBody.model_validate_json(await request.body())
        await run_in_threadpool(write, told)
        return told

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> None:
    kind, database, folder, port = sys.argv[1:]
    if kind == "bare":
        app = bare(database)
    else:
        where = GatewayPaths(database, Path(folder) / "key", Path(folder) / "mark")
        app = create_app(Ledger.open(where), per_s=0.0)
    serve(app, "127.0.0.1", int(port))


if __name__ == "__main__":
    main()
