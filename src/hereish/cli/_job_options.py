"""Options of a job that shares the budgets of a ledger with a gateway and with other jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hereish.cli._gateway_options import LedgerLocation
from hereish.cli._options import collect, option
from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError

if TYPE_CHECKING:
    from hereish.gateway.ledger.jobs import LedgerJob

_SHARING = "Budgets shared with a gateway and other jobs"


@dataclass(frozen=True)
class JobOptions:
    """Which ledger has the budgets, and what the job is called there."""

    ledger: str | None
    job: str | None
    add_users: bool
    ledger_key: str | None
    ledger_mark: str | None

    def check(self, seed: int | None) -> None:
        """Refuse options that belong to a ledger without one, or that it cannot have."""
        if self.ledger is None:
            for flag, given in {
                "--job": self.job is not None,
                "--add-users": self.add_users,
            }.items():
                if given:
                    raise ParameterError(f"{flag} belongs to --ledger: leave it out, or add that")
            return
        if self.job is None:
            raise ParameterError(
                "--ledger needs a name for the job, which it keeps when it is run again: --job "
                "2026-05-05, say"
            )
        if seed is not None:
            raise ParameterError(
                "--seed is NOT PRIVATE, so there is nothing to pay for: leave it out"
            )

    @contextmanager
    def open(
        self,
        mechanism: PredictiveMechanism,
        *,
        repeats: bool,
        new_users: dict[str, Any] | None,
    ) -> Iterator[LedgerJob | None]:
        """The job in its ledger; None without a ledger. `new_users`: the policy of new ones."""
        if self.ledger is None or self.job is None:
            yield None
            return
        location = LedgerLocation(self.ledger, self.ledger_key, self.ledger_mark)
        with location.open() as ledger:
            from hereish.gateway.admin.accounts import NewUsers
            from hereish.gateway.ledger.jobs import LedgerJob
            from hereish.gateway.ledger.policy import Policy

            add = None if new_users is None else NewUsers(ledger, Policy(**new_users))
            yield LedgerJob.begin(ledger, self.job, mechanism, repeats=repeats, add_users=add)


# The command gets `sharing`.
JOB_OPTIONS = collect(
    "sharing",
    JobOptions,
    option(
        _SHARING,
        "--ledger",
        metavar="URL",
        help="The ledger whose users' budgets this pays from: postgresql+psycopg://user@host/name, "
        "or a file of SQLite. Nothing is released beyond what is left there.",
    ),
    option(
        _SHARING,
        "--job",
        metavar="NAME",
        help="What this job is called in the ledger. Run again under its name, it has what it "
        "reserved before.",
    ),
    option(
        _SHARING,
        "--add-users",
        is_flag=True,
        help="Add users whom the ledger does not know, with these settings as their policy. "
        "Without it nothing of theirs is released.",
    ),
    option(
        _SHARING,
        "--ledger-key",
        metavar="FILE",
        envvar="HEREISH_KEY_FILE",
        help="The key of the ledger; HEREISH_KEY may hold the key itself.",
    ),
    option(
        _SHARING,
        "--ledger-mark",
        metavar="FILE",
        envvar="HEREISH_MARK",
        help="The high-water mark of the ledger on this machine.",
    ),
)
