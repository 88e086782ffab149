"""What the formats of phones, watches and receivers share: fixes to batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from hereish.errors import ParameterError
from hereish.traces.columns import NO_USER, Columns, Layout, describe_names
from hereish.traces.faults import Fault, NoPointsError, UnreadableFileError, no_times
from hereish.traces.formats._markup import (
    ROWS,
    Row,
    batch_from_rows,
    check_keep,
    json_scalar,
    merge_file,
)
from hereish.traces.formats._times import TimeParser
from hereish.traces.table import RowBatch


class FileFix(NamedTuple):
    """A place and a time as a file has them. It is secret, and never leaves a reader."""

    line: int
    time: Any  # as TimeParser takes it, or a datetime with its zone
    lat: float | None
    lon: float | None
    fields: Mapping[str, Any] = {}  # what else is known of it, by name
    trace: str | int | None = None
    user: str | int | None = None
    broken: bool = False  # it is there and cannot be read


def stream_fixes(
    fixes: Iterable[FileFix],
    columns: Columns,
    done: Callable[[], float],
    if_empty: Callable[[], str],
    *,
    numbered: bool = False,
) -> Iterator[RowBatch]:
    """Fixes as batches, as they come. Those before an `UnreadableFileError` are yielded first.

    A file without any raises NoPointsError, for the reason that `if_empty` returns then. The traces
    of a `numbered` file are numbers within it, of which there must be one.
    """
    builder = _BatchBuilder(columns, numbered=numbered)
    for rows in _chunks(builder.rows(fixes)):
        batch = builder.batch(rows, done())
        builder.times.mark_missing_offsets(batch.fault)
        yield batch
    builder.finish(if_empty)


def merge_fixes(
    fixes: Iterable[FileFix],
    columns: Columns,
    done: Callable[[], float],
    if_empty: Callable[[], str],
) -> Iterator[RowBatch]:
    """The same as one batch, with its traces numbered by public data."""
    builder = _BatchBuilder(columns, numbered=True)
    problem: UnreadableFileError | None = None
    batches = []
    try:
        for rows in _chunks(builder.rows(fixes)):
            batches.append(builder.batch(rows, done()))  # noqa: PERF401  # those before an error stay
    except UnreadableFileError as error:
        problem = error
    if batches and (builder.any_time or problem is not None):
        yield merge_file(batches, builder.times)
    if problem is not None:
        raise problem
    if batches and not builder.any_time:
        raise no_times()
    builder.finish(if_empty)


def _chunks(rows: Iterator[Row | UnreadableFileError]) -> Iterator[list[Row]]:
    """Rows in lists; an error is raised after the rows before it."""
    while chunk := list(islice(rows, ROWS)):
        good = [row for row in chunk if isinstance(row, Row)]
        if good:
            yield good
        if not isinstance(chunk[-1], Row):
            raise chunk[-1]


class _BatchBuilder:
    """Turns the fixes of one file into rows, and rows into batches."""

    def __init__(self, columns: Columns, *, numbered: bool) -> None:
        self._columns = columns
        self._user = None if columns.user == NO_USER else columns.user
        self._keep = columns.keep
        self._layout = Layout(
            user=self._user or "user",
            trace=columns.trace or "trace",
            numbered=numbered and columns.trace is None,
        )
        check_keep(self._keep, (self._layout.user, self._layout.trace, "time", "lat", "lon"))
        self.times = TimeParser(columns.zone, columns.time_format)
        self.any_time = False
        self._has_users: bool | None = None  # None until the first batch
        self._names: dict[str, None] = {}  # of fields, as they came
        self._wanted = {*self._keep, *filter(None, (self._user, columns.trace))}

    def rows(self, fixes: Iterable[FileFix]) -> Iterator[Row | UnreadableFileError]:
        """The rows; instead of raising an error, ends with it."""
        try:
            for fix in fixes:
                yield self._row(fix)
        except UnreadableFileError as error:
            problem = error
        else:
            return
        yield problem

    def _row(self, fix: FileFix) -> Row:
        fields = fix.fields
        if fields and (len(self._names) < 64 or self._wanted):
            self._names.update(dict.fromkeys(fields))
        at = self._parse_time(fix.time)
        if fix.broken:
            at = Fault.LINE
            self.any_time = True  # they are there, and cannot be told apart
        user, trace = fix.user, fix.trace
        if self._user is not None:
            user = parse_user(fields.get(self._user))
        if self._columns.user == NO_USER:
            user = None
        if self._columns.trace is not None:
            trace = str(json_scalar(fields.get(self._columns.trace, "")))
        kept = [json_scalar(fields.get(name)) for name in self._keep]
        return Row.parsed(fix.line, at, fix.lat, fix.lon, user, trace, kept)

    def _parse_time(self, time: Any) -> int | Fault:
        known = isinstance(time, (str, int, float, datetime)) and not isinstance(time, bool)
        if known and time != "":
            self.any_time = True
        return self.times.parse(time if known else None)

    def batch(self, rows: Sequence[Row], done: float) -> RowBatch:
        with_user = next((row for row in rows if row.user is not None), None)
        if self._has_users is None:
            self._has_users = with_user is not None
        if with_user is not None and not self._has_users:
            raise UnreadableFileError(
                "this point has a user, and those before it have none",
                with_user.line,
                expected="a user in each point or in none",
                remedy="name them all, or make each file a user with --user @file",
            )
        return batch_from_rows(rows, self._keep, self._layout, has_users=self._has_users, done=done)

    def finish(self, if_empty: Callable[[], str]) -> None:
        """After the last batch: raises if there was none, or a wanted field was never there."""
        if self._has_users is None:
            raise NoPointsError(if_empty())
        for name in sorted(self._wanted - set(self._names)):
            raise ParameterError(
                f"its points have no {name!r}; found {describe_names(list(self._names)[:40])}: "
                "give one of these"
            )


def parse_user(value: Any) -> str | int | None:
    """A user's id as given, None if it is not an id."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    if isinstance(value, str) and not value.strip():
        return None
    scalar: str | int = json_scalar(value)
    return scalar
