"""The database of the ledger: SQLite in a file, or PostgreSQL. Their differences end here."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text

from hereish.errors import HereishError, ParameterError
from hereish.gateway.ledger.high_water_mark import LedgerRestoredError
from hereish.gateway.ledger.models import NO_ENTRY, EntryRef

POOL = 8
_WAIT_S = 10
_UPGRADE_LOCK = 0x68657265  # any number, the same in all processes


class LedgerUnavailableError(HereishError):
    """The database cannot be used just now. Nothing was released.

    `lost`: the connection broke, so that another one may succeed.
    """

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


class Database:
    """An engine, and how to begin a transaction that writes."""

    def __init__(self, url: str, *, pool: int = POOL) -> None:
        self.engine = _engine(url, pool)
        self.dialect = self.engine.dialect.name
        self.sqlite = self.dialect == "sqlite"
        self.on_connect: Callable[[Any], None] | None = None
        self._writer = threading.Lock()
        self._file = Path(self.engine.url.database or "") if self.sqlite else None
        self._inode: int | None = None
        event.listen(self.engine, "connect", self._connected)
        if self.sqlite:
            event.listen(self.engine, "begin", _begin)

    def _connected(self, connection: Any, _: Any) -> None:
        if self.sqlite:
            _prepare_sqlite(connection)
            self._inode = self._inode or self._inode_now()
            self.refuse_replaced_file()
        if self.on_connect is not None:
            self.on_connect(connection)

    def _inode_now(self) -> int | None:
        try:
            return self._file.stat().st_ino if self._file else None
        except OSError:
            return None

    def refuse_replaced_file(self) -> None:
        """Refuse another file in the place of the one that is open: SQLite would mix them."""
        if self._inode is not None and self._inode != self._inode_now():
            raise LedgerRestoredError(
                "another file was put in the ledger's place while it was open. Stop the gateway, "
                "put a whole backup there without files -wal and -shm, and start it again"
            )

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that may write; it is durable when this ends without an error."""
        if not self.sqlite:
            with _translate_errors(), self.engine.begin() as connection:  # [L1]
                yield connection
            return
        # SQLite has one writer at a time. Threads queue here, where waiting is cheap and fair;
        # among processes SQLite itself waits.
        with self._writer:
            self.refuse_replaced_file()
            with (
                _translate_errors(),
                self.engine.connect().execution_options(hereish_writes=True) as connection,
                connection.begin(),
            ):
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with _translate_errors(), self.engine.connect() as connection:
            yield connection

    def check_connection(self) -> None:
        """Connect, or raise why not: for the operator, so with the driver's own message."""
        if self._file is not None:
            _create_file(self._file)
        try:
            self.engine.connect().close()
        except exc.DBAPIError as wrong:
            where = self.engine.url.render_as_string(hide_password=True)
            why = str(wrong.orig).strip().splitlines()[0]
            raise LedgerUnavailableError(f"cannot open the ledger {where}: {why}") from None

    def upgrade(self) -> None:
        """Create the tables, or migrate those of an earlier version."""
        config = Config()
        config.set_main_option("script_location", "hereish.gateway.ledger:migrations")
        with self.writing() as connection:
            self.lock_ledger(connection)
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError:
                raise ParameterError(
                    "the ledger was made by a newer hereish than this one; install that or newer"
                ) from None

    def lock_ledger(self, tx: Connection) -> None:
        """Keep other processes out until the transaction ends; SQLite does so by itself."""
        if not self.sqlite:
            tx.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _UPGRADE_LOCK})

    def take_number(self, tx: Connection) -> int:
        """The next number of the entries, which no entry will have then."""
        if not self.sqlite:
            return int(tx.execute(text("SELECT nextval('entries_id_seq')")).scalar_one())
        count = text(
            "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'entries' RETURNING seq"
        )
        number = tx.execute(count).scalar()
        if number is None:
            tx.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES ('entries', 1)"))
            return 1
        return int(number)

    def take_payment_number(self, tx: Connection) -> int:
        """The same, stored as the highest that the payment of a job, or a policy that may cost
        more than the one before it, took. The mark is to be raised to it after the commit.
        """
        number = self.take_number(tx)
        # Another job may have taken a later number and been quicker: it never falls.
        raised = text("UPDATE ledger SET job_number = :number WHERE job_number < :number")
        tx.execute(raised, {"number": number})
        return number

    def truncate_wal(self) -> None:
        """Checkpoint SQLite's write-ahead log and empty it: it holds what was deleted.

        Raises LedgerUnavailableError if others read or write all the time.
        """
        if self.sqlite:
            self._run_outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")

    def vacuum(self) -> None:
        """Have SQLite rewrite the file from its rows, and empty the log.

        Pages that were split or merged may hold what was deleted since. Others wait meanwhile.
        """
        if self.sqlite:
            self._run_outside_transaction("VACUUM")
            self.truncate_wal()

    def _run_outside_transaction(self, statement: str) -> None:
        """Run a statement that cannot be in a transaction."""
        with (
            self._writer,
            _translate_errors(),
            closing(self.engine.raw_connection()) as connection,
            closing(connection.cursor()) as cursor,
        ):
            try:
                rows = cursor.execute(statement).fetchall()
            except sqlite3.OperationalError:
                rows = [(1,)]
        if rows and rows[0][0]:  # busy, says the checkpoint
            raise LedgerUnavailableError(
                "it is deleted from the ledger, but the files may still hold it, since others use "
                "them all the time; stop the gateway and call this again"
            )

    def close(self) -> None:
        self.engine.dispose()


