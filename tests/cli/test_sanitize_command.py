"""`hereish sanitize` as people type it."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.terminal import PROGRAM, Terminal, in_a_process


@pytest.fixture
def city(tmp_path: Path, hereish: Terminal) -> Path:
    path = tmp_path / "city.csv"
    assert hereish("sample", "-o", path, "--users", 3).code == 0
    return path


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_summary_says_what_was_done_and_promised(hereish: Terminal, city: Path) -> None:
    done = hereish("sanitize", city, "-o", city.with_name("out.csv"), "--accuracy", "3km")
    assert done.code == 0
    assert done.err == ""
    for words in ("3 traces of 3 users, from 1 file", "hard", "easy", "untested", "refused"):
        assert words in done.out
    assert "nine out of ten within" in done.out
    assert "For each user, the reports of each day (UTC): whatever" in done.out
    raw = city.with_name("out.csv").read_text()
    assert "nine out of ten" not in raw  # it depends on the truth


def test_several_budgets_hold_at_once(hereish: Terminal, city: Path) -> None:
    out = city.with_name("out.csv")
    budgets = ("--budget", "ln 4/30d", "--budget", "ln 10/24h", "--budget", "ln 5/forever")
    done = hereish("sanitize", city, "-o", out, *budgets, "--accuracy", "3km")
    assert done.code == 0
    assert (
        "For each user, the reports of any 24 hours: whatever is released is at most 10 "
        in done.out
    )
    assert "for the reports of any 30 days, at most 4 times; for all reports together" in done.out
    spent: dict[str, float] = {}
    for row in table(out.read_text()):
        spent[row["user"]] = spent.get(row["user"], 0.0) + float(row["cost"])
    assert len(spent) == 3
    assert 0.5 < max(spent.values()) * 100.0 / math.log(4) <= 1.0 + 1e-9


def test_the_summary_for_programs_counts_every_point(hereish: Terminal, city: Path) -> None:
    out = city.with_name("out.csv")
    done = hereish("sanitize", city, "-o", out, "--accuracy", "3km", "--json")
    numbers = json.loads(done.out)
    kinds = [row["kind"] for row in table(out.read_text())]
    for kind in ("hard", "easy", "untested"):
        assert numbers[kind] == kinds.count(kind)
    assert numbers["points"] == len(kinds) + numbers["refused"]
    assert numbers["points"] == len(table(city.read_text()))
    assert numbers["displacement_mean_m"] < numbers["displacement_p90_m"]
    assert numbers["guarantee"].startswith("For each user, the reports of each day (UTC)")


def test_standard_input_and_output_carry_csv_and_nothing_else(
    hereish: Terminal, city: Path
) -> None:
    done = hereish("sanitize", "-", "-o", "-", "--accuracy", "3km", stdin=city.read_text())
    assert done.code == 0
    rows = table(done.out)
    assert list(rows[0]) == ["user", "time", "lat", "lon", "kind", "cost"]
    assert "For each user, the reports of each day" in done.err
    bad = city.read_text() + "person 1,2026-01-01T00:00:00Z,400,24\n"
    failed = hereish("sanitize", "-", "-o", "-", "--accuracy", "3km", stdin=bad)
    assert failed.code == 1
    assert failed.out == ""  # not even the good rows: it is all or nothing
    assert "standard input, line" in failed.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--mechanism", "independent"), "give either an accuracy (--accuracy 3km"),
        (("--accuracy", "3km", "--reports", "30"), "(--reports 30), found both"),
        (("--accuracy", "3"), "'3' has no unit"),
        (("--accuracy", "3km", "--radius", "100"), "'100' has no unit"),
        (("--accuracy", "3km", "--every", "5"), "'5' has no unit"),
        (("--accuracy", "3km", "--skip-speed", "30"), "'30' has no unit"),
        (("--accuracy", "3km", "--time-zone", "Mars/Base"), "IANA name"),
        (("--accuracy", "3km", "--level", "lots"), "a level is a number"),
        (("--accuracy", "3km", "--mechanism", "independent", "--skip-speed", "3km/h"), "has none"),
        (("--accuracy", "10m"), "ask for"),
        (("--accuracy", "3km", "--window", "week"), "'week' is not one of"),
        (("--accuracy", "3km", "--lat", "phi"), "there is no column 'phi'; found 'user'"),
        (("--accuracy", "3km", "--keep", "speed"), "speed"),
        (("--accuracy", "3km", "--format", "gpx"), "line 1"),
    ],
)
def test_a_usage_error_is_explained_and_nothing_is_written(
    hereish: Terminal, city: Path, args: tuple[str, ...], words: str
) -> None:
    done = hereish("sanitize", city, "-o", city.with_name("out.csv"), *args)
    assert done.code in (1, 2)
    assert words in done.err
    assert "Traceback" not in done.err
    assert {path.name for path in city.parent.iterdir()} == {"city.csv"}


def test_names_that_tell_nothing(hereish: Terminal, city: Path) -> None:
    strange = city.rename(city.with_name("city.dat"))
    done = hereish("sanitize", strange, "-o", strange.with_name("o.csv"), "--accuracy", "3km")
    assert (done.code, "give --format" in done.err) == (2, True)
    out = strange.with_name("out.dat")
    done = hereish("sanitize", strange, "-o", out, "--accuracy", "3km", "--format", "csv")
    assert done.code == 0
    assert out.read_text().startswith("user,time")
    out = strange.with_name("out.strange")
    args = ("--accuracy", "3km", "--format", "csv", "--to", "gpx")
    assert hereish("sanitize", strange, "-o", out, *args).code == 0
    assert out.read_text().startswith("<?xml")
    missing = hereish("sanitize", "nowhere.gpx", "-o", out, "--accuracy", "3km")
    assert (missing.code, "no file or folder nowhere.gpx" in missing.err) == (2, True)


def test_a_dense_log_is_told_about_thinning(hereish: Terminal, tmp_path: Path) -> None:
    log, out = tmp_path / "log.gpx", tmp_path / "out.gpx"
    hereish("sample", "-o", log, "--points", 2000)
    done = hereish("sanitize", log, "-o", out, "--accuracy", "3km")
    assert "--every 5min takes fewer points" in done.out
    done = hereish("sanitize", log, "-o", out, "--accuracy", "3km", "--every", "1h")
    assert "takes fewer points" not in done.out
    assert "thinned" in done.out
    assert "has been replaced" in done.out
    assert "--every" in hereish("sanitize", "--help").out


def test_a_seed_is_not_private_and_says_so(hereish: Terminal, city: Path) -> None:
    outs = []
    for name in ("a.csv", "b.csv"):
        out = city.with_name(name)
        done = hereish("sanitize", city, "-o", out, "--reports", 30, "--seed", 4, "--quiet")
        assert done.out == ""
        assert "NOT PRIVATE" in done.err
        about = json.loads(out.with_name(f"{name}-metadata.json").read_text())
        assert about["dc:description"].startswith("NOT PRIVATE")
        outs.append(out.read_text())
    assert outs[0] == outs[1]
    secure = city.with_name("c.csv")
    assert hereish("sanitize", city, "-o", secure, "--reports", 30, "--quiet").err == ""
    assert secure.read_text() != outs[0]


def test_bad_rows_name_file_and_line_and_can_be_dropped(hereish: Terminal, city: Path) -> None:
    lines = city.read_text().splitlines()
    lines[4] = lines[4].replace("60.", "400.")
    lines.insert(9, lines[8])
    city.write_text("\n".join(lines))
    out = city.with_name("out.csv")
    done = hereish("sanitize", city, "-o", out, "--accuracy", "3km")
    assert done.code == 1
    assert f"{city}, line 5: its latitude is outside -90 to 90" in done.err
    assert "400." not in done.err
    done = hereish("sanitize", city, "-o", out, "--accuracy", "3km", "--drop-bad")
    assert done.code == 0
    assert "bad" in done.out
    assert "1  its latitude is outside" in done.out
    assert "1  its time is the same" in done.out


@pytest.mark.parametrize("window", ["none", "day", "trace"])
def test_no_budget_is_passed_in_any_window(hereish: Terminal, city: Path, window: str) -> None:
    out = city.with_name("out.csv")
    args = ("--accuracy", "1km", "--window", window, "--time-zone", "Europe/Helsinki")
    assert hereish("sanitize", city, "-o", out, *args).code == 0
    spent: dict[str, float] = {}
    for row in table(out.read_text()):
        spent[row["user"]] = spent.get(row["user"], 0.0) + float(row["cost"])
    assert len(spent) == 3
    assert 0.5 * math.log(10) / 100 < max(spent.values()) <= math.log(10) / 100


def test_prediction_goes_on_when_the_budget_is_spent(hereish: Terminal, city: Path) -> None:
    out = city.with_name("out.csv")
    args = ("--accuracy", "1km", "--on-exhausted", "predict", "--json")
    numbers = json.loads(hereish("sanitize", city, "-o", out, *args).out)
    assert numbers["refused"] == 0
    assert numbers["untested"] > 0


def test_skipping_spares_tests(hereish: Terminal, city: Path) -> None:
    args = ("sanitize", city, "-o", city.with_name("out.csv"), "--accuracy", "3km", "--json")
    assert json.loads(hereish(*args).out)["untested"] == 0
    assert json.loads(hereish(*args, "--skip-speed", "30km/h").out)["untested"] > 0


def test_independent_noise_is_always_hard(hereish: Terminal, city: Path) -> None:
    args = ("--accuracy", "3km", "--mechanism", "independent", "--json")
    numbers = json.loads(hereish("sanitize", city, "-o", city.with_name("o.csv"), *args).out)
    assert (numbers["easy"], numbers["untested"], numbers["hard"]) == (0, 0, 17 * 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: int) -> None:
    # Standard input that never ends, so that it is in the middle of it for sure.
    out = tmp_path / "out.csv"
    with subprocess.Popen(  # noqa: S603  # our own program
        [*PROGRAM, "sanitize", "-", "-o", str(out), "--accuracy", "3km"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write("user,time,lat,lon\na,2026-05-05T12:00:00Z,60.0,25.0\n")
        running.stdin.flush()
        _wait_until_asleep(running.pid)
        running.send_signal(number)
        code = running.wait(timeout=60)
        err = running.stderr.read()
        running.stdin.close()
    assert code == 128 + number
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def _wait_until_asleep(pid: int) -> None:
    """Until the process waits for more input, and not just for its imports."""
    deadline, told = time.monotonic() + 60, False
    while time.monotonic() < deadline:
        try:
            # Of any of its threads: one may read for the others.
            where = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/wchan")]
            modules = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            pytest.skip("this system does not tell what a process waits for")
        told = told or bool(set(where) - {"0"})
        if any("pipe" in one for one in where) and "multiarray" in modules:
            return
        time.sleep(0.05)
    if told:
        pytest.fail("the process never waits for its input")
    pytest.skip("this system does not tell what a process waits for")


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(tmp_path: Path) -> None:
    for i in range(6):
        in_a_process("sample", "-o", tmp_path / f"{i}.csv", "--points", 2000, "--seed", i)
    program = (
        "import hereish.cli._progress as p; p._SHORT_S = 0.0; p._LINE_EVERY_S = 0.0\n"
        "from hereish.cli import main; main()"
    )
    words = [sys.executable, "-c", program, "sanitize", str(tmp_path / "*.csv"), "-o"]
    words += [str(tmp_path / "out.parquet"), "--accuracy", "3km", "--drop-bad", "--jobs", "1"]
    plain = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603  # ours
    assert "points/s" in plain.stderr
    assert "left" in plain.stderr
    assert "\r" not in plain.stderr
    master, slave = pty.openpty()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=slave) as running:  # noqa: S603  # ours
        os.close(slave)
        shown = b""
        while chunk := _read(master):
            shown += chunk
        assert running.wait() == 0
    assert b"\r" in shown
    assert b"B/s" in shown
    assert b"<" in shown  # the time left


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # a terminal that was closed
        return b""


def test_a_small_gpx_needs_no_arrow_and_no_pandas(tmp_path: Path) -> None:
    in_a_process("sample", "-o", tmp_path / "day.gpx")
    program = (
        "import sys\n"
        "from hereish.cli import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    heavy = {'pyarrow', 'pandas', 'narwhals', 'tqdm', 'plotly', 'matplotlib'}\n"
        "    print(sorted(heavy & set(sys.modules)))"
    )
    args = ["sanitize", str(tmp_path / "day.gpx"), "-o", str(tmp_path / "o.gpx"), "--quiet"]
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program, *args, "--accuracy", "3km"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_defect_is_reported_without_its_message(
    hereish: Terminal, city: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("could not convert 60.123456")

    monkeypatch.setattr("hereish.cli.sanitize.sanitize_files", broken)
    done = hereish("sanitize", city, "-o", city.with_name("out.csv"), "--accuracy", "3km")
    assert done.code == 70
    assert "a defect of hereish (ValueError at test_sanitize_command.py" in done.err
    assert "60.1" not in done.err


def test_help_is_grouped_and_has_examples(hereish: Terminal) -> None:
    top = hereish("--help").out
    for words in ("Files:", "Settings:", "Examples:", "Exit codes:", "Completion:"):
        assert words in top
    for command in ("sanitize", "plan", "show", "sample"):
        done = hereish(command, "--help")
        assert done.code == 0
        assert "Examples:" in done.out
        assert f"hereish {command}" in done.out.split("Examples:")[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    source = subprocess.run(  # noqa: S603  # our own program
        PROGRAM,
        env={**os.environ, "_HEREISH_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_HEREISH_COMPLETE" in source.stdout
    if shell != "fish":  # fish passes what is typed in another way
        asked = {"COMP_WORDS": "hereish sanitize --wi", "COMP_CWORD": "2"}
        done = subprocess.run(  # noqa: S603  # our own program
            PROGRAM,
            env={**os.environ, "_HEREISH_COMPLETE": f"{shell}_complete", **asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "--window" in done.stdout


def test_the_order_of_rows_and_files_is_public_unless_the_input_s_is_asked_for(
    hereish: Terminal, tmp_path: Path
) -> None:
    rows = ["b,2025-06-03T08:00:00Z,60.1,25", "a,2025-06-03T09:00:00Z,60.2,25"]
    rows += ["b,2025-06-03T07:00:00Z,60.3,25", "a,2025-06-03T10:00:00Z,60.4,25"]
    source = tmp_path / "in.csv"
    source.write_text("\n".join(["user,time,lat,lon", *rows]) + "\n")
    args = ["sanitize", str(source), "--accuracy", "3km", "--quiet", "-o"]

    def written(name: str) -> list[str]:
        lines = (tmp_path / name).read_text().splitlines()[1:]
        return [line[:15].replace(",2025-06-03T", " ") for line in lines]

    assert hereish(*args, str(tmp_path / "public.csv")).code == 0
    assert written("public.csv") == ["a 09", "a 10", "b 07", "b 08"]
    assert hereish(*args, str(tmp_path / "input.csv"), "--order", "input").code == 0
    assert written("input.csv") == ["b 08", "a 09", "b 07", "a 10"]
    for name, said in (("public", False), ("input", True)):
        told = (tmp_path / f"{name}.csv-metadata.json").read_text()
        assert ("in the order of the input, which this does not cover" in told) is said
    split = ["--to", "csv", "--split-by", "user"]
    assert hereish(*args, str(tmp_path / "users"), *split).code == 0
    assert sorted(p.name for p in (tmp_path / "users").glob("*.csv")) == ["a.csv", "b.csv"]
    assert written("users/b.csv") == ["b 07", "b 08"]
    refused = hereish(*args, str(tmp_path / "one.csv"), "--split-by", "user")
    assert refused.code == 2
    assert "needs a folder" in refused.err
