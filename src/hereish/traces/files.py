"""Files of traces in, sanitised files out: read, check, thin, step, write.

Rows go through in units of about a million, so memory does not grow with the files. Each user and
window has one budget across all of them. As long as time goes on from unit to unit, one pass over
the files is enough; otherwise they are read again for each unit, which is then made of whole users.
What comes out does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SECURE, Draws, SeededDraws
from hereish.core.session import NOT_PRIVATE
from hereish.core.windows import Day, NoReset
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import EachTrace
from hereish.traces.discovery import METADATA, Source, find, format_of, module
from hereish.traces.order import Order, check_order, covered
from hereish.traces.pipeline import NotInOrder, Work
from hereish.traces.reading import read_all
from hereish.traces.summary import Tally
from hereish.traces.table import NOBODY, Columns, Ids, Piece, Promise, Unreadable, joined_pieces
from hereish.traces.validate import row_faults, time_faults, unreadable, usable
from hereish.traces.writing import Output, SplitBy, Unsorted, output

# Called with the bytes that have been read, all the bytes there are, and the points so far.
Progress = Callable[[int, int, int], None]
UsersFrom = Literal["file", "folder"]


def sanitize_files(
    inputs: Sequence[str | Path],
    to: str | Path,
    mechanism: PredictiveMechanism,
    *,
    columns: Columns | None = None,
    users_from: UsersFrom | None = None,
    every_s: float | None = None,
    drop_bad: bool = False,
    seed: int | None = None,
    jobs: int = 1,
    form: str | None = None,
    to_form: str | None = None,
    order: Order = "public",
    split_by: SplitBy = "input",
    progress: Progress | None = None,
) -> Tally:
    """Sanitise files, folders or globs into a file or a folder that appears whole or not at all.

    Formats come from the names unless `form` and `to_form` say them. `users_from` makes each file,
    or each folder, a user of its own. `every_s` takes a user's points at least so far apart. A row
    that cannot be used is an error that names file and line; `drop_bad` leaves it out and counts
    it. The mechanism's window says what has one budget: a user (none), a user's day, or with
    `EachTrace` a trace.

    Rows come out by user, trace and time, whatever their order was; `order="input"` keeps theirs
    and so publishes it, which tells places where they were sorted by place. A folder has a file
    for each that was read, so which rows lie in which file must be public, and so must the names;
    `split_by="user"` makes a file for each user instead.

    Guarantee: as the mechanism's, for each user, whatever the order of the rows depends on; not
    with `order="input"`, which the output says. What is returned is not covered: it is computed
    from the truth.
    """
    check_order(order)
    sources = find([str(name) for name in inputs], form)
    target = str(to)
    columns = columns or Columns()
    if users_from is not None:
        columns = replace(columns, user=NOBODY)
    if {"kind", "cost"} & set(columns.keep):
        raise ParameterError("the columns 'kind' and 'cost' are of the output; keep others")
    place = Path(target).resolve()
    if any(source.path is not None and source.path.resolve() == place for source in sources):
        raise ParameterError(f"{target} is an input; name another file for the output")
    if to_form is None and format_of(target) is None and Path(target).suffix:
        to_form = form  # a name that tells nothing, such as out.dat
    how = _How(split_by=split_by, order=order, merge=any(s.path is None for s in sources))
    while True:
        # Nothing of what was begun has been seen by anybody, so it can be begun again.
        draws: Draws = SECURE if seed is None else SeededDraws(seed)
        promise = _promise(mechanism, draws, columns, order)
        tally = Tally(files=len(sources), guarantee=promise.guarantee, private=promise.private)
        reading = _Reading(sources, columns, users_from, drop_bad, jobs, tally, progress)
        try:
            with how.output(target, sources, to_form, promise) as out:
                work = Work(mechanism, draws, every_s, drop_bad, order, out, tally)
                reading.by_user(work) if how.by_user else reading.at_once(work)
                work.finish()
        except Unsorted:
            how = replace(how, merge=True)
        except NotInOrder:
            how = replace(how, merge=True, by_user=True)
        else:
            return tally
        if how.by_user and any(source.path is None for source in sources):
            raise PointError(
                "standard input has more rows than fit into memory, and not in the order of their "
                "times; save them to a file first, which can be read again; nothing was released"
            )


@dataclass(frozen=True)
class _How:
    """How rows get from the files to the output; what comes out is the same."""

    split_by: SplitBy
    order: Order
    merge: bool  # what is released is put into order once all of it is there
    by_user: bool = False  # some users at a time, in as many passes over the files

    def output(
        self, name: str, sources: list[Source], form: str | None, promise: Promise
    ) -> Output:
        return output(
            name,
            sources,
            form,
            promise,
            split_by=self.split_by,
            order=self.order,
            merge=self.merge,
        )


@dataclass
class _Reading:
    """Files to work, in one pass or in several."""

    sources: list[Source]
    columns: Columns
    users_from: UsersFrom | None
    drop_bad: bool
    jobs: int
    tally: Tally
    progress: Progress | None
    passes: int = 1
    done: int = 0  # passes

    def at_once(self, work: Work) -> None:
        """Rows as they come, as long as time does not go back."""
        for source, piece in self._usable(self.tally):
            work.add(source, piece)

    def by_user(self, work: Work) -> None:
        """All rows of some users, then those of the next, in any order that they lie in."""
        counts = np.zeros(0, dtype=np.int64)
        for _, piece in self._usable(self.tally):
            if len(piece):
                here = np.bincount(work.users_of(piece), minlength=len(counts))
                here[: len(counts)] += counts
                counts = here
        parts = work.in_parts(counts)
        self.passes, self.done = 1 + len(parts), 1
        for users in parts:
            work.begin_part(users)
            for source, piece in self._usable(Tally()):
                work.add(source, piece)
            work.flush()
            self.done += 1

    def _usable(self, tally: Tally) -> Iterator[tuple[Source, Piece]]:
        """Every piece, without the rows that nobody can use, which are counted."""
        size = sum(source.size for source in self.sources)
        total, before = self.passes * size, self.done * size
        with closing(read_all(self.sources, self.columns, self.jobs)) as events:
            for source, event in events:
                if event is None:
                    before += source.size
                elif isinstance(event, Unreadable):
                    unreadable(source, event, self.drop_bad, tally)
                else:
                    piece = _with_users(event, source, self.users_from)
                    tally.points += len(piece)
                    yield source, usable(source, piece, row_faults(piece), self.drop_bad, tally)
                    if self.progress is not None:
                        at = before + round(event.done * source.size)
                        self.progress(at, total, self.tally.points)


def load(
    names: Sequence[str],
    columns: Columns,
    form: str | None = None,
    drop_bad: bool = False,
    users_from: UsersFrom | None = None,
    in_order: bool = True,
) -> Piece:
    """All rows of some files as one piece, checked as `sanitize_files` does.

    `in_order=False` takes times as they come, such as those of an output made of several files.
    """
    tally = Tally()
    columns = replace(columns, user=NOBODY) if users_from else columns
    sources = find(names, form)
    reading = _Reading(sources, columns, users_from, drop_bad, 1, tally, None)
    parts: list[Piece] = []
    for source, whole in groupby(reading._usable(tally), lambda pair: pair[0]):
        piece = joined_pieces([piece for _, piece in whole])
        if in_order:
            fault = _time_faults(piece)
            piece = usable(source, piece, fault, drop_bad, tally)
        parts.append(piece)
    if not sum(map(len, parts)):
        raise PointError(f"{', '.join(names)}: there are no points in it that can be used")
    return joined_pieces(parts)


def _time_faults(piece: Piece) -> NDArray[np.uint8]:
    """What `sanitize_files` finds wrong with the times of a file's rows."""
    users, traces = piece.user or _one(piece), piece.trace or _one(piece)
    trace = users.codes * len(traces.names) + traces.codes
    return time_faults(trace, piece.at_us, np.lexsort((piece.at_us, trace)))


