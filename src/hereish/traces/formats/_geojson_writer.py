"""Writes GeoJSON: a point per report, or a line per trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hereish.traces.columns import Layout
from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._markup import TraceGroups, compact_json, json_scalar, json_values
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows


class PointWriter(Writer):
    """A FeatureCollection; the guarantee comes first, the box of the released points last."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._layout = layout
        self._bbox = BoundingBox()
        settings = {name: json_scalar(value) for name, value in guarantee.as_dict().items()}
        self._write_text(
            f'{{"type":"FeatureCollection","hereish":{compact_json(settings)},"features":['
        )
        self._separator = "\n"

    def write(self, rows: ReleasedRows) -> None:
        self._bbox.add(rows.lat, rows.lon)
        columns = (rows.user_values(), rows.trace_values(), _reports(rows))
        for user, trace, report in zip(*columns, strict=True):
            self._write_point(user, trace, report)

    def finish(self) -> None:
        bbox = "" if self._bbox.sides is None else f',"bbox":{compact_json(self._bbox.sides)}'
        self._write_text(f"\n]{bbox}}}\n")
        self._file.flush()

    def _write_point(self, user: Any, trace: Any, report: _Report) -> None:
        own = {self._layout.time: report.time, "kind": report.kind, "cost": report.cost}
        self._write_feature("Point", report.position, user, trace, own, report.kept)

    def _write_feature(
        self,
        shape: str,
        coordinates: Sequence[Any],
        user: Any,
        trace: Any,
        own: Mapping[str, Any],
        kept: Mapping[str, Any],
    ) -> None:
        ids = {self._layout.user: user, self._layout.trace: trace}
        known = {name: value for name, value in ids.items() if value is not None}
        feature = {
            "type": "Feature",
            "geometry": {"type": shape, "coordinates": coordinates},
            "properties": {**known, **own, **kept},
        }
        self._write_text(self._separator + compact_json(feature))
        self._separator = ",\n"

    def _write_text(self, text: str) -> None:
        self._file.write(text.encode(errors="replace"))


class LineWriter(PointWriter):
    """The same, with the rows in memory until all are there."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        super().__init__(file, layout, guarantee)
        self._groups = TraceGroups()

    def write(self, rows: ReleasedRows) -> None:
        self._bbox.add(rows.lat, rows.lon)
        self._groups.add(rows)

    def finish(self) -> None:
        for user, trace, rows in self._groups.groups():
            reports = list(_reports(rows))
            if len(reports) == 1:  # a line has two positions at least
                self._write_point(user, trace, reports[0])
                continue
            own = {
                "coordTimes": [report.time for report in reports],
                "kinds": [report.kind for report in reports],
                "costs": [report.cost for report in reports],
            }
            kept = {name: [report.kept[name] for report in reports] for name in rows.kept}
            positions = [report.position for report in reports]
            self._write_feature("LineString", positions, user, trace, own, kept)
        super().finish()


class _Report(NamedTuple):
    """A released row as JSON has it."""

    position: list[float]
    time: str
    kind: str
    cost: float
    kept: Mapping[str, Any]


def _reports(rows: ReleasedRows) -> Iterator[_Report]:
    columns = [json_values(column) for column in rows.kept.values()]
    kept = zip(*columns, strict=True) if columns else [()] * len(rows)
    places = np.column_stack([rows.lon, rows.lat]).tolist()
    values = (places, format_utc(rows.at_us), rows.kind_names(), rows.cost.tolist(), kept)
    for position, time, kind, cost, more in zip(*values, strict=True):
        yield _Report(position, time, kind, cost, dict(zip(rows.kept, more, strict=True)))
