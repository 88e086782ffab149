"""`hereish sample`: a made-up day in a made-up city, to try things on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from hereish import synthetic
from hereish.cli._options import Command, option, output
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.registry import recognize

EXAMPLE = """\b
Examples:
  hereish sample -o day.gpx
  hereish sample -o city.parquet --users 20
  hereish sample -o log.csv --points 5000
"""


class _Person(NamedTuple):
    name: str
    at_us: Ints
    points: Floats

    def rows(self) -> Iterator[tuple[str, float, float]]:
        times = format_utc(self.at_us)
        for time, (lat, lon) in zip(times, self.points.round(6).tolist(), strict=True):
            yield time, lat, lon


@click.command(cls=Command, epilog=EXAMPLE, short_help="a made-up day to try things on")
@output("OUT", "The end of its name decides the format.")
@option(
    "What is in it",
    "--users",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="How many people.",
)
@option(
    "What is in it",
    "--points",
    type=click.IntRange(1, 100_000),
    help="Of each person; about 35 if not given. A logger makes thousands.",
)
@option("What is in it", "--seed", type=int, default=9, show_default=True, help="For another day.")
def command(out: str, users: int, points: int | None, seed: int) -> None:
    """Write a day of made-up people: GPX, GeoJSON, CSV, Parquet, GeoLife (.plt) or T-Drive (.txt).

    Nothing in it comes from anybody's life.
    """
    day = synthetic.day(users, seed, points_each=points)
    at_us = np.floor(day.at_s).astype(np.int64) * 1_000_000
    spans = [slice(*ends) for ends in zip(day.offsets[:-1], day.offsets[1:], strict=True)]
    people = [
        _Person(name, at_us[span], day.points[span])
        for name, span in zip(day.users, spans, strict=True)
    ]
    recognized = recognize(out)
    form = None if recognized is None else recognized.name
    if form == "parquet":
        _write_parquet(people, Path(out))
    elif form in _WRITERS:
        Path(out).write_text("".join(_WRITERS[form](people)), encoding="utf-8")
    else:
        raise ParameterError(f"a sample is one of {', '.join(_WRITERS)} or parquet, found {out}")
    click.echo(f"{out}: {len(at_us):,} made-up points of {users} in one day")


def _csv(people: list[_Person]) -> Iterator[str]:
    yield "user,time,lat,lon\n"
    for person in people:
        for time, lat, lon in person.rows():
            yield f"{person.name},{time},{lat},{lon}\n"


def _gpx(people: list[_Person]) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield '<gpx version="1.1" creator="hereish" xmlns="http://www.topografix.com/GPX/1/1">\n'
    for person in people:
        yield f"<trk><name>{person.name}</name><trkseg>\n"
        for time, lat, lon in person.rows():
            yield f'<trkpt lat="{lat}" lon="{lon}"><time>{time}</time></trkpt>\n'
        yield "</trkseg></trk>\n"
    yield "</gpx>\n"


def _geojson(people: list[_Person]) -> Iterator[str]:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [lon, lat]},
            "properties": {"user": person.name, "time": time},
        }
        for person in people
        for time, lat, lon in person.rows()
    ]
    yield json.dumps({"type": "FeatureCollection", "features": features})


def _geolife(people: list[_Person]) -> Iterator[str]:
    yield "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track\n0\n"
    for time, lat, lon in _only_person(people).rows():
        date, clock = time.removesuffix("Z").split("T")
        yield f"{lat},{lon},0,-777,0,{date},{clock}\n"


def _tdrive(people: list[_Person]) -> Iterator[str]:
    for number, person in enumerate(people, start=1):
        for time, lat, lon in person.rows():
            yield f"{number},{time.removesuffix('Z').replace('T', ' ')},{lon},{lat}\n"


def _only_person(people: list[_Person]) -> _Person:
    if len(people) > 1:
        raise ParameterError("a .plt file holds one person; leave out --users")
    return people[0]


_WRITERS = {
    "gpx": _gpx,
    "geojson": _geojson,
    "csv": _csv,
    "geolife": _geolife,
    "tdrive": _tdrive,
}


def _write_parquet(people: list[_Person], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    points = np.concatenate([person.points for person in people])
    at_us = np.concatenate([person.at_us for person in people])
    columns = {
        "user": [person.name for person in people for _ in person.at_us],
        "time": pa.array(at_us, pa.timestamp("us", "UTC")),
        "lat": points[:, 0],
        "lon": points[:, 1],
    }
    pq.write_table(pa.table(columns), path)
