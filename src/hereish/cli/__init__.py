"""The `hereish` command: thin over the library, one file per command.

Commands are imported only when they are run, so that `hereish --help` is quick.
"""

from __future__ import annotations

import errno
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

# Exit codes; 143 after SIGTERM.
DONE, FAILED, USAGE_ERROR, REFUTED, DEFECT, INTERRUPTED = 0, 1, 2, 3, 70, 130
GROUPS = {
    "Files": {
        "sanitize": "traces in, sanitised traces out",
        "show": "true and reported traces on a page for their owner",
        "attack": "what an observer learns from released files",
        "sample": "a made-up day to try things on",
    },
    "Settings": {
        "plan": "what a setting means, before it is used",
        "tune": "settings that suit people like those in your data",
        "learn": "a mobility model of public traces",
    },
    "Gateway": {
        "serve": "the gateway: a phone in, a private place out",
        "user": "who may use the gateway, and with which policy",
        "token": "credentials of devices",
        "forward": "destinations of releases",
        "ledger": "maintenance of the gateway's ledger",
    },
    "Research": {
        "evaluate": "the paper's case study on your data",
        "audit": "whether the promise holds, seen from outside",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
SPELLINGS = {"sanitise": "sanitize"}  # accepted, and in no list
_FULL = (
    "no space left, on the disk of the output or on that of temporary files (TMPDIR): free some, "
    "or name another with -o or TMPDIR"
)
EXAMPLES = """\b
Examples:
  hereish plan --accuracy 3km
  hereish sample -o day.gpx
  hereish sanitize day.gpx -o public.gpx --accuracy 3km
  hereish show day.gpx public.gpx -o page.html

\b
Exit codes: 0 done, 1 the data or the disk did not allow it, 2 a usage error, 3 an audit refuted
the claim, 70 a defect of hereish, 130 interrupted, 143 terminated.

\b
Completion: eval "$(_HEREISH_COMPLETE=bash_source hereish)" in bash; zsh and fish likewise.
"""


def main() -> None:
    """The entry point; it says what to install if click is missing."""
    try:
        import click
    except ImportError:
        sys.stderr.write("the command line needs click: pip install 'hereish[cli]'\n")
        raise SystemExit(USAGE_ERROR) from None
    from hereish.errors import HereishError, ParameterError

    warnings.showwarning = _print_warning
    try:
        code = group().main(prog_name="hereish", standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else DONE)
    except click.ClickException as wrong:
        wrong.show()
        raise SystemExit(wrong.exit_code) from None
    except click.Abort:
        _fail("interrupted", INTERRUPTED)
    except ParameterError as wrong:
        _fail(str(wrong), USAGE_ERROR)
    except HereishError as wrong:
        _fail(str(wrong), FAILED)
    except BrokenPipeError:  # the reader has gone
        sys.stdout = None
        raise SystemExit(FAILED) from None
    except OSError as wrong:
        if wrong.errno == errno.ENOSPC:
            _fail(_FULL, FAILED)
        where = f": {wrong.filename}" if wrong.filename else ""
        _fail(f"{wrong.strerror or type(wrong).__name__}{where}", FAILED)
    except MemoryError:
        _fail("not enough memory", FAILED)
    except Exception as defect:  # noqa: BLE001  # its message may contain a place and is not shown
        _fail(_describe_defect(defect), DEFECT)


def group() -> Any:
    """The command with all its subcommands, each imported when it is run."""
    import click

    class LazyGroup(click.Group):
        """Lists commands by their one-line help and imports the one that is run."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            name = SPELLINGS.get(cmd_name, cmd_name)
            if name not in COMMANDS:
                return None
            command = import_module(f"hereish.cli.{name}").command
            return command if isinstance(command, click.Command) else None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            for title, commands in GROUPS.items():
                with formatter.section(title):
                    formatter.write_dl(list(commands.items()))

    lazy = LazyGroup(
        name="hereish",
        help="Report roughly where somebody is, within a privacy budget.",
        epilog=EXAMPLES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(package_name="hereish")(lazy)


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"hereish: {message}\n")
    raise SystemExit(code)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"hereish: note: {message}\n")


def _describe_defect(defect: Exception) -> str:
    last = traceback.extract_tb(defect.__traceback__)[-1]
    return (
        f"a defect of hereish ({type(defect).__name__} at {Path(last.filename).name}:"
        f"{last.lineno}); nothing was released. Please report it; its message is not shown, "
        "because it might contain a place."
    )
