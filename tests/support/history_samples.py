"""Small files of the formats that location histories come in, made up here.

Each holds the three places of `markup_samples`, or their digits, so that leaks are found.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import get_format
from tests.support.markup_samples import LATS, LONS, released, written

TIMES = ("2024-05-01T08:00:00Z", "2024-05-01T08:10:00Z", "2024-05-02T08:00:00Z")
UNIX = (1_714_550_400, 1_714_551_000, 1_714_636_800)
E7 = [(round(lat * 1e7), round(lon * 1e7)) for lat, lon in zip(LATS, LONS, strict=True)]
# A receiver writes degrees and minutes as one number; these have the digits that are looked for.
NMEA_PLACES = (("4812.73619", "01111.58247"), ("4813.73619", "01112.58247"))
SEMICIRCLES = ((573_619_000, 158_247_000), (573_619_001, 158_247_001), (-573_619_002, -58_247_000))


def degrees(i: int) -> str:
    return f"{LATS[i]}°, {LONS[i]}°"


def geo(i: int) -> str:
    return f"geo:{LATS[i]},{LONS[i]}"


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


ANDROID = {
    "semanticSegments": [
        {
            "startTime": "2024-05-01T08:00:00.000+02:00",
            "endTime": "2024-05-01T10:00:00.000+02:00",
            "timelinePath": [
                {"point": degrees(0), "time": "2024-05-01T10:00:00.000+02:00"},
                {"point": degrees(1), "time": "2024-05-01T10:10:00.000+02:00"},
            ],
        },
        {
            "startTime": TIMES[0],
            "endTime": TIMES[1],
            "visit": {"topCandidate": {"placeLocation": {"latLng": degrees(2)}}},
        },
    ],
    "rawSignals": [
        {"wifiScan": {"deliveryTime": TIMES[0], "devicesRecords": []}},
        {"position": {"LatLng": degrees(2), "timestamp": TIMES[2], "accuracyMeters": 13}},
    ],
    "userLocationProfile": {},
}
VISITS = {"semanticSegments": ANDROID["semanticSegments"][1:]}  # type: ignore[index]  # a list
IOS = [
    {
        "startTime": "2024-05-01T08:00:00.000Z",
        "endTime": "2024-05-01T10:00:00.000Z",
        "timelinePath": [
            {"point": geo(0), "durationMinutesOffsetFromStartTime": "0"},
            {"point": geo(1), "durationMinutesOffsetFromStartTime": "10"},
        ],
    },
    {
        "startTime": TIMES[0],
        "endTime": TIMES[1],
        "visit": {"topCandidate": {"placeLocation": geo(2)}},
    },
    {
        "startTime": "2024-05-02T08:00:00.000Z",
        "endTime": "2024-05-02T10:00:00.000Z",
        "timelinePath": [{"point": geo(2), "durationMinutesOffsetFromStartTime": "0"}],
    },
]
RECORDS = {
    "locations": [
        {"latitudeE7": lat, "longitudeE7": lon, "accuracy": 20 + i, **when}
        for i, ((lat, lon), when) in enumerate(
            zip(
                E7,
                (
                    {"timestamp": TIMES[0]},
                    {"timestampMs": "1714551000000"},
                    {"timestamp": TIMES[2]},
                ),
                strict=True,
            )
        )
    ]
}
SEMANTIC = {
    "timelineObjects": [
        {
            "activitySegment": {
                "startLocation": {"latitudeE7": 1, "longitudeE7": 2},
                "duration": {"startTimestamp": TIMES[0], "endTimestamp": TIMES[1]},
                "simplifiedRawPath": {
                    "points": [
                        {"latE7": E7[i][0], "lngE7": E7[i][1], "timestampMs": f"{UNIX[i]}000"}
                        for i in (0, 1)
                    ]
                },
            }
        },
        {
            "placeVisit": {
                "location": {"latitudeE7": E7[2][0], "longitudeE7": E7[2][1], "name": "Clinic"},
                "duration": {"startTimestamp": TIMES[2]},
            }
        },
    ]
}
EDITS = {
    "timelineEdits": [
        {
            "rawSignal": {
                "signal": {
                    "position": {
                        "point": {"latE7": E7[i][0], "lngE7": E7[i][1]},
                        "timestamp": TIMES[i],
                    }
                }
            }
        }
        for i in range(3)
    ]
}
OVERLAND = {
    "locations": [
        *(
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [LONS[i], LATS[i]]},
                "properties": {"timestamp": TIMES[i], "device_id": "phone", "speed": i},
            }
            for i in range(3)
        ),
        {"type": "Feature", "properties": {"timestamp": TIMES[2], "action": "will_terminate"}},
    ]
}
POLARSTEPS = {
    "locations": [{"lat": LATS[i], "lon": LONS[i], "time": UNIX[i] + 0.5} for i in range(3)]
}
DAWARICH = {
    "counts": {"points": 3},
    "points": [
        {"timestamp": UNIX[i], "lonlat": f"POINT ({LONS[i]} {LATS[i]})", "battery": 80}
        for i in range(3)
    ],
}
OWNTRACKS = [
    {"_type": "location", "lat": LATS[i], "lon": LONS[i], "tst": UNIX[i], "tid": "AN", "acc": i}
    for i in range(3)
]
LINES = "".join(json.dumps(one) + "\n" for one in OWNTRACKS)
REC = (
    "".join(f"{TIMES[i]}\t*                 \t{json.dumps(OWNTRACKS[i])}\n" for i in range(3))
    + f'{TIMES[2]}\t-                 \t{{"_type":"lwt","tst":"1714636800"}}\n'
)
MOVING = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"user": "ann"},
            "temporalGeometry": {
                "type": "MovingPoint",
                "coordinates": [[LONS[i], LATS[i]] for i in places],
                "datetimes": [TIMES[i] for i in places],
            },
            "temporalProperties": [
                {"datetimes": [TIMES[i] for i in places], "speed": {"values": list(places)}}
            ],
        }
        for places in ((0, 1), (2,))
    ],
}
KML = f"""<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2">
<Document><name>Home to clinic</name>
<Placemark><name>start</name><TimeStamp><when>{TIMES[0]}</when></TimeStamp>
<Point><coordinates>{LONS[0]},{LATS[0]},0</coordinates></Point></Placemark>
<Placemark><gx:MultiTrack><gx:Track><when>{TIMES[0]}</when><when>2024-05-01T08:05:00Z</when>
<when>{TIMES[1]}</when><gx:coord>{LONS[0]} {LATS[0]} 411</gx:coord><gx:coord/>
<gx:coord>{LONS[1]} {LATS[1]} 412</gx:coord><ExtendedData><SchemaData schemaUrl="#s">
<gx:SimpleArrayData name="hr"><gx:value>61</gx:value><gx:value/><gx:value>63</gx:value>
</gx:SimpleArrayData></SchemaData></ExtendedData></gx:Track></gx:MultiTrack></Placemark>
<Placemark><gx:Track><when>{TIMES[2]}</when><gx:coord>{LONS[2]} {LATS[2]}</gx:coord></gx:Track>
</Placemark></Document></kml>
"""
TCX = (
    """<?xml version="1.0" encoding="UTF-8"?>
