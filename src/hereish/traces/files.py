"""Files of traces in, sanitised files out: read, check, thin, step, write.

Rows go through in units of about a million, so memory does not grow with the files. Each user and
window has one budget across all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from hereish.errors import ParameterError, PointError
from hereish.mechanism import PredictiveMechanism
from hereish.randomness import SECURE, Draws, SeededDraws
from hereish.session import NOT_PRIVATE
from hereish.traces.clean import Checker, unreadable, usable
from hereish.traces.output import output
from hereish.traces.piece import NOBODY, Columns, Ids, Piece, Promise, Unreadable
from hereish.traces.reading import read_all
from hereish.traces.rows import EachTrace
from hereish.traces.sources import METADATA, Source, find, format_of, module
from hereish.traces.tally import Tally
from hereish.traces.work import Work
from hereish.windows import Day, NoReset

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
    progress: Progress | None = None,
) -> Tally:
    """Sanitise files, folders or globs into a file or a folder that appears whole or not at all.

    Formats come from the names unless `form` and `to_form` say them. `users_from` makes each file,
    or each folder, a user of its own. `every_s` takes a user's points at least so far apart. A row
    that cannot be used is an error that names file and line; `drop_bad` leaves it out and counts
    it. The mechanism's window says what has one budget: a user (none), a user's day, or with
    `EachTrace` a trace.

    Guarantee: as the mechanism's, for each user. What is returned is not covered: it is computed
    from the truth.
    """
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
    draws: Draws = SECURE if seed is None else SeededDraws(seed)
    promise = _promise(mechanism, draws, columns)
    tally = Tally(files=len(sources), guarantee=promise.guarantee, private=promise.private)
    with output(target, sources, to_form, promise) as out:
        work = Work(mechanism, draws, every_s, drop_bad, out, tally)
        total, before = sum(source.size for source in sources), 0
        with closing(read_all(sources, columns, jobs)) as events:
            checker = Checker()
            for source, event in events:
                if event is None:
                    work.ended(source)
                    checker, before = Checker(), before + source.size
                elif isinstance(event, Unreadable):
                    unreadable(source, event, drop_bad, tally)
                else:
                    piece = _with_users(event, source, users_from)
                    work.add(source, piece, checker.faults(piece))
                    if progress is not None:
                        progress(before + round(event.done * source.size), total, tally.points)
        work.finish()
    return tally


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
    parts = []
    checker = Checker()
    for source, event in read_all(find(names, form), columns):
        if event is None:
            checker = Checker()
        elif isinstance(event, Unreadable):
            unreadable(source, event, drop_bad, tally)
        else:
            piece = _with_users(event, source, users_from)
            fault = checker.faults(piece, in_order)
            parts.append(usable(source, piece, fault, drop_bad, tally))
    if not sum(map(len, parts)):
        raise PointError(f"{', '.join(names)}: there are no points in it that can be used")
    return _joined(parts)


def _promise(mechanism: PredictiveMechanism, draws: Draws, columns: Columns) -> Promise:
    window = mechanism.window
    zone = None if columns.zone is None else columns.zone.key
    known = {NoReset: "none", Day: "day", EachTrace: "trace"}
    private = draws.private and mechanism.private
    return Promise(
        guarantee=mechanism.guarantee if draws.private else NOT_PRIVATE,
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


def _joined(parts: Sequence[Piece]) -> Piece:
    """Pieces as one, of the layout that the first has."""
    names = {name for part in parts for name in part.kept}
    return Piece(
        line=np.concatenate([part.line for part in parts]),
        at_us=np.concatenate([part.at_us for part in parts]),
        lat=np.concatenate([part.lat for part in parts]),
        lon=np.concatenate([part.lon for part in parts]),
        fault=np.concatenate([part.fault for part in parts]),
        user=_joined_ids([part.user for part in parts], list(map(len, parts))),
        trace=_joined_ids([part.trace for part in parts], list(map(len, parts))),
        kept={name: np.concatenate([part.kept[name] for part in parts]) for name in names},
        layout=parts[0].layout,
    )


def _joined_ids(columns: Sequence[Ids | None], lengths: Sequence[int]) -> Ids | None:
    if all(ids is None for ids in columns):
        return None
    values: list[object] = []
    for ids, length in zip(columns, lengths, strict=True):
        values += [None] * length if ids is None else ids.values()
    return Ids.of(values)


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
