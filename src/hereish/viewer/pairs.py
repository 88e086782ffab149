"""Which report belongs to which true point, and how far off it was."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.spaces import Sphere
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.names import name_key, same_name
from hereish.traces.table import KINDS, Fault, Piece, Promise
from hereish.viewer.spending import Budget, begins, budget_of, wall_ms

UNKNOWN = len(KINDS)  # the kind of a report whose file does not tell


@dataclass(frozen=True, eq=False)
class Pairs:
    """The true points by user and time, each with its report if it has one. Holds secrets."""

    names: list[str]  # of users
    user: Ints
    at_ms: Ints  # what the clock on the wall shows, as if it were UTC: pages know no time zones
    lat: Floats
    lon: Floats
    row: Ints  # of the report in the columns below; -1 if there is none
    reported_lat: Floats
    reported_lon: Floats
    error_m: Floats
    kind: Ints  # a number into KINDS, or UNKNOWN
    budget: Budget | None  # None: the file tells no costs
    strangers: int  # reports without a true point

    def __repr__(self) -> str:
        return f"<Pairs of {len(self.user)} true points>"


def paired(true: Piece, reported: Piece, promise: Promise | None, zone: ZoneInfo) -> Pairs:
    """A report belongs to the true point of the same user and instant."""
    true, reported = _sound(true), _sound(reported)
    names, true_user, user = _users(true, reported)
    # By trace too, where both tell it: rows of one user and time may stand in another order there.
    order, reported_order = _orders(true, true_user, reported, user)
    true, true_user = true.take(order), true_user[order]
    reported, user = reported.take(reported_order), user[reported_order]
    at, row = _same(true_user, true.at_us, user, reported.at_us)
    if not len(at):
        raise ParameterError(
            f"none of the {len(reported)} reports has a true point of the same user and time, of "
            f"{len(true)}; these two files do not belong together"
        )
    budget = budget_of(reported, user, promise, zone)
    return Pairs(
        names=names,
        user=true_user,
        at_ms=wall_ms(true.at_us, zone),
        lat=true.lat,
        lon=true.lon,
        row=_scattered(at, len(true)),
        reported_lat=reported.lat[row],
        reported_lon=reported.lon[row],
        error_m=Sphere().distance(
            np.column_stack([true.lat[at], true.lon[at]]),
            np.column_stack([reported.lat[row], reported.lon[row]]),
        ),
        kind=_kinds(reported)[row],
        budget=budget and budget.take(row),
        strangers=len(reported) - len(row),
    )


def _sound(piece: Piece) -> Piece:
    bad = piece.fault != Fault.NONE
    return piece.take(~bad) if bad.any() else piece


def _users(true: Piece, reported: Piece) -> tuple[list[str], Ints, Ints]:
    """The users of both files as text, since one may write numbers where the other has words."""
    told = [piece.user for piece in (true, reported) if piece.user is not None]
    if len(told) < 2:
        if any(len(np.unique(ids.codes)) > 1 for ids in told):
            raise ParameterError(
                "one of the files tells several users and the other none; name its column with "
                "--user"
            )
        name = str(told[0].names[told[0].codes[0]]) if told and len(told[0].codes) else ""
        zeros = np.zeros(max(len(true), len(reported)), dtype=np.int64)
        return [name], zeros[: len(true)], zeros[: len(reported)]
    numbers: dict[str, int] = {}
    codes = []
    for ids in told:
        table = [numbers.setdefault(str(name), len(numbers)) for name in ids.names]
        codes.append(np.array(table, dtype=np.int64)[ids.codes])
    return list(numbers), codes[0], codes[1]


def _orders(true: Piece, true_user: Ints, reported: Piece, user: Ints) -> tuple[Ints, Ints]:
    """The rows of both by user, time and trace."""
    places = [np.zeros(len(piece), dtype=np.int64) for piece in (true, reported)]
    if true.trace is not None and reported.trace is not None:
        for i, ids in enumerate((true.trace, reported.trace)):
            keys = [name_key(same_name(name)) for name in ids.names]
            rank = {key: place for place, key in enumerate(sorted(set(keys)))}
            places[i] = np.array([rank[key] for key in keys], dtype=np.int64)[ids.codes]
    return (
        np.lexsort((places[0], true.at_us, true_user)),
        np.lexsort((places[1], reported.at_us, user)),
    )


def _same(true_user: Ints, true_at_us: Ints, user: Ints, at_us: Ints) -> tuple[Ints, Ints]:
    """The rows of both with the same user and instant, in the order of the first.

    Where there are several of them, the first belongs to the first and so on.
    """
    users, times = np.concatenate([true_user, user]), np.concatenate([true_at_us, at_us])
    turn = np.concatenate([_turn(true_user, true_at_us), _turn(user, at_us)])
    second = np.arange(len(turn)) >= len(true_user)
    order = np.lexsort((second, turn, times, users))
    alike = ~begins(users[order], times[order], turn[order])[1:]
    at, row = order[:-1][alike], order[1:][alike] - len(true_user)
    forward = np.argsort(at)
    return at[forward], row[forward]


def _turn(user: Ints, at_us: Ints) -> Ints:
    """How many rows before this one have the same user and instant."""
    order = np.lexsort((at_us, user))
    numbers = np.arange(len(order))
    new = begins(user[order], at_us[order])
    turn = np.empty_like(order)
    turn[order] = numbers - np.maximum.accumulate(np.where(new, numbers, 0))
    return turn


def _scattered(at: Ints, rows: int) -> Ints:
    out = np.full(rows, -1, dtype=np.int64)
    out[at] = np.arange(len(at))
    return out


def _kinds(reported: Piece) -> Ints:
    column = reported.kept.get("kind")
    kinds = np.full(len(reported), UNKNOWN, dtype=np.int64)
    if column is not None:
        words = column.astype(str)
        for number, word in enumerate(KINDS):
            kinds[words == word] = number
    return kinds