def _one(piece: Piece) -> Ids:
    return Ids(np.zeros(len(piece), dtype=np.int64), [None])


def _promise(
    mechanism: PredictiveMechanism, draws: Draws, columns: Columns, order: Order
) -> Promise:
    window = mechanism.window
    zone = None if columns.zone is None else columns.zone.key
    known = {NoReset: "none", Day: "day", EachTrace: "trace"}
    private = draws.private and mechanism.private
    return Promise(
        guarantee=covered(
            mechanism.guarantee_for_each("user") if draws.private else NOT_PRIVATE, order
        ),
        private=private,
        eps_per_m=mechanism.privacy.eps_per_m,
        window=known.get(type(window), window.covers()),
        time_zone=getattr(window, "time_zone", zone),
    )


def _with_users(piece: Piece, source: Source, users_from: UsersFrom | None) -> Piece:
    if users_from is None or source.path is None:
        return piece
    path = source.path
    name = path.name.split(".")[0] if users_from == "file" else path.resolve().parent.name
    return replace(piece, user=Ids(np.zeros(len(piece), dtype=np.int64), [name]))


def promise_of(name: str, form: str | None = None) -> Promise | None:
    """What was promised for a file that `sanitize_files` wrote; None if it does not say."""
    source = find([name], form)[0]
    read_promise = getattr(module(source.format), "promise_of", None)
    if read_promise is not None:
        try:
            told: Promise | None = read_promise(source)
        except Unreadable:  # whoever reads the file itself will say so
            return None
        return told
    beside = Path(name, f"csv{METADATA}") if Path(name).is_dir() else Path(name + METADATA)
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Promise.read(about.get("hereish") if isinstance(about, dict) else None)
