"""Which report belongs to which true point, and how far from it it is."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.faults import Fault
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.names import canonical_name, name_key
from hereish.traces.order import ranks
from hereish.traces.table import RELEASED_KINDS, RowBatch
from hereish.traces.thinning import Thinner
from hereish.traces.trace_numbers import number_by_time
from hereish.viewer.spending import WindowSpending, group_starts, local_ms, window_spending

UNKNOWN_KIND = len(RELEASED_KINDS)  # of a report whose file does not say


@dataclass(frozen=True, eq=False)
class Pairs:
    """The true points by user and time, each with its report if it has one. They are secret."""

    names: list[str]  # of users
    user: Ints
    at_ms: Ints  # local time, as if it were UTC: pages know no time zones
    lat: Floats
    lon: Floats
    row: Ints  # of the report in the columns below; -1 if there is none
    reported_lat: Floats
    reported_lon: Floats
    error_m: Floats
    kind: Ints  # a number into RELEASED_KINDS, or UNKNOWN_KIND
    spending: WindowSpending | None  # None: the file has no costs
    thinned: Bools  # of the true points: left out because they came too soon after another
    unmatched: int  # reports without a true point

    def __repr__(self) -> str:
        return f"<Pairs of {len(self.user)} true points>"


def pair_points(
    true: RowBatch, reported: RowBatch, guarantee: GuaranteeMetadata | None, zone: ZoneInfo
) -> Pairs:
    """Pair each report with the true point of the same user and instant."""
    true, reported = _without_faults(true), _without_faults(reported)
    names, true_user, user = _number_users(true, reported)
    # By trace too, where both have it: rows of one user and time may be in another order there.
    order, reported_order = _orders(true, true_user, reported, user)
    true, true_user = true.take(order), true_user[order]
    reported, user = reported.take(reported_order), user[reported_order]
    at, row = _match(true_user, true.at_us, user, reported.at_us)
    if not len(at):
        raise ParameterError(
            f"none of the {len(reported)} reports has a true point of the same user and time, of "
            f"{len(true)}; these two files do not belong together"
        )
    spending = window_spending(reported, user, guarantee, zone)
    has_report = np.zeros(len(true), dtype=np.bool_)
    has_report[at] = True
    return Pairs(
        names=names,
        user=true_user,
        at_ms=local_ms(true.at_us, zone),
        lat=true.lat,
        lon=true.lon,
        row=_scatter(at, len(true)),
        reported_lat=reported.lat[row],
        reported_lon=reported.lon[row],
        error_m=Sphere().distance(
            np.column_stack([true.lat[at], true.lon[at]]),
            np.column_stack([reported.lat[row], reported.lon[row]]),
        ),
        kind=_kinds(reported)[row],
        spending=spending and spending.take(row),
        thinned=_is_thinned(true, true_user, names, guarantee) & ~has_report,
        unmatched=len(reported) - len(row),
    )


def _without_faults(batch: RowBatch) -> RowBatch:
    bad = batch.fault != Fault.NONE
    return batch.take(~bad) if bad.any() else batch


def _number_users(true: RowBatch, reported: RowBatch) -> tuple[list[str], Ints, Ints]:
    """The users of both files as text, since one may have numbers where the other has texts."""
    columns = [batch.user for batch in (true, reported) if batch.user is not None]
    if len(columns) < 2:
        if any(len(np.unique(ids.codes)) > 1 for ids in columns):
            raise ParameterError(
                "one of the files tells several users and the other none; name its column with "
                "--user"
            )
        name = (
            str(columns[0].names[columns[0].codes[0]]) if columns and len(columns[0].codes) else ""
        )
        zeros = np.zeros(max(len(true), len(reported)), dtype=np.int64)
        return [name], zeros[: len(true)], zeros[: len(reported)]
    numbers: dict[str, int] = {}
    codes = []
    for ids in columns:
        table = [numbers.setdefault(str(name), len(numbers)) for name in ids.names]
        codes.append(np.array(table, dtype=np.int64)[ids.codes])
    return list(numbers), codes[0], codes[1]


def _orders(true: RowBatch, true_user: Ints, reported: RowBatch, user: Ints) -> tuple[Ints, Ints]:
    """The rows of both by user, time and trace."""
    places = [np.zeros(len(batch), dtype=np.int64) for batch in (true, reported)]
    if true.trace is not None and reported.trace is not None:
        true_trace = true.trace
        names = [{*map(canonical_name, ids.names)} for ids in (true.trace, reported.trace)]
        if not names[1] <= names[0]:  # they were published as numbers
            true_trace = number_by_time(true_user, true.trace.codes, true.at_us)
        for i, ids in enumerate((true_trace, reported.trace)):
            places[i] = ranks([name_key(canonical_name(name)) for name in ids.names])[ids.codes]
    return (
        np.lexsort((places[0], true.at_us, true_user)),
        np.lexsort((places[1], reported.at_us, user)),
    )


def _match(true_user: Ints, true_at_us: Ints, user: Ints, at_us: Ints) -> tuple[Ints, Ints]:
    """The rows of both with the same user and instant, in the order of the first.

    Where there are several of them, the first belongs to the first and so on.
    """
    users, times = np.concatenate([true_user, user]), np.concatenate([true_at_us, at_us])
    occurrence = np.concatenate([_occurrence(true_user, true_at_us), _occurrence(user, at_us)])
    second = np.arange(len(occurrence)) >= len(true_user)
    order = np.lexsort((second, occurrence, times, users))
    equal = ~group_starts(users[order], times[order], occurrence[order])[1:]
    at, row = order[:-1][equal], order[1:][equal] - len(true_user)
    forward = np.argsort(at)
    return at[forward], row[forward]


def _occurrence(user: Ints, at_us: Ints) -> Ints:
    """How many rows before this one have the same user and instant."""
    order = np.lexsort((at_us, user))
    numbers = np.arange(len(order))
    new = group_starts(user[order], at_us[order])
    occurrence = np.empty_like(order)
    occurrence[order] = numbers - np.maximum.accumulate(np.where(new, numbers, 0))
    return occurrence


def _is_thinned(
    true: RowBatch, user: Ints, names: list[str], guarantee: GuaranteeMetadata | None
) -> Bools:
    """Which points nobody asked about: times and the file's settings tell, as they told then."""
    if guarantee is None or guarantee.every_s is None:
        return np.zeros(len(true), dtype=np.bool_)
    return ~Thinner.by_seconds(guarantee.every_s).keep(user, names, true.at_us)


def _scatter(at: Ints, rows: int) -> Ints:
    out = np.full(rows, -1, dtype=np.int64)
    out[at] = np.arange(len(at))
    return out


def _kinds(reported: RowBatch) -> Ints:
    column = reported.kept.get("kind")
    kinds = np.full(len(reported), UNKNOWN_KIND, dtype=np.int64)
    if column is not None:
        names = column.astype(str)
        for number, kind in enumerate(RELEASED_KINDS):
            kinds[names == kind.value] = number
    return kinds