# The highest number that an entry ever had, and the highest that was committed.
LAST_NUMBER = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = 'entries'",
    # Not of the sequence: its value is not part of a transaction. A dump has one that is newer than
    # its tables, and a standby or a recovery one that is up to 32 ahead of them.
    "postgresql": "SELECT greatest(max(entries.id), "
    "(SELECT greatest(forgotten, job_number) FROM ledger)) FROM entries",
}
_COMMITTED = "SELECT id, made_s FROM entries ORDER BY id DESC LIMIT 1"
_ERA = "SELECT era, job_number FROM ledger"


class LedgerProgress(NamedTuple):
    """How far a ledger has come."""

    last: int  # the highest number that an entry ever had
    committed: EntryRef  # the newest entry there is
    era: str  # "" before there is one
    job_number: int  # the highest that the payment of a job, or a dearer policy, took


def read_progress(connection: Any, dialect: str) -> LedgerProgress:
    """How far the ledger has come, over a connection of SQLAlchemy or of the driver itself."""
    queries = (LAST_NUMBER[dialect], _COMMITTED, _ERA)
    if isinstance(connection, Connection):
        rows = [connection.exec_driver_sql(query).first() for query in queries]
    else:
        with closing(connection.cursor()) as cursor:
            rows = [_fetch_first(cursor, query) for query in queries]
    last, newest, about = rows
    committed = EntryRef(*newest) if newest else NO_ENTRY
    era, job_number = about or ("", 0)
    return LedgerProgress(int((last and last[0]) or 0), committed, era, int(job_number))


def _fetch_first(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()


def _create_file(path: Path) -> None:
    """Create the file, readable by its owner alone, or raise what is in the way."""
    if not path.parent.is_dir():
        raise ParameterError(
            f"the folder {path.parent} of the ledger does not exist; make it, or give another "
            "--database"
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as wrong:
        raise ParameterError(
            f"the ledger {path} cannot be written ({wrong.strerror}); see to its permissions, or "
            "give another --database"
        ) from None


def _engine(url: str, pool: int) -> Engine:
    try:
        parsed = make_url(url)
        driver = parsed.drivername
        if driver not in ("sqlite", "postgresql+psycopg"):
            raise exc.ArgumentError
        settings: dict[str, Any] = {"hide_parameters": True}  # they may be keys and names
        if driver == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise ParameterError("the ledger must be a file, such as sqlite:////path/ledger.db")
            settings["connect_args"] = {"check_same_thread": False, "timeout": _WAIT_S}
            settings["pool_size"], settings["max_overflow"] = pool, 64
        else:
            settings["connect_args"] = {
                "connect_timeout": _WAIT_S,
                # Nobody waits for ever, and nobody is waited for for ever.
                "options": f"-c lock_timeout={_WAIT_S}s -c statement_timeout={3 * _WAIT_S}s "
                f"-c idle_in_transaction_session_timeout={3 * _WAIT_S}s",
            }
            settings["pool_size"], settings["max_overflow"] = pool, 0
            settings["pool_timeout"] = _WAIT_S
        return create_engine(parsed, **settings)
    except (exc.ArgumentError, exc.NoSuchModuleError):
        raise ParameterError(
            "the database must be a path, sqlite:////path/ledger.db or "
            "postgresql+psycopg://user@host/name (with +psycopg); found something else"
        ) from None
    except ImportError:
        raise ParameterError("the gateway needs more: pip install 'hereish[gateway]'") from None


def _prepare_sqlite(connection: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say so, in _begin
    pragmas = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")
    # What is deleted or replaced is overwritten, not only unlinked.
    for pragma in (*pragmas, "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("hereish_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Driver errors with our own messages: the driver's may hold values."""
    try:
        yield
    except exc.DBAPIError as wrong:
        kind = type(wrong.orig).__name__
        raise LedgerUnavailableError(
            f"the ledger cannot be used just now ({kind})", lost=wrong.connection_invalidated
        ) from None
    except exc.TimeoutError:
        raise LedgerUnavailableError("the ledger cannot be used just now (all are busy)") from None
