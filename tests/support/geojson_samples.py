"""What the tests of reading and writing GeoJSON share."""

from __future__ import annotations

from typing import Any

from hereish.traces.columns import Layout
from hereish.traces.table import RowBatch
from tests.support.markup_samples import DAY_US, MAY_1_US

AT = ("2024-05-01T08:00:00Z", "2024-05-01T08:00:01.5Z", "2024-05-02T08:00:00Z")
AT_US = [MAY_1_US, MAY_1_US + 1_500_000, MAY_1_US + DAY_US]
IN_LINES = Layout(lines=True)


def users(batch: RowBatch) -> list[Any]:
    assert batch.user is not None
    return batch.user.values()


def traces(batch: RowBatch) -> list[Any]:
    assert batch.trace is not None
    return batch.trace.values()
