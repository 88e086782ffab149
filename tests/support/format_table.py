"""Which files are read, per family of formats: tried, taken, refused and why.

python -m tests.support.format_table prints the tables of docs/files.md, of files that are made here
and of real ones where there are some, with --files each file that was not taken too; --write puts
the tables into the page.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hereish.errors import HereishError, ParameterError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import FAULT_REASONS, Fault, NoPointsError, UnreadableFileError
from hereish.traces.validate import row_faults
from tests.support.history_samples import ROWS, SAMPLES, UNIX, zipped
from tests.support.markup_samples import GPX, LATS, LINES, LONS, POINTS, released, written
from tests.support.paths import DATA, ROOT

FORMATS = DATA / "formats"
ENDINGS = (
    *(".gpx", ".csv", ".tsv", ".plt", ".kml", ".kmz", ".json", ".geojson", ".rec", ".fit", ".tcx"),
    *(".nmea", ".gpkg", ".zip"),
)
# What some reasons are in short, by how they begin.
SHORT = {
    "no column is called time": "no column of times",
    "no column is called lat": "no columns of places",
    "no column is called lon": "no columns of places",
}
FAMILIES = {
    "gpx": "GPX",
    "csv": "CSV and TSV",
    "tsv": "CSV and TSV",
    "geolife": "GeoLife",
    "geojson": "GeoJSON",
    "mfjson": "MF-JSON",
    "google": "Google's location history",
    "records": "OwnTracks, Overland, Polarsteps",
    "kml": "KML and KMZ",
    "kmz": "KML and KMZ",
    "fit": "FIT",
    "tcx": "TCX",
    "nmea": "NMEA",
    "gpkg": "GeoPackage",
    "parquet": "Parquet and GeoParquet",
    "geoparquet": "Parquet and GeoParquet",
    "tdrive": "T-Drive",
    "zip": "zip archives",
}


@dataclass
class Family:
    """What became of the files of one family."""

    taken: int = 0  # read to the end, with at least one point that can be used
    points: int = 0
    without: int = 0  # whole, and without anything to sanitise
    refused: Counter[str] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)


def try_files(folder: Path = FORMATS) -> dict[str, Family]:
    """All files of these families below a folder, each by itself."""
    families: dict[str, Family] = defaultdict(Family)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix.lower() in ENDINGS:
            _try_file(path, folder, families)
    return families


def try_samples(folder: Path) -> dict[str, Family]:
    """The samples of the tests: whole, in an archive, cut short in the middle, and empty."""
    families: dict[str, Family] = defaultdict(Family)
    for name, content in _samples().items():
        archive = zipped({name: content})
        variants = {name: content, "cut/" + name: content[: len(content) // 2], "no/" + name: b""}
        form = None  # of the whole one: without its content, a name does not tell it
        for path, data in {**variants, f"zip/{name}.zip": archive}.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(data)
            form = form or find_sources([str(folder / path)])[0].format.name
            _try_file(folder / path, folder, families, form)
    return families


def _samples() -> dict[str, bytes]:
    texts = {"day.gpx": GPX, "points.geojson": POINTS, "lines.geojson": LINES}
    tables = {
        f"ours.{form}": written(form, ROWS) for form in ("csv", "parquet", "geoparquet", "gpx")
    }
    single = released([unix * 1_000_000 for unix in UNIX], LATS, LONS)
    taxi = {"7.txt": written("tdrive", single), "walk.plt": written("geolife", single)}
    histories = {name: content for name, (content, _) in SAMPLES.items()}
    return {name: text.encode() for name, text in texts.items()} | tables | taxi | histories


def _try_file(
    path: Path, folder: Path, families: dict[str, Family], form: str | None = None
) -> None:
    try:
        sources = find_sources([str(path)])
    except ParameterError as error:
        families["zip archives"].refused[_reason(error, path)] += 1
        return
    form = form or sources[0].format.name
    family = families[FAMILIES.get(form, form)]
    points, bad = 0, Counter[int]()
    problem: HereishError | None = None
    for source in sources:
        try:
            for batch in source.format.read(source, Columns()):
                fault = row_faults(batch)
                points += int((fault == 0).sum())
                bad.update(fault[fault != 0].tolist())
        except HereishError as error:
            problem = error
    family.points += points
    if isinstance(problem, NoPointsError):
        family.without += 1
    elif problem is not None or bad or not points:
        reason = _reason(problem, path) if problem else _fault_reason(points, bad)
        family.refused[reason] += 1
    else:
        family.taken += 1
        return
    note = problem.reason if isinstance(problem, UnreadableFileError) else problem
    family.files.append(f"{path.relative_to(folder)}: {note} ({points} good, {bad.total()} bad)")


def _reason(error: Exception | None, path: Path) -> str:
    text = error.reason if isinstance(error, UnreadableFileError) else str(error)
    text = text.removeprefix(f"{path}: ").split("; ")[0].split(": ")[0]
    return next((short for begin, short in SHORT.items() if text.startswith(begin)), text)


def _fault_reason(points: int, bad: Counter[int]) -> str:
    if not bad:
        return "no points at all"
    return f"{'some' if points else 'all'} points: {FAULT_REASONS[Fault(bad.most_common(1)[0][0])]}"


REAL, MADE = "family", "family, made here"


def table_lines(families: dict[str, Family], head: str = REAL) -> Iterator[str]:
    """The table as Markdown."""
    yield f"| {head} | files | taken | points | nothing in it | refused | why |"
    yield "|---|---|---|---|---|---|---|"
    for name in sorted(families):
        one = families[name]
        refused = sum(one.refused.values())
        why = "; ".join(f"{reason} ({count})" for reason, count in sorted(one.refused.items()))
        tried = one.taken + one.without + refused
        counts = (tried, one.taken, f"{one.points:,}", one.without, refused)
        yield f"| {name} | {' | '.join(map(str, counts))} | {why} |".replace("  ", " ")


def write_table(lines: Sequence[str]) -> None:
    """In place of the table that is on the page."""
    page = ROOT / "docs" / "files.md"
    table = re.compile(rf"^{re.escape(lines[0])}\n(?:\|.*\n)+", re.MULTILINE)
    text, count = table.subn(lambda _: "\n".join(lines) + "\n", page.read_text("utf-8"))
    if count != 1:
        raise LookupError("docs/files.md has no such table")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        tables = [(MADE, try_samples(Path(place))), (REAL, try_files())]
    for head, found in tables:
        lines = list(table_lines(found, head))
        print("\n".join(lines), "\n")  # noqa: T201  # a program of its own
        if "--write" in sys.argv and found:
            write_table(lines)
        if "--files" not in sys.argv:
            continue
        for name in sorted(found):
            print(f"\n{name}", *found[name].files, sep="\n  ")  # noqa: T201
