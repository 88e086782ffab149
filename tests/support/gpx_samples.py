"""What the tests of reading and writing GPX share."""

from __future__ import annotations

from hereish.traces.formats import gpx

SPACE = {"": "http://www.topografix.com/GPX/1/1", "hereish": gpx.NAMESPACE}


def track(points: str, ids: str = "") -> str:
    return f"<trk>{ids}<trkseg>\n{points}</trkseg></trk>\n"


def file(*tracks: str, space: str = 'xmlns="http://www.topografix.com/GPX/1/1"') -> str:
    return f'<gpx version="1.1" creator="c" {space}>\n{"".join(tracks)}</gpx>'


def fix(lat: str = 'lat="1.25"', lon: str = 'lon="2.5"', time: str = "2024-05-01T08:00:00Z") -> str:
    return f"<trkpt {lat} {lon}><time>{time}</time></trkpt>\n"
