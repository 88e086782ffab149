"""What commands warn of: on standard error, and the exit status stays what it was."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hereish.cli import serve
from hereish.cli._command_lines import format_command, options_on_command_line
from hereish.core.settings import MechanismSettings
from hereish.evaluation import settings_file
from tests.support.terminal import Done, Terminal

WEAK = "hereish: warning: level "
SHORT = "hereish: warning: a window of "


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(hereish: Terminal, command: str, *said: str) -> Done:
    """One of the commands that take a level, with these options."""
    if command == "sanitize":
        assert hereish("sample", "-o", "day.csv").code == 0
        return hereish("sanitize", "day.csv", "-o", "out.csv", *said)
    if command == "user policy":
        assert hereish("user", "add", "alice", "--accuracy", "3km").code == 0
    name = () if command == "plan" else ("alice",)
    return hereish(*command.split(), *name, *said)


COMMANDS = ("plan", "sanitize", "user add", "user policy")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_level_above_ln_100_is_warned_of(hereish: Terminal, command: str) -> None:
    done = asked(hereish, command, "--accuracy", "3km", "--level", "ln 1000", "--radius", "150m")
    assert done.code == 0, done.err
    assert done.err.count(WEAK) == 1
    assert "1000 to 1" in done.err
    assert "150 m" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_level_of_ln_100_is_not(hereish: Terminal, command: str) -> None:
    done = asked(hereish, command, "--accuracy", "3km", "--level", "ln 100")
    assert done.code == 0, done.err
    assert "warning" not in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_level_of_a_file_of_settings_counts_too(hereish: Terminal, command: str) -> None:
    weak = MechanismSettings(math.log(500), 100.0, 2500.0, eta=0.3, gamma=1.5, prediction_rate=0.8)
    Path("weak.toml").write_text(settings_file.format_settings(weak, {}, {}))
    done = asked(hereish, command, "--settings", "weak.toml")
    assert done.code == 0, done.err
    assert done.err.count(WEAK) == 1


@pytest.mark.parametrize("command", ["plan", "user add", "user policy"])
def test_a_window_under_an_hour_is_warned_of(hereish: Terminal, command: str) -> None:
    done = asked(hereish, command, "--accuracy", "3km", "--window", "10min")
    assert done.code == 0, done.err
    assert done.err.count(SHORT) == 1
    assert "144 budgets per day" in done.err
    done = asked(hereish, "plan", "--accuracy", "3km", "--window", "1h")
    assert "warning" not in done.err


def test_what_programs_read_stays_json(hereish: Terminal) -> None:
    done = hereish("plan", "--accuracy", "3km", "--level", "9", "--window", "5min", "--json")
    assert json.loads(done.out)
    assert WEAK in done.err
    assert SHORT in done.err


def test_hints_repeat_what_was_said_but_no_password() -> None:
    @click.command()
    @click.argument("name")
    @click.option("--database")
    @click.option("--mark", envvar="MARK")
    @click.option("--yes", is_flag=True)
    def command(name: str, **_: object) -> None:
        click.echo(format_command("user policy", [name], options_on_command_line()))

    def printed(*words: str) -> list[str]:
        done = CliRunner(env={"MARK": "m"}).invoke(command, words)
        return shlex.split(done.output)[3:]

    url = "postgresql+psycopg://me{}@db.example.org:5432/hereish"
    assert printed("a", "--database", url.format(""), "--yes") == [
        "a",
        "--database",
        url.format(""),
    ]
    assert printed("a", "--database", url.format(":hu/sh"))[-1] == url.format(":***")
    assert printed("--database", "x y", "--", "-rf") == ["--database", "x y", "--", "-rf"]


@pytest.mark.parametrize(
    ("host", "public"),
    [
        *((host, False) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost")),
        *((host, False) for host in ("::ffff:127.0.0.1",)),
        *((host, True) for host in ("0.0.0.0", "::", "192.0.2.7", "10.0.0.3", "2001:db8::1")),  # noqa: S104  # what is warned of
    ],
)
def test_an_address_that_others_can_reach_is_known(host: str, public: bool) -> None:
    told = serve.warning_if_public(host)
    assert (told is not None) == public
    if told is not None:
        assert host in told
        assert "TLS" in told
        assert "--host 127.0.0.1" in told
