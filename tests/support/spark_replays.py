"""Runs jobs whose tasks are lost, repeated and overtaken: `spark_replays.py FOLDER`.

A process of its own, since it must choose where Spark's home is. The folder has a key and the
inputs; each job writes a folder NAME with its result and a folder NAME-attempts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

import hereish
from hereish.spark import batch
from tests.support.spark import spark_session
from tests.support.spark_attempts import PRIVACY, WHOLE_DAY, Recorded

EVERY_REPORT_NEW = hereish.fixed_rate(PRIVACY, 30, window=hereish.Day("UTC"))
PARTITIONS = 4
SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "40",
    "spark.executor.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}
_TASK = batch._Task


def shadow_home(folder: Path) -> Path:
    """Spark's home by links: a local cluster writes into it, which a package's must not be."""
    packaged, home = Path(pyspark.__file__).parent, folder / "spark-home"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(packaged / name)
    return home


def run(spark: Any, folder: Path, name: str, trouble: str, **options: Any) -> None:
    """Sanitise a file of the folder, with tasks that are recorded."""
    source, mechanism = options.pop("source", "before"), options.pop("mechanism", WHOLE_DAY)
    attempts = folder / f"{name}-attempts"
    attempts.mkdir()
    batch._Task = lambda *given: Recorded(_TASK(*given), str(attempts), trouble, **options)  # type: ignore[assignment,misc]
    batch.sanitize(
        spark.read.parquet(str(folder / f"{source}.parquet")), mechanism, user="user",
        time="time", lat="lat", lon="lon", key_file=folder / "key", partitions=PARTITIONS,
    ).write.parquet(str(folder / name))  # fmt: skip


@contextmanager
def two_hosts(home: Path, folder: Path) -> Iterator[str]:
    """A standalone cluster of two workers under two names of this machine.

    Spark never runs a speculative copy on the host of the first attempt, and all workers of a local
    cluster have one host.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deploy, master = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", 0]
    ]
    for host in ("127.0.0.1", "localhost"):
        place = ["--host", host, "--webui-port", 0, "--work-dir", folder / f"worker-{host}"]
        size = ["--cores", 1, "--memory", "1g"]
        commands.append([f"{deploy}.worker.Worker", *place, *size, master])
    processes = []
    try:
        for command in commands:
            words = [str(home / "bin" / "spark-class"), *map(str, command)]
            processes.append(subprocess.Popen(words))  # noqa: S603  # Spark's own
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def main(folder: Path) -> None:
    home = shadow_home(folder)
    os.environ["SPARK_HOME"] = str(home)
    with spark_session(folder, "local-cluster[2,1,1024]", **SETTINGS) as spark:
        run(spark, folder, "killed", "kill")
        run(spark, folder, "killed-fresh", "kill", fresh_key=True)
        for name in ("before", "after"):
            run(spark, folder, f"{name}-out", "none", source=name, mechanism=EVERY_REPORT_NEW)
    speculating = SETTINGS | SPECULATION
    with two_hosts(home, folder) as url, spark_session(folder, url, **speculating) as spark:
        run(spark, folder, "speculated", "wait")
        run(spark, folder, "speculated-fresh", "wait", fresh_key=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