<TrainingCenterDatabase xmlns="http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2">
<Activities>"""
    + "".join(
        f"""<Activity Sport="Running"><Id>{TIMES[places[0]]}</Id><Lap StartTime="x"><Track>
<Trackpoint><Time>2024-05-01T07:59:00Z</Time><HeartRateBpm><Value>90</Value></HeartRateBpm>
</Trackpoint>"""
        + "".join(
            f"""<Trackpoint><Time>{TIMES[i]}</Time><Position>
<LatitudeDegrees>{LATS[i]}</LatitudeDegrees><LongitudeDegrees>{LONS[i]}</LongitudeDegrees>
</Position><HeartRateBpm><Value>{90 + i}</Value></HeartRateBpm></Trackpoint>"""
            for i in places
        )
        + "</Track></Lap></Activity>"
        for places in ((0, 1), (2,))
    )
    + """</Activities></TrainingCenterDatabase>
"""
)


def sentence(body: str) -> str:
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    return f"${body}*{checksum:02X}\r\n"


def rmc(at: str, day: str, lat: str, lon: str, status: str = "A") -> str:
    return sentence(f"GPRMC,{at},{status},{lat},N,{lon},W,0.1,90.0,{day},,")


def gga(at: str, lat: str, lon: str, quality: int = 1) -> str:
    return sentence(f"GPGGA,{at},{lat},N,{lon},W,{quality},05,1.6,209.8,M,-34.2,M,,")


NMEA = (
    gga("235959.50", *NMEA_PLACES[0])  # before midnight, and before a date is known
    + sentence("GPGSA,A,3,,,,,,,,,,,,,4.9,1.6,4.5")
    + rmc("000001.000", "020524", *NMEA_PLACES[1])
    + gga("000001.000", *NMEA_PLACES[1])
    + rmc("000002.000", "020524", *NMEA_PLACES[1], status="V")
    + gga("000003", *NMEA_PLACES[0])
)


def fit(places: Any = SEMICIRCLES, first_s: int = 1_083_484_800) -> bytes:
    """A file with one record per place, a minute apart, and one without a position."""
    from fitdecode.utils import compute_crc

    fields = bytes([253, 4, 0x86, 0, 4, 0x85, 1, 4, 0x85])
    body = bytes([0x40, 0, 0]) + struct.pack("<HB", 20, 3) + fields
    for i, (lat, lon) in enumerate((*places, (0x7FFFFFFF, 0x7FFFFFFF))):
        body += bytes([0]) + struct.pack("<Iii", first_s + 60 * i, lat, lon)
    head = struct.pack("<BBHI4s", 14, 0x20, 2132, len(body), b".FIT")
    head += struct.pack("<H", compute_crc(head))
    return head + body + struct.pack("<H", compute_crc(head + body))


def zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


ROWS = released(
    [unix * 1_000_000 for unix in UNIX],
    LATS,
    LONS,
    user=["a", "b", "a"],
    trace=["t", "t", "u"],
)
# By name: the content, and the format that it is.
SAMPLES: dict[str, tuple[bytes, str]] = {
    "android.json": (as_json(ANDROID), "google"),
    "ios.json": (as_json(IOS), "google"),
    "visits.json": (as_json(VISITS), "google"),
    "Records.json": (as_json(RECORDS), "google"),
    "2024_MAY.json": (as_json(SEMANTIC), "google"),
    "edits.json": (as_json(EDITS), "google"),
    "overland.json": (as_json(OVERLAND), "records"),
    "polarsteps.json": (as_json(POLARSTEPS), "records"),
    "data.json": (as_json(DAWARICH), "records"),
    "lines.jsonl": (LINES.encode(), "records"),
    "2024-05.rec": (REC.encode(), "records"),
    "moving.json": (as_json(MOVING), "mfjson"),
    "ours.mfjson": (written("mfjson", ROWS), "mfjson"),
    "track.kml": (KML.encode(), "kml"),
    "track.kmz": (zipped({"doc.kml": KML.encode(), "files/icon.png": b"png"}), "kmz"),
    "ours.kml": (written("kml", ROWS), "kml"),
    "ours.kmz": (written("kmz", ROWS), "kmz"),
    "run.tcx": (TCX.encode(), "tcx"),
    "run.fit": (fit(), "fit"),
    "log.nmea": (NMEA.encode(), "nmea"),
    "ours.gpkg": (written("gpkg", ROWS), "gpkg"),
    "ours.tsv": (written("tsv", ROWS), "tsv"),
}
BINARY = ("track.kmz", "ours.kmz", "run.fit", "ours.gpkg")


def sample(folder: Path, name: str, content: bytes | None = None) -> Source:
    """A file of a sample, or of other content under its name."""
    own, form = SAMPLES[name]
    path = folder / name
    path.write_bytes(own if content is None else content)
    return Source(path, get_format(form), Path(name))
