"""Every error of the CSV and GPX readers says what was expected, what was found and what to do."""

from __future__ import annotations

import ast
import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hereish
from hereish.errors import HereishError, ParameterError
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_REASONS, FAULT_TEXTS, Fault
from hereish.traces.files import sanitize_files
from hereish.traces.formats._times import TimeParser
from tests.support import hostile_archives
from tests.support.history_samples import SAMPLES, zipped
from tests.support.paths import ROOT

FORMATS = ROOT / "src" / "hereish" / "traces" / "formats"
# Where the two readers can raise it.
MODULES = (
    *("_archive.py", "_arrow_csv.py", "_bytes.py", "_encodings.py", "_gpx_points.py", "_lines.py"),
    *("_part_file.py", "_table_head.py", "_text.py", "_text_parts.py", "_xml.py", "delimited.py"),
    *("gpx.py", "../discovery.py", "../faults.py"),
)
KINDS = ("UnreadableFileError", "NoPointsError")
MAKERS = ("damaged_file", "_refused", "_wrong_quotes")  # whose first argument is the reason
# Of formats that are read as a whole, and of other XML; of what takes more than content, which
# test_archives and test_unreadable_files test.
ELSEWHERE = (
    "it is larger than",
    "it is nested too deeply",
    "the system does not give it",
    "it is a broken link",
    "it is an archive of more than",
    "it has an archive inside that is too large",
)
M = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"))
HEADER = "user,time,lat,lon\n"
GOOD = "ann,2025-06-03T08:00:00Z,61.234567,24.765432\n"
PLACE = ("61.23", "24.76", "234567", "765432")
POINT = '<trkpt lat="61.234567" lon="24.765432"><time>2025-06-03T08:00:00Z</time></trkpt>'
BOMB = 70 << 20
MARK = "urn:hereish:gpx:1"


def track(points: str, before: str = "") -> str:
    return f"<gpx><trk>{before}<trkseg>{points}</trkseg></trk></gpx>"


def row(**changes: str) -> str:
    fields = {"user": "ann", "time": "2025-06-03T08:10:00Z", "lat": "61.234567", "lon": "24.765432"}
    return HEADER + GOOD + ",".join((fields | changes).values()) + "\n"


