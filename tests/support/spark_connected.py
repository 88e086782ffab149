"""Sanitises over Spark Connect: `spark_connected.py FOLDER`, with a server that it starts.

A process of its own: one has either a session of its own Spark or one over Connect. The server is
another, on a port that was free, since the usual one may be taken.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

from hereish.spark import canonical_users, count_bad, sanitize
from tests.support.spark import SETTINGS
from tests.support.spark_attempts import WHOLE_DAY

NAMES = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
PATIENCE_S = 120.0


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a server that is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.log.level": "WARN",
    }
    for name, value in (SETTINGS | own).items():
        command += ["--conf", f"{name}={value}"]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    process = subprocess.Popen([*command, "--class", service, "spark-internal"])  # noqa: S603  # Spark's own
    try:
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError("the server did not start")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def main(folder: Path) -> None:
    """Writes what was released of three files, and which points are bad."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with server(folder) as url:
        builder: Any = SparkSession.builder
        spark = builder.remote(url).getOrCreate()
        private: Any = {**NAMES, "key_file": folder / "key", "partitions": 3}
        given = spark.read.parquet(str(folder / "in.parquet"))
        pq.write_table(sanitize(given, WHOLE_DAY, **private).toArrow(), folder / "out.parquet")
        spelt = canonical_users(spark.read.parquet(str(folder / "spelt.parquet")), "user")
        pq.write_table(sanitize(spelt, WHOLE_DAY, **private).toArrow(), folder / "mended.parquet")
        faulty = spark.read.parquet(str(folder / "faulty.parquet"))
        kept = sanitize(faulty, WHOLE_DAY, **private, drop_bad=True)
        pq.write_table(kept.toArrow(), folder / "kept.parquet")
        report = {"session": type(spark).__module__, "bad": count_bad(faulty, **NAMES)}
        (folder / "report.json").write_text(json.dumps(report))
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
