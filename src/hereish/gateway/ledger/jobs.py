"""Jobs that pay from the same budgets as reports: files and engines beside the gateway.

A job reserves what it may spend of each user's window before it reads a place. It computes, pays
(`settle`) and only then publishes. What it has reserved counts as spent until then, for reports
and for other jobs, so none of them can pass a budget; and a job that dies has published nothing.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Floats
from hereish.errors import HereishError, ParameterError
from hereish.gateway.ledger.database import read_progress
from hereish.gateway.ledger.job_reservations import Refusal, RunningJob, reserve_windows
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.queries import MixedBackupError, taken
from hereish.gateway.ledger.tables import jobs, reservations, users
from hereish.gateway.ledger.tables import ledger as ledger_row
from hereish.traces.job_budget import UserWindow, WindowCost, check_shared_budget

T = TypeVar("T")
_MAX_NAME = 128
# Of a transaction: few enough that reports which wait for their user hardly notice.
_WINDOWS_AT_ONCE = 1000
_COSTS_AT_ONCE = 10_000


class JobError(HereishError):
    """A job cannot go on. Nothing of it may be published."""


class JobInfo(NamedTuple):
    """A job as the operator may see it."""

    name: str
    created_s: float
    settled_s: float | None  # None: it runs, or has died
    users: int
    windows: int
    reserved: float  # epsilon per metre, over all users and windows
    taken: float  # of the budgets: all that is reserved, or what was spent once it is settled


class LedgerJob:
    """What one job reserves and pays: a `hereish.traces.job_budget.JobBudget`.

    The same name is the same job, in a second attempt too: it has what the first has reserved. An
    attempt that may have been published is only published again if it is the same.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        mechanism: PredictiveMechanism,
        add_users: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.name = name
        self.refused: Counter[Refusal] = Counter()  # windows of users that got nothing, and why
        self.reduced = 0  # windows of users that got less than a whole budget of the mechanism
        self.windows = 0
        self._ledger, self._mechanism, self._add_users = ledger, mechanism, add_users

    @classmethod
    def begin(
        cls,
        ledger: Ledger,
        name: str,
        mechanism: PredictiveMechanism,
        *,
        repeats: bool = False,
        add_users: Callable[[Sequence[str]], None] | None = None,
    ) -> LedgerJob:
        """Begin a job, or go on with it. Raises JobError for one that is over, or is another.

        `repeats`: what the job releases can be computed again to the bit, so it may be published
        again although it was settled. `add_users` is called with names of users that the ledger
        does not know; without it nothing of theirs is released.
        """
        check_shared_budget(mechanism)
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
            raise ParameterError(
                f"the name of a job has 1 to {_MAX_NAME} printable characters, found {name!r}"
            )
        with ledger.database.writing() as tx:
            row = tx.execute(_select_job, {"job": name}).one_or_none()
            if row is not None and row.settled_s is None and not _has_reserved(tx, name):
                tx.execute(delete(jobs).where(jobs.c.name == name))  # it may begin anew
                row = None
            if row is None:
                begun = {"mechanism": mechanism.fingerprint, "created_s": time.time()}
                tx.execute(insert(jobs), {"name": name, **begun})
            elif row.mechanism != mechanism.fingerprint:
                raise _other_settings(name)
            elif row.settled_s is not None and not (repeats and row.digest is not None):
                raise JobError(
                    f"the job {name!r} has released its output and paid for it; another job has a "
                    "name of its own, and pays on its own"
                )
        return cls(ledger, name, mechanism, add_users)

    def reserve(self, windows: Sequence[UserWindow]) -> Floats:
        granted: list[float] = []
        for some in _in_lots(windows, _WINDOWS_AT_ONCE):
            outcomes = self._reserve(some)
            if self._add_users is not None and Refusal.UNKNOWN in outcomes:
                pairs = zip(some, outcomes, strict=True)
                self._add_users(sorted({w.user for w, one in pairs if one is Refusal.UNKNOWN}))
                outcomes = self._reserve(some)
            self.refused.update(one for one in outcomes if isinstance(one, Refusal))
            granted += [0.0 if isinstance(one, Refusal) else one for one in outcomes]
        self.windows += len(windows)
        eps = np.array(granted)
        bound = self._mechanism.bound
        self.reduced += int(np.count_nonzero((eps > 0.0) & (bound.spent_leaving(eps) > 0.0)))
        return eps

    def summary(self) -> dict[str, Any]:
        """What it has got, for people and programs."""
        refused = {str(reason): count for reason, count in sorted(self.refused.items())}
        got = {"windows": self.windows, "reduced": self.reduced, "refused": refused}
        return {"name": self.name} | got

    def _reserve(self, windows: Sequence[UserWindow]) -> list[float | Refusal]:
        ledger = self._ledger
        try:
            with ledger.database.writing() as tx:
                mark = ledger.mark.value()  # before the ledger is read: others go on
                row = self._lock_job(tx, "it was cancelled meanwhile")
                job = RunningJob(self.name, self._mechanism, row.settled_s is not None)
                outcomes = reserve_windows(tx, ledger.policies, job, windows, time.time())
                self._check_ledger(tx, mark)
        except MixedBackupError as error:
            ledger.guard.stop(str(error))
            raise
        return outcomes

    def settle(self, costs: Iterable[WindowCost], digest: bytes | None = None) -> None:
        ledger = self._ledger
        paying = self._summed(costs)  # before the transaction: an engine may take minutes for them
        with ledger.database.writing() as tx:
            mark = ledger.mark.value()
            self._check_ledger(tx, mark)
            job = self._lock_job(tx, "it was cancelled meanwhile, and others may have spent that")
            if job.settled_s is not None:
                if digest is None or job.digest != digest:
                    raise JobError(
                        f"the job {self.name!r} was published before, and this is not the same: "
                        "its input, its key or its settings have changed since. Another job has a "
                        "name of its own, and pays on its own"
                    )
                # Published again, to the bit; who paid may have died before the mark was raised.
                number = int(tx.execute(select(ledger_row.c.job_number)).scalar_one())
            else:
                self._refuse_nothing(tx)
                self._write_costs(tx, paying)
                paid = {"settled_s": time.time(), "digest": digest}
                tx.execute(update(jobs).where(jobs.c.name == self.name).values(paid))
                number = ledger.database.take_payment_number(tx)
        ledger.guard.raise_mark_to(number)  # [L14]

    def _summed(self, costs: Iterable[WindowCost]) -> list[WindowCost]:
        """What was spent in each window, by user, so that those of a user are looked up once."""
        spent: dict[tuple[str, int], float] = {}
        for user, window, cost in costs:
            if not cost >= 0.0:
                raise self._overspent()
            spent[user, window] = spent.get((user, window), 0.0) + cost
        return [WindowCost(*key, spent[key]) for key in sorted(spent) if spent[key] > 0.0]

    def _overspent(self) -> JobError:
        return JobError(
            f"the job {self.name!r} has spent more than it has reserved, or what it had reserved "
            "was cancelled or deleted meanwhile; nothing may be published"
        )

    def _refuse_nothing(self, tx: Connection) -> None:
        """Raises if the job has reserved nothing: its name is not used up then."""
        if not _has_reserved(tx, self.name):
            reasons = "; ".join(f"{n:,} got nothing: {why}" for why, n in self.refused.items())
            raise JobError(
                f"the job {self.name!r} may release nothing, of {self.windows:,} windows of users "
                f"{reasons or 'there is none'}. Nothing was written"
            )

    def _write_costs(self, tx: Connection, costs: Sequence[WindowCost]) -> None:
        """What was spent of each reservation. Raises for what is more, or was not reserved."""
        own = reservations.c.job == self.name
        tx.execute(update(reservations).where(own).values(spent=0.0))  # by an attempt that failed
        for some in _in_lots(costs, _COSTS_AT_ONCE):
            names = {cost.user for cost in some}
            found = tx.execute(
                select(users.c.name, users.c.id, users.c.policy_id).where(users.c.name.in_(names))
            )
            ids = {row.name: row.id for row in found}
            held = tx.execute(
                select(
                    reservations.c.user_id,
                    reservations.c.window,
                    reservations.c.policy_id,
                    reservations.c.reserved,
                ).where(own, reservations.c.user_id.in_(ids.values()))
            )
            reserved = {(row.user_id, row.window): (row.policy_id, row.reserved) for row in held}
            rows = []
            for user, window, cost in some:
                key = (ids.get(user, -1), window)
                policy_id, most = reserved.get(key, (None, 0.0))
                spent = cost
                if policy_id is not None:
                    bound = self._ledger.policies.read(tx, policy_id).mechanism.bound
                    spent = float(bound.rounded_up(cost))
                if not 0.0 < spent <= most:
                    raise self._overspent()
                rows.append({"u": key[0], "w": window, "s": spent})
            tx.execute(_update_spent, [{**row, "j": self.name} for row in rows])

    def _check_ledger(self, tx: Connection, mark: int) -> None:
        """Refuse a ledger that was restored. `mark` was read before it."""
        progress = read_progress(tx, self._ledger.database.dialect)
        self._ledger.guard.check(progress.last, progress.era, mark)

    def _lock_job(self, tx: Connection, otherwise: str) -> _JobRow:
        row = tx.execute(_select_job, {"job": self.name}).one_or_none()
        if row is None:
            raise JobError(f"the job {self.name!r} is not in the ledger: {otherwise}")
        if row.mechanism != self._mechanism.fingerprint:
            raise _other_settings(self.name)  # it has begun anew meanwhile
        return _JobRow(*row)