# A file for every reason why the rest of one cannot be read.
FILES: dict[str, tuple[str, str | bytes]] = {
    "it is empty": ("in.csv", ""),
    "it has a header and no rows": ("in.csv", HEADER),
    "blank lines and comments": ("in.csv", "#\n" * 100_001 + HEADER + GOOD),
    "it has numbers, so it is no header": ("in.csv", GOOD),
    "its first line has a single field": ("in.csv", "My track\nof today\n"),
    "its quotes do not fit, or one of its fields is far too long": (
        "in.csv",
        HEADER + GOOD + '"ann"x,1,2,3\n',
    ),
    "its quotes do not fit": ("in.csv", HEADER + GOOD + '"ann\n' + GOOD + 'x",1,2\n' + GOOD),
    "it is too long for a row of a table": ("in.csv", HEADER + GOOD + "a" * 2_000_000),
    "it is not text in UTF-8": ("in.csv", (HEADER + GOOD).encode() + b"\0\n"),
    "it begins as UTF-16 and goes on as something else": (
        "in.csv",
        (HEADER + GOOD).encode("utf-16") + b"x",
    ),
    "it is not a gzip file, or a damaged one": ("in.csv.gz", gzip.compress(GOOD.encode())[:-12]),
    "times its size, which is refused": (
        "in.csv.gz",
        gzip.compress((HEADER + GOOD.replace("ann", "ann" + " " * 4000) * (BOMB // 4000)).encode()),
    ),
    "none of its points has a time": ("in.gpx", track('<trkpt lat="61.234567" lon="24.765432"/>')),
    "no track points": ("in.gpx", '<gpx><wpt lat="61.234567" lon="24.765432"/></gpx>'),
    "this track has a user, and those before it have none": (
        "in.gpx",
        f'<gpx xmlns:h="{MARK}"><trk><trkseg>{POINT * 70_000}</trkseg></trk><trk><extensions>'
        f"<h:user>ann</h:user></extensions><trkseg>{POINT}</trkseg></trk></gpx>",
    ),
    "it ends too early": ("in.gpx", track(POINT)[:-20]),
    "its XML is broken": ("in.gpx", f"<gpx><trk></gpx>{POINT}"),
    "it is in an encoding that is not read": (
        "in.gpx",
        '<?xml version="1.0" encoding="shift_jis"?>' + track(POINT),
    ),
    "it declares a document type, which is refused": ("in.gpx", "<!DOCTYPE gpx>" + track(POINT)),
    "it is not GPX": ("in.gpx", "<kml/>"),
    "a tag or a comment in it is far too long": ("in.gpx", f"<gpx><!--{' ' * (3 << 20)}--></gpx>"),
    "it is not a zip archive, or a damaged one": ("in.zip", "PK"),
    "it is damaged inside its archive": ("in.zip", hostile_archives.damaged()),
    "it is an archive with several files of one name": ("in.zip", hostile_archives.repeated()),
    "it is an archive whose files overlap": ("in.zip", hostile_archives.doubled()),
    "with a file name that leads out of it": (
        "in.zip",
        hostile_archives.with_name("../../ab.gpx"),
    ),
    "characters, which is refused": ("in.zip", zipped({"d/" * 20_000 + "a.gpx": b"<gpx/>"})),
    "it is an encrypted archive": ("in.zip", hostile_archives.encrypted()),
    "by a method that is not read": ("in.zip", hostile_archives.oddly_packed()),
    "it is an archive that unpacks to more than": ("in.zip", hostile_archives.bomb()),
}
# A file for every reason why a row cannot be used. Those of frames and of order are elsewhere.
ROWS: dict[Fault, tuple[str, str]] = {
    Fault.LINE: ("in.csv", HEADER + GOOD + "ann,7\n"),
    Fault.USER: ("in.csv", row(user="")),
    Fault.TIME: ("in.csv", row(time="soon")),
    Fault.NUMBER: ("in.csv", row(time="12")),
    Fault.DAY_OR_MONTH: ("in.csv", row(time="3/6/2025 08:00")),
    Fault.ZONE_NAME: ("in.csv", row(time="2025-06-03 08:00:00 EEST")),
    Fault.NO_DATE: ("in.csv", row(time="08:00:00")),
    Fault.NO_CLOCK: ("in.csv", "date,lat,lon\n2025-06-03,61.234567,24.765432\n"),
    Fault.ZONE: ("in.csv", row(time="2025-06-03T08:10:00") + GOOD.replace("08:00", "09:00")),
    Fault.LAT: ("in.csv", row(lat="?")),
    Fault.LON: ("in.gpx", track(POINT.replace('lon="24.765432"', ""))),
    Fault.POINT: ("in.csv", "time,geom\n2025-06-03T08:10:00Z,POLYGON EMPTY\n"),
    Fault.LAT_RANGE: ("in.csv", row(lat="612.34567", lon="247.65432")),
    Fault.LON_RANGE: ("in.csv", row(lon="247.65432")),
    Fault.SWAPPED: ("in.csv", row(lat="124.765432", lon="61.234567")),
    Fault.YEAR: ("in.csv", row(time="1024-06-03T08:10:00Z")),
    Fault.JUMP: (
        "in.csv",
        (row(time="2005-06-03T08:10:00Z") + GOOD).replace("user", "trace"),
    ),
}


def said(tmp_path: Path, name: str, content: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(HereishError) as wrong:
        sanitize_files([path], tmp_path / "out.csv", M)
    assert wrong.value.__cause__ is None
    return str(wrong.value).replace(str(path), name)


def check(message: str) -> None:
    for part in ("; expected ", "nothing was released", "To lose nothing, "):
        assert part in message
    assert not [digits for digits in PLACE if digits in message]
    assert "  " not in message


@pytest.mark.parametrize("reason", FILES)
def test_a_file_that_cannot_be_read_says_what_was_expected(tmp_path: Path, reason: str) -> None:
    message = said(tmp_path, *FILES[reason])
    assert reason in message
    check(message)
    assert re.match(r"in\.(csv|csv\.gz|gpx|zip|zip: a\.gpx)(, line \d+)?: ", message)


@pytest.mark.parametrize("fault", ROWS)
def test_a_row_that_cannot_be_used_says_what_was_expected(tmp_path: Path, fault: Fault) -> None:
    message = said(tmp_path, *ROWS[fault])
    assert FAULT_REASONS[fault] in message
    assert FAULT_TEXTS[fault].expected in message
    check(message)
    has_columns = ROWS[fault][0] == "in.csv"
    assert FAULT_TEXTS[fault].remedy_in(columns=has_columns) in message
    assert re.match(r"in\.(csv|gpx), line \d+: ", message)


@pytest.mark.parametrize(
    "point",
    [
        POINT.replace("61.234567", "161.234567"),
        POINT.replace("61.234567", "161.234567").replace("24.76", "124.76"),
        POINT.replace("24.76", "224.76"),
        POINT.replace("61.234567", "north"),
        POINT.replace("24.765432", "east"),
        POINT + re.sub("<time>.*</time>", "", POINT),
    ],
)
def test_a_track_is_not_told_to_name_columns(tmp_path: Path, point: str) -> None:
    """It has none, so that the advice would change nothing."""
    message = said(tmp_path, "in.gpx", track(point))
    check(message)
    assert not re.search(r"--(lat|lon|point|coordinate-unit|date)\b|column", message)


# A file and options for every wrong choice of columns. Nothing is read then, so nothing is lost.
TWICE = "time,lat,lat,lon\n2025-06-03T08:00:00Z,61.234567,61.234567,24.765432\n"
CHOICES: list[tuple[str, str | bytes, Columns]] = [
    ("in.csv", HEADER + GOOD, Columns(lat="breadth")),
    ("in.csv", "t,time,lat,lon\n", Columns()),
    ("in.csv", "when,lat,lon\n" + GOOD, Columns()),
    ("in.csv", "day,lat,lon\n" + GOOD, Columns()),
    ("in.csv", "time,x,y\n" + GOOD, Columns()),
    ("in.csv", HEADER + GOOD, Columns(keep=("speed",))),
    ("in.csv", HEADER + GOOD, Columns(point="lat", lat="lat")),
    ("in.csv", HEADER + GOOD, Columns(trace="user")),
    ("in.csv", TWICE, Columns()),
    ("in.csv", HEADER + GOOD, Columns(time_format="%H")),
    ("in.gpkg", SAMPLES["ours.gpkg"][0], Columns(date="when")),
    ("in.gpkg", SAMPLES["ours.gpkg"][0], Columns(point="geom")),
    ("in.gpx", track(POINT), Columns(keep=("ele",))),
    ("in.gpx", track(POINT), Columns(keep=("lat",))),
]
CHOOSING = ("../columns.py", "_times.py", "_text.py", "_markup.py", "gpx.py")
REMEDY = re.compile(
    r"\b(give|say so|name each once|rename|leave out|must be one of|must differ)\b", re.I
)


def test_a_wrong_choice_of_columns_says_what_there_is_and_what_to_do(tmp_path: Path) -> None:
    messages = []
    for number, (name, content, columns) in enumerate(CHOICES):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ParameterError) as wrong:
            sanitize_files([path], tmp_path / "out.csv", M, columns=columns)
        message = str(wrong.value)
        assert REMEDY.search(message), message
        assert not [digits for digits in PLACE if digits in message]
        messages.append(message)
    messages.append(said_of_offsets())
    for module in CHOOSING:
        for parts in raised_choices(ast.parse((FORMATS / module).read_text())):
            assert any(all(part in message for part in parts) for message in messages), parts


def said_of_offsets() -> str:
    """Of a file in which times without an offset were most at first, and are not at the end."""
    parser = TimeParser()
    parser.parse("2025-06-03T08:00:00")
    parser.mark_missing_offsets(np.zeros(1, np.uint8))
    for time in ("2025-06-03T08:00:00Z",) * 3:
        parser.parse(time)
    parser.parse("2025-06-03T08:00:00")
    with pytest.raises(ParameterError) as wrong:
        parser.mark_missing_offsets(np.zeros(4, np.uint8))
    assert REMEDY.search(str(wrong.value))
    return str(wrong.value)


def raised_choices(tree: ast.Module) -> list[list[str]]:
    """The fixed words of each ParameterError in a module."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ParameterError":
            (text,) = node.args
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            found.append([str(part.value) for part in parts if isinstance(part, ast.Constant)])
    return found


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("in.csv", track(POINT), "it begins like XML: give --format gpx"),
        ("in.csv", b"\xef\xbb\xbf" + track(POINT).encode(), "it begins like XML"),
        ("in.csv", '{"locations": []}', "it begins like JSON"),
        ("in.csv", "$GPRMC,032908.379,A\n", "it begins like a receiver's sentences"),
        ("in.gpx", gzip.compress(track(POINT).encode()), "a name that ends in .gz, too"),
        ("in.gpx", b"PK\3\4....", "it begins like a zip archive"),
        ("in.gpx", '{"locations": []}', "it begins like JSON"),
    ],
)
def test_content_of_another_format_is_named(
    tmp_path: Path, name: str, content: str | bytes, hint: str
) -> None:
    message = said(tmp_path, name, content)
    assert hint in message
    assert not [digits for digits in PLACE if digits in message]


def test_no_reason_is_left_out() -> None:
    """The files above are all that the source of the readers can say."""
    reasons = [
        reason for module in MODULES for reason in raised(ast.parse((FORMATS / module).read_text()))
    ]
    assert len(reasons) > 30
    for reason in reasons:
        assert reason.startswith(ELSEWHERE) or any(
            known in reason or reason in known for known in FILES
        ), reason
    # Repeated times are left out and counted; order is that of studies.
    assert {*ROWS, Fault.NONE, Fault.TWICE, Fault.ORDER} == {*Fault}
    assert {*FAULT_TEXTS} == {*Fault} - {Fault.NONE}


def test_no_module_of_the_readers_is_left_out() -> None:
    """Whatever they import, at any depth: a new one that raises must be walked, too."""
    walked = {(FORMATS / module).resolve() for module in MODULES}
    reached = imported_by("delimited", "gpx")
    assert len(reached & walked) > 12
    for path in reached - walked:
        reasons = raised(ast.parse(path.read_text()))
        assert all(reason.startswith(ELSEWHERE) for reason in reasons), path.name


def imported_by(*readers: str) -> set[Path]:
    """Their files, and those of `hereish.traces` that they import."""
    todo = [(FORMATS / f"{name}.py").resolve() for name in readers]
    reached: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        reached.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                files = [ROOT / "src" / f"{name.replace('.', '/')}.py" for name in names]
                todo += [
                    file.resolve()
                    for file in files
                    if file.is_file() and file.is_relative_to(FORMATS.parent)
                ]
    return reached


def raised(tree: ast.Module) -> list[str]:
    """The reasons of all errors in a module; each must say what was expected and what to do."""
    found = []
    for node in ast.walk(tree):
        kind = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and kind in (*KINDS, *MAKERS):
            given = {keyword.arg for keyword in node.keywords}
            assert kind != "UnreadableFileError" or {"expected", "remedy"} <= given
            reason = node.args[0]
            if isinstance(reason, ast.Name):
                continue  # in a function that others give it to
            if isinstance(reason, ast.JoinedStr):
                fixed = [part.value for part in reason.values if isinstance(part, ast.Constant)]
                found.append("".join(map(str, fixed)).strip().removesuffix(":"))
            else:
                found.append(str(ast.literal_eval(reason)))
    return found


def test_an_error_without_them_would_be_found() -> None:
    with pytest.raises(AssertionError):
        raised(ast.parse("raise UnreadableFileError('it is odd', 3)"))


REMEDIES: dict[Fault, Callable[[Path], Columns]] = {
    Fault.NUMBER: lambda _: Columns(time_format="s"),
    Fault.DAY_OR_MONTH: lambda _: Columns(time_format="%d/%m/%Y %H:%M"),
    Fault.ZONE_NAME: lambda _: Columns(time_format="%Y-%m-%d %H:%M:%S EEST"),
}


@pytest.mark.parametrize("fault", REMEDIES)
def test_a_remedy_loses_nothing(tmp_path: Path, fault: Fault) -> None:
    """Of the bad row alone: the good one beside it is written in another way."""
    path = tmp_path / "in.csv"
    path.write_text(ROWS[fault][1].replace(GOOD, ""))
    summary = sanitize_files([path], tmp_path / "out.csv", M, columns=REMEDIES[fault](path))
    assert (summary.points, summary.bad) == (1, {})
