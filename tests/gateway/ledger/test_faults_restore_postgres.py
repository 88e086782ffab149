"""A ledger of PostgreSQL that was restored does not pay again what was paid since the backup."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.postgres import Postgres
from tests.support.restoring import (
    goes_on_after_accept,
    refuses_to_start,
    refuses_while_it_runs,
    restored,
    restoring,
)
from tests.support.stage import paths_in


class Dump:
    """A backup of one database, made and restored with PostgreSQL's own programs."""

    def __init__(self, cluster: Postgres, name: str, folder: Path) -> None:
        self._cluster, self._name, self._file = cluster, name, folder / "dump"

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(  # noqa: S603  # our own words
            [
                *(self._cluster.program(program), "-h", "127.0.0.1"),
                *("-p", str(self._cluster.port), "-U", "hereish", "-d", self._name, *words),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )

    def make(self) -> None:
        self._run("pg_dump", "-Fc", "-f", str(self._file))

    def restore_anew(self) -> None:
        """Into a new database of the same name; who was connected is cut off."""
        self._cluster.sql("postgres", f"DROP DATABASE {self._name} WITH (FORCE)")
        self._cluster.sql("postgres", f"CREATE DATABASE {self._name}")
        self._run("pg_restore", str(self._file))

    def restore_in_place(self) -> None:
        """Table by table; who is connected stays so."""
        self._run("pg_restore", "--clean", "--single-transaction", str(self._file))


def test_a_restored_database_is_refused_until_it_is_accepted(
    tmp_path: Path, cluster: Postgres
) -> None:
    where = paths_in(tmp_path, cluster.fresh("stopped"))
    dump = Dump(cluster, "stopped", tmp_path)
    with restoring(where) as run:

        def restore() -> None:
            run.stop()
            dump.restore_anew()

        restored(run, dump.make, restore)
        refuses_to_start(where)
        goes_on_after_accept(run)


def test_a_database_that_is_made_anew_under_a_running_gateway_is_refused(
    tmp_path: Path, cluster: Postgres
) -> None:
    dump = Dump(cluster, "anew", tmp_path)
    with restoring(paths_in(tmp_path, cluster.fresh("anew"))) as run:
        restored(run, dump.make, dump.restore_anew)
        refuses_while_it_runs(run)
        goes_on_after_accept(run)


def test_tables_that_are_rolled_back_under_a_running_gateway_are_refused(
    tmp_path: Path, cluster: Postgres
) -> None:
    dump = Dump(cluster, "in_place", tmp_path)
    with restoring(paths_in(tmp_path, cluster.fresh("in_place"))) as run:
        restored(run, dump.make, dump.restore_in_place)
        refuses_while_it_runs(run)
        goes_on_after_accept(run)