class _JobRow(NamedTuple):
    mechanism: str
    settled_s: float | None
    digest: bytes | None


_select_job = (
    select(jobs.c.mechanism, jobs.c.settled_s, jobs.c.digest)
    .where(jobs.c.name == bindparam("job"))
    .with_for_update()
)


_update_spent = (
    update(reservations)
    .where(
        reservations.c.user_id == bindparam("u"),
        reservations.c.job == bindparam("j"),
        reservations.c.window == bindparam("w"),
    )
    .values(spent=bindparam("s"))
)


def _has_reserved(tx: Connection, name: str) -> bool:
    own = select(reservations.c.user_id).where(reservations.c.job == name)
    return tx.execute(own.limit(1)).first() is not None


def _other_settings(name: str) -> JobError:
    return JobError(
        f"the job {name!r} was begun with other settings; take these again, or give another job a "
        "name of its own"
    )


def list_jobs(ledger: Ledger) -> list[JobInfo]:
    """All jobs, the newest first."""
    r = reservations.c
    query = (
        select(
            jobs.c.name,
            jobs.c.created_s,
            jobs.c.settled_s,
            func.count(r.user_id.distinct()),
            func.count(r.user_id),
            func.coalesce(func.sum(r.reserved), 0.0),
            func.coalesce(func.sum(taken), 0.0),
        )
        .outerjoin(reservations, r.job == jobs.c.name)
        .group_by(jobs.c.name)
        .order_by(jobs.c.created_s.desc(), jobs.c.name)
    )
    with ledger.database.reading() as tx:
        return [JobInfo(*row) for row in tx.execute(query)]


def cancel_job(ledger: Ledger, name: str) -> None:
    """Return all that a job has reserved. It can then publish nothing, should it still run."""
    with ledger.database.writing() as tx:
        query = select(jobs.c.settled_s).where(jobs.c.name == name).with_for_update()
        row = tx.execute(query).one_or_none()
        if row is None:
            raise JobError(f"there is no job {name!r}; 'hereish ledger jobs' lists them")
        if row.settled_s is not None:
            raise JobError(f"the job {name!r} has paid for what it has published: that stays spent")
        tx.execute(delete(reservations).where(reservations.c.job == name))
        tx.execute(delete(jobs).where(jobs.c.name == name))


def _in_lots(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(itertools.islice(rest, size)):
        yield some
