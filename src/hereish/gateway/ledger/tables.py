"""The tables of the ledger. Nothing here is, or can be turned back into, a true position.

Times are Unix seconds. `migrations/` makes these tables; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite numbers rows by itself only where the type is INTEGER, which there has 64 bits too.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _user(*, primary_key: bool = False, index: bool = False) -> Column[int]:
    return Column(
        "user_id",
        Integer,
        ForeignKey("users.id", ondelete="CASCADE"),
        nullable=False,
        primary_key=primary_key,
        index=index,
    )


# One row: which ledger this is, and a proof of which key belongs to it.
# `era`: see high_water_mark.py.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Text, primary_key=True),
    Column("era", Text, nullable=False),
    Column("key_check", LargeBinary, nullable=False),
    Column("created_s", Double, nullable=False),
    # The highest number of an entry that was pruned, deleted or lost to a restore.
    Column("forgotten", BigInteger, nullable=False, server_default="0"),
    # When a restored ledger was last accepted: users added later may have had a budget before.
    Column("closed_s", Double),
    # The highest number that the payment of a job, or a policy that may cost more than the one
    # before it, took from those of the entries.
    Column("job_number", BigInteger, nullable=False, server_default="0"),
    # Entries for times before this may have been pruned, so what they cost is not known.
    Column("pruned_s", Double),
)

users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_s", Double, nullable=False),
    Column("disabled_s", Double),
    # The policy that pays for the present window, and the one that waits for a later window.
    Column("policy_id", Integer),
    Column("next_policy_id", Integer),
    # The public run of the session and the newest entry, as JSON; NULL before the first report.
    Column("state", Text),
    Column("forwards", Integer, nullable=False),  # to how many destinations
    # Windows that had begun by then are closed: the ledger was restored.
    Column("closed_s", Double),
    # Whose reports count: the device that the operator chose (NULL: the one with the newest token),
    # the one that it is at present, and how long it is silent before others count (NULL: by the
    # policy's interval).
    Column("chosen_device", Text),
    Column("primary_device", Text),
    Column("silence_s", Double),
    # From when on the present policy pays; NULL: from the beginning.
    Column("policy_since_s", Double),
    # The end of the latest window that a job has reserved something of.
    Column("reserved_s", Double),
    sqlite_autoincrement=True,
)

policies = Table(
    "policies",
    metadata,
    Column("id", Integer, primary_key=True),
    _user(),
    Column("version", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_s", Double, nullable=False),
    UniqueConstraint("user_id", "version"),
    sqlite_autoincrement=True,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    _user(index=True),
    Column("device", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_s", Double, nullable=False),
    Column("revoked_s", Double),
    Column("passphrase", LargeBinary),  # of OwnTracks' encryption; sealed
    Column("show_release", Boolean, nullable=False),  # answer OwnTracks with what was released
)

# What was released; of kind "none", once per window, that nothing was left.
entries = Table(
    "entries",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    _user(),
    Column("at_s", Double, nullable=False),
    Column("made_s", Double, nullable=False),
    Column("lat", Double),
    Column("lon", Double),
    Column("kind", Text, nullable=False),
    Column("cost", Double, nullable=False),
    Column("accuracy_m", Double),
    Column("eps_test", Double, nullable=False),
    Column("eps_noise", Double, nullable=False),
    Column("threshold_m", Double),
    Column("window", BigInteger),  # NULL where there is one budget for ever
    Column("policy_id", Integer, nullable=False),
    Column("device", Text, nullable=False),
    # Where nothing was left: which of the policy's limits was full; NULL: its first window.
    Column("full_limit", Integer),
    UniqueConstraint("user_id", "at_s"),  # one user is in one place at a time
    # So that numbers are never used twice, not even after the newest row was deleted: the
    # high-water mark relies on it. PostgreSQL's sequences do the same.
    sqlite_autoincrement=True,
)

# Reports that came with an id: which entry was made for them. Free answers have none, so ids alone
# do not make the ledger grow. (Before revision 0002 they had: then `own` is false.)
receipts = Table(
    "receipts",
    metadata,
    _user(primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # a keyed hash of the device and the id
    Column("entry_at_s", Double),  # NULL: nothing
    Column("at_s", Double, nullable=False),
    Column("own", Boolean, nullable=False),
    Column("made_s", Double, nullable=False, index=True),
)

# Where releases are forwarded to.
destinations = Table(
    "destinations",
    metadata,
    Column("id", Integer, primary_key=True),
    _user(index=True),
    Column("format", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),  # address and credentials
    Column("created_s", Double, nullable=False),
    Column("leased_until_s", Double, nullable=False),  # by the process that delivers just now
    Column("tries", Integer, nullable=False),  # failed ones since the last success
    Column("next_try_s", Double, nullable=False),
    Column("trouble", Text),  # why the last try failed, in our own words
    sqlite_autoincrement=True,
)

# Releases to be delivered, in the order of their numbers.
outbox = Table(
    "outbox",
    metadata,
    Column("id", _NUMBER, primary_key=True),
    Column(
        "destination_id",
        Integer,
        ForeignKey("destinations.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("at_s", Double, nullable=False),
    Column("lat", Double, nullable=False),
    Column("lon", Double, nullable=False),
    Column("accuracy_m", Double, nullable=False),
    Column("device", Text, nullable=False),
    Column("tid", Text),
    Index(None, "destination_id", "id"),
    sqlite_autoincrement=True,
)

# How many points a device sent per day. Statistics: not durable to the last point.
counts = Table(
    "counts",
    metadata,
    _user(primary_key=True),
    Column("device", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("points", BigInteger, nullable=False),
)

# Deleted users, as keyed hashes of their names: a name never gets a second budget.
removed = Table(
    "removed",
    metadata,
    Column("name_key", LargeBinary, primary_key=True),
    Column("removed_s", Double, nullable=False),
)

# Jobs that pay from the budgets of users, beside their reports.
jobs = Table(
    "jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("mechanism", Text, nullable=False),  # its fingerprint
    Column("created_s", Double, nullable=False),
    Column("settled_s", Double),  # NULL: it may still release what it has reserved
    Column("digest", LargeBinary),  # of what it has released, if it can be computed again
)

# What a job may spend, and has spent, of a user's window.
reservations = Table(
    "reservations",
    metadata,
    _user(primary_key=True),
    # In this order in the key: a report looks for the windows of a user from one on.
    Column("window", BigInteger, primary_key=True, autoincrement=False),  # 0: one for ever
    Column("job", Text, ForeignKey("jobs.name", ondelete="CASCADE"), primary_key=True, index=True),
    Column("policy_id", Integer, nullable=False),
    Column("reserved", Double, nullable=False),
    Column("spent", Double, nullable=False, server_default="0"),  # counts once the job is settled
)

# Numbers of deleted entries stay used, so the ledger remembers the highest of them.
raise_forgotten = (
    ledger.update()
    .where(ledger.c.forgotten < bindparam("number"))
    .values(forgotten=bindparam("number"))
)
