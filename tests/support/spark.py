"""A real Spark for tests, on this machine; tests that need one are skipped where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# PySpark says so of pandas 3, which other tests need.
QUIETLY = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed:ResourceWarning",  # sockets of its own to Java
)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Tests use Spark briefly: thorough compilers do not pay off.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def need_spark() -> None:
    """Skip where Spark or Java is missing."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install 'hereish[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java 17, which Spark runs on", allow_module_level=True)


@contextmanager
def spark_session(folder: Path, master: str = "local[2]", **settings: str) -> Iterator[Any]:
    """A session of its own, which is gone afterwards."""
    need_spark()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder: Any = SparkSession.builder.master(master).appName("tests")
    own = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    for name, value in (SETTINGS | own | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
