"""The output of a Spark job while it is not paid for: under another name, beside its own."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from hereish.errors import ParameterError, PointError
from hereish.spark.jobs import GRANTS, grant_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class StagedOutput:
    """A folder that appears under its name once it is paid for, and is removed otherwise.

    On the file system of the output, through Spark, so that it may be HDFS or the like.
    """

    def __init__(self, spark: SparkSession, to: str) -> None:
        java: Any = getattr(spark, "_jvm", None)
        if java is None:
            raise ParameterError(
                "over Spark Connect an output cannot appear at once when it is paid for: use the "
                "functions of hereish.spark.jobs, and publish it in your own way"
            )
        self._spark, self._to = spark, to.rstrip("/")
        self._folder = f"{self._to}.unpaid-{uuid4().hex[:12]}"
        self._path = java.org.apache.hadoop.fs.Path
        settings = spark._jsc.sc().hadoopConfiguration()
        self._files = self._path(self._to).getFileSystem(settings)
        if self._files.exists(self._path(self._to)):
            raise PointError("the output is there already: choose another name, or remove it")

    @property
    def rows(self) -> str:
        """Where the rows are until they are paid for."""
        return f"{self._folder}/rows"

    def keep_grants(self, pieces: Iterable[pa.Table]) -> DataFrame:
        """What was granted, in files: there may be more than fits into the plan of a job."""
        where = f"{self._folder}/grants"
        try:
            self._spark.createDataFrame([], GRANTS).write.parquet(where)
            for piece in pieces:
                some = self._spark.createDataFrame(grant_rows(piece), GRANTS)
                some.write.mode("append").parquet(where)
        except BaseException:
            self._remove()
            raise
        return self._spark.read.parquet(where)

    def publish(self) -> None:
        """Let the rows appear under the name of the output. They are paid for."""
        # Into a folder that has appeared meanwhile it would be moved, and mixed with its rows.
        taken = self._files.exists(self._path(self._to))
        if taken or not self._files.rename(self._path(self.rows), self._path(self._to)):
            raise PointError(
                "the output is paid for, and could not be moved to its place; run the job again "
                "under its name, with an output that is not there yet"
            )

    def _remove(self) -> None:
        self._files.delete(self._path(self._folder), True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()
