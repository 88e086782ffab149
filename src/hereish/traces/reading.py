"""Files one after the other, read ahead by several processes: valid rows, batch by batch."""

from __future__ import annotations

import errno
import gzip
import signal
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import replace
from multiprocessing import get_context
from typing import Literal

from hereish.errors import ParameterError
from hereish.traces.columns import NO_USER, Columns, NoPlacesError
from hereish.traces.discovery import UnreadableSource
from hereish.traces.faults import (
    NoPointsError,
    RefusedFileError,
    UnreadableFileError,
    WithoutPlacesError,
    closed_file,
)
from hereish.traces.formats._bytes import damaged_gzip
from hereish.traces.formats._lookalikes import hint_at_content, with_hint
from hereish.traces.formats.base import Source
from hereish.traces.table import Ids, RowBatch
from hereish.traces.validate import Validator

_WORTH_PROCESSES = 4 << 20  # bytes; fewer are read sooner than processes start
_LARGEST_MESSAGE = 64 << 20  # bytes; larger files are not passed from process to process

# Called with the bytes that have been read, all the bytes there are, and the points so far.
Progress = Callable[[int, int, int], None]
UsersFrom = Literal["file", "folder"]
# A batch of a file, the reason why the rest of it is unreadable, or None: it was read to its end.
Event = tuple[Source, RowBatch | UnreadableFileError | None]
# What the system may say of one file. Whatever else it says, such as that the disk is full or that
# too many files are open, is of all of them.
_OF_ONE_FILE = frozenset(
    (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.EIO, errno.ESTALE)
)


def read_valid_rows(
    sources: Sequence[Source],
    columns: Columns,
    validator: Validator,
    *,
    unreadable: Sequence[UnreadableSource] = (),
    users_from: UsersFrom | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Iterator[tuple[Source, RowBatch]]:
    """Every batch of every file in order, without rows that cannot be used by themselves.

    `unreadable` are files of which that is known already. Where one is an error, the files after it
    are read for what is wrong with them, and no more of their rows come. `users_from` makes each
    file, or each folder, a user of its own.
    """
    if users_from is not None:
        columns = replace(columns, user=NO_USER)
    total, before = sum(source.size for source in sources), 0
    validator.files = len(sources) + len(unreadable)
    for source, problem in unreadable:
        validator.file_error(source, problem)
    with closing(_read_events(sources, columns, jobs)) as events:
        for source, event in events:
            if event is None:
                before += source.size
            elif isinstance(event, NoPointsError | WithoutPlacesError) and validator.files > 1:
                validator.without_points.append(f"{source.name}: {event.reason}")
            elif isinstance(event, UnreadableFileError):
                validator.file_error(source, event)
            elif not validator.has_failed:
                batch = _with_users(event, source, users_from)
                yield source, validator.valid_rows(source, batch)
                if progress is not None:
                    done = before + round(event.done * source.size)
                    progress(done, total, validator.points)
    validator.check_files()


def _with_users(batch: RowBatch, source: Source, users_from: UsersFrom | None) -> RowBatch:
    if users_from is None or source.path is None:
        return batch
    path = source.path.resolve().joinpath(*source.members)
    name = source.below.name.split(".")[0] if users_from == "file" else path.parent.name
    return replace(batch, user=Ids.constant(name, len(batch)))


def _read_events(
    sources: Sequence[Source], columns: Columns, jobs: int
) -> Generator[Event, None, None]:
    """The events of every file in order, whatever `jobs` is."""
    small = [source for source in sources if 0 < source.size <= _LARGEST_MESSAGE]
    if jobs > 1 and len(small) > 1 and sum(source.size for source in small) > _WORTH_PROCESSES:
        yield from _read_in_processes(sources, columns, jobs)
        return
    for source in sources:
        events = _read_file(source, columns)
        # Not from a pipe, which has no size: an interrupt would wait for a thread that reads it.
        ahead = jobs > 1 and source.format.reads_ahead and source.size > 0
        yield from _read_ahead(events) if ahead else events


def _read_file(source: Source, columns: Columns) -> Iterator[Event]:
    try:
        for batch in source.format.read(source, columns):
            yield source, batch
    except UnreadableFileError as error:
        yield source, with_hint(source, error).with_traceback(None)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield source, damaged_gzip()
    except OSError as error:
        if error.errno not in _OF_ONE_FILE:
            raise
        yield source, closed_file(error)
    except ParameterError as error:
        hint = hint_at_content(source)
        without = isinstance(error, NoPlacesError) and not hint
        kind = WithoutPlacesError if without else RefusedFileError
        yield source, kind(hint or str(error))
    yield source, None


def _read_whole_file(source: Source, columns: Columns) -> list[Event]:
    return list(_read_file(source, columns))


def _read_in_processes(sources: Sequence[Source], columns: Columns, jobs: int) -> Iterator[Event]:
    waiting: deque[tuple[Source, Future[list[Event]] | None]] = deque()
    left = iter(sources)
    # Spawned: a fork would copy this process with its threads in the middle of something.
    # An interrupt is for the first process alone, which ends the others.
    ignore_interrupts = (signal.SIGINT, signal.SIG_IGN)
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, signal.signal, ignore_interrupts) as pool:
        try:
            while True:
                while len(waiting) < 2 * jobs and (source := next(left, None)) is not None:
                    waiting.append((source, _begin_to_read(pool, source, columns)))
                if not waiting:
                    return
                source, future = waiting.popleft()
                yield from _events_of(source, columns, future)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin_to_read(
    pool: ProcessPoolExecutor, source: Source, columns: Columns
) -> Future[list[Event]] | None:
    if source.size > _LARGEST_MESSAGE or source.path is None:
        return None
    try:
        return pool.submit(_read_whole_file, source, columns)
    except BrokenProcessPool:
        return None


def _events_of(
    source: Source, columns: Columns, future: Future[list[Event]] | None
) -> Iterable[Event]:
    """Read by another process, or here if there is none: the system may have ended it."""
    if future is not None:
        with suppress(BrokenProcessPool):
            return future.result()
    return _read_file(source, columns)


def _read_ahead(events: Iterator[Event]) -> Iterator[Event]:
    """The same events, with the next one read while the last one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, events, None)
        while (event := coming.result()) is not None:
            coming = thread.submit(next, events, None)
            yield event
