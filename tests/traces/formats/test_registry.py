"""The registry has every format, and each can do what a format must."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hereish.errors import ParameterError
from hereish.traces.formats.base import Format
from hereish.traces.formats.registry import FORMATS, get_format, recognize, recognize_content


def test_an_extension_of_several_formats_is_told_by_the_content() -> None:
    owners: dict[str, list[Format]] = {}
    for form in FORMATS.values():
        for extension in form.extensions:
            owners.setdefault(extension, []).append(form)
    for extension, forms in owners.items():
        assert recognize(f"a{extension}") is forms[0]
        assert recognize(f"A{extension.upper()}.gz") is forms[0]
        if len(forms) > 1:
            assert sum(form.sniff is None for form in forms) <= 1
    assert {end for end, forms in owners.items() if len(forms) > 1} == {".json", ".txt"}
    assert recognize("notes.md") is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'{"type": "FeatureCollection", "features": []}', "geojson"),
        (b'{"features": [{"properties": {}', "geojson"),
        (b'\xef\xbb\xbf{"type":"Feature","geometry":null}', "geojson"),
        (b"not JSON at all", "geojson"),  # whose reader says so
        (b"", "geojson"),
        (b'{"type": "Feature", "temporalGeometry": {"type": "MovingPoint"', "mfjson"),
        (b'{"type":"FeatureCollection","features":[{"properties":{"datetimes":["2', "mfjson"),
        (b'{"locations": [{"timestampMs": "1", "latitudeE7": 1', "google"),
        (b'{"timelineObjects": [', "google"),
        (b'{"locations": []}', "google"),  # of an account without any
        (b'{"locations": [{"activeWifiScan": {"accessPoints": [', "google"),
        (b'{"semanticSegments": [{"startTime": "2', "google"),
        (b'[{"endTime": "2", "startTime": "2", "visit": {', "google"),
        (b'{"locations": [{"type": "Feature", "geometry": {"type": "Point", "co', "records"),
        (b'{"locations": [{"lat": 1, "lon": 2, "time": "2', "records"),
        (b'[{"id": 1, "latitude": 1, "longitude": 2', "records"),
        (b'{"_type": "location", "lat": 1, "lon": 2}\n{"_type', "records"),
        (b'{"name": "hereish", "version": 2}', None),
        (b"[1, 2, 3]", None),
    ],
)
def test_json_is_told_apart_by_its_first_bytes(head: bytes, name: str | None) -> None:
    found = recognize_content("a.json", lambda: head)
    assert (found and found.name) == name


def test_sentences_in_a_text_are_of_a_receiver() -> None:
    head = b"$GPRMC,032908.379,A,4231.829,N,08807.303,W,0.16,138.92,070898,,*14\r\n"
    sentences = recognize_content("a.txt", lambda: head)
    taxi = recognize_content("a.txt", lambda: b"1,2008-02-02 15:36:08,116.5,39.9")
    assert sentences is FORMATS["nmea"]
    assert taxi is FORMATS["tdrive"]


@pytest.mark.parametrize(
    "head", [b"time\tlat\tlon\n", b'"Time";"Latitude";"Longitude"\n', b"\r\nt,geometry\n"]
)
def test_a_table_may_be_called_a_text(head: bytes) -> None:
    assert recognize_content("a.txt", lambda: head) is FORMATS["csv"]
    assert recognize_content("a.txt.gz", lambda: head) is FORMATS["csv"]
    assert recognize("a.txt") is FORMATS["tdrive"]  # of an output


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_can_go_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(FORMATS[name])) == FORMATS[name]  # noqa: S301  # our own


def test_texts_that_are_not_named_by_a_number_are_no_taxis() -> None:
    assert FORMATS["tdrive"].is_data_file(Path("366.txt"))
    assert not FORMATS["tdrive"].is_data_file(Path("readme.txt"))


def test_an_unknown_format_is_an_error_that_lists_them() -> None:
    with pytest.raises(ParameterError, match="no format 'xlsx'; use one of gpx, geojson, csv"):
        get_format("xlsx")
