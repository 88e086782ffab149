"""Parquet and GeoParquet. Their implementation needs `pip install 'hereish[parquet]'`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

from hereish.traces.columns import Columns, Layout
from hereish.traces.formats._part_file import FilePart
from hereish.traces.formats.base import Format, Source, Writer, optional_dependency
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file, a row group or less at a time."""
    with optional_dependency("Parquet", "parquet"):
        from hereish.traces.formats import _parquet_reader
    return _parquet_reader.read(source, columns)


def divide(source: Source, columns: Columns, jobs: int) -> Sequence[FilePart]:
    """Rows of a large file, so that nobody's are in two parts if they come user by user."""
    with optional_dependency("Parquet", "parquet"):
        from hereish.traces.formats import _parquet_parts
    return _parquet_parts.divide(source, columns, jobs)


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    with optional_dependency("Parquet", "parquet"):
        from hereish.traces.formats import _parquet_reader
    return _parquet_reader.read_guarantee(source)


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """A file with the columns of the layout; as GeoParquet if that has a geometry."""
    with optional_dependency("Parquet", "parquet"):
        from hereish.traces.formats import _parquet_writer
    return _parquet_writer.ParquetWriter(file, layout, guarantee)


def open_geo_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """The same, always with a geometry."""
    return open_writer(file, replace(layout, geometry=layout.geometry or "geometry"), guarantee)


PARQUET = Format(
    name="parquet",
    extensions=(".parquet", ".pq"),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
    compressed=True,
    reads_ahead=True,
    divide=divide,
    columns=True,
    line_word="row",
)
GEOPARQUET = replace(
    PARQUET, name="geoparquet", extensions=(".geoparquet",), open_writer=open_geo_writer
)
