"""Files one after the other, read ahead by as many processes as are asked for."""

from __future__ import annotations

import gzip
import signal
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from hereish.errors import ParameterError
from hereish.traces.discovery import Source, module
from hereish.traces.table import Columns, Piece, Unreadable

_WORTH_PROCESSES = 4 << 20  # bytes; less is read sooner than processes start
_WHOLE = 64 << 20  # bytes; larger files are not handed over in one go

# A piece of a file, what made the rest of it unreadable, or None: it was read to its end.
Event = tuple[Source, Piece | Unreadable | None]


def read_all(
    sources: Sequence[Source], columns: Columns, jobs: int = 1
) -> Generator[Event, None, None]:
    """Every piece of every file in order, whatever `jobs` is."""
    small = [source for source in sources if 0 < source.size <= _WHOLE]
    if jobs > 1 and len(small) > 1 and sum(source.size for source in small) > _WORTH_PROCESSES:
        yield from _by_processes(sources, columns, jobs)
        return
    for source in sources:
        events = _events(source, columns)
        yield from _ahead(events) if jobs > 1 and source.format == "parquet" else events


def _events(source: Source, columns: Columns) -> Iterator[Event]:
    try:
        for piece in module(source.format).read(source, columns):
            yield source, piece
    except Unreadable as broken:
        yield source, Unreadable(broken.why, broken.line)  # without the trail of the first
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield source, Unreadable("it cannot be unpacked: it is no gzip file, or ends early")
    except ParameterError as wrong:
        raise ParameterError(f"{source.name}: {wrong}") from None
    yield source, None


def _whole(source: Source, columns: Columns) -> list[Event]:
    return list(_events(source, columns))


def _by_processes(sources: Sequence[Source], columns: Columns, jobs: int) -> Iterator[Event]:
    waiting: deque[tuple[Source, Future[list[Event]] | None]] = deque()
    left = iter(sources)
    # Started afresh: a fork would copy this process with its threads in the middle of something.
    # An interrupt is for the first process alone, which ends the others.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, signal.signal, quiet) as pool:
        try:
            while True:
                while len(waiting) < 2 * jobs and (source := next(left, None)) is not None:
                    here = source.size > _WHOLE or source.path is None
                    waiting.append((source, None if here else pool.submit(_whole, source, columns)))
                if not waiting:
                    return
                source, future = waiting.popleft()
                yield from _events(source, columns) if future is None else future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _ahead(events: Iterator[Event]) -> Iterator[Event]:
    """The same, with the next event read while the last one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, events, None)
        while (event := coming.result()) is not None:
            coming = thread.submit(next, events, None)
            yield event
