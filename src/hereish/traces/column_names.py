"""The names by which columns are known, and what they say about the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

# The usual names of columns. A plain `id` is not among them: it may number the rows, and then each
# row would be a user with a budget of its own.
USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "uid"),
    "trace": ("trace", "trace_id", "track", "track_id", "trajectory", "trajectory_id", "trip"),
    "time": ("time", "timestamp", "at", "datetime", "date_time", "t"),
    "date": ("date",),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
    "point": ("geometry", "geom", "wkt"),
}
# Names that tools give them (trackintel, MovingPandas, scikit-mobility, Movebank, GPSBabel, Google,
# Garmin, Traccar, ships' AIS), and the names of other languages that mean nothing else, taken where
# none of the usual ones is there.
OTHER_NAMES = {
    "user": ("individual_local_identifier", "individual_id", "participant_id", "person_id"),
    "trace": ("traj_id", "tid", "trip_id", "segment_id"),
    "time": (
        *("tracked_at", "recorded_at", "started_at", "utc_t", "utc_time", "time_utc", "gps_time"),
        *("timestamp_utc", "utc_timestamp", "study_local_timestamp", "local_time", "utctimestamp"),
        *("fix_time", "fixtime", "basedatetime", "base_date_time", "check_in_time", "datetime_utc"),
        "time_observed_at",
        *("zeit", "uhrzeit", "zeitstempel", "zeitpunkt", "heure", "horodatage", "hora"),
    ),
    "date": ("utc_d", "utc_date", "date_utc", "gps_date", "local_date", "datum", "fecha"),
    "lat": (
        *("location_lat", "position_lat", "gps_latitude", "gps_lat", "point_latitude"),
        *("latitudee7", "latitude_e7", "lat_e7", "late7", "breitengrad", "latitud"),
    ),
    "lon": (
        *("location_long", "location_lon", "position_long", "position_lon", "gps_longitude"),
        *("gps_lon", "gps_lng", "gps_long", "point_longitude"),
        *("longitudee7", "longitude_e7", "lon_e7", "lone7", "lng_e7", "lnge7"),
        *("längengrad", "laengengrad", "longitud"),
    ),
    "point": ("the_geom", "geog", "geography", "wkb", "wkb_geometry", "wkt_geom", "shape"),
}
# What else tools, registers and other languages call them, taken where none of those is there, so
# that a table with several of these is refused and one that was read before is read as before.
RARE_NAMES = {
    "user": (),
    "trace": (),
    "time": (
        *("ts", "tst", "utc", "epoch", "time_stamp", "datetimestamp", "date_and_time"),
        *("unixtime", "unix_time", "unix_timestamp", "timestamp_unix", "epoch_time", "posix_time"),
        *("timestampms", "timestamp_ms", "time_ms", "epoch_ms", "isotime", "iso_time", "time_iso"),
        *("timestamp_iso", "iso_timestamp", "utcdatetime", "utc_datetime", "datetimeutc"),
        *("date_time_utc", "utc_date_time", "utctime", "local_datetime", "datetime_local"),
        *("localtime", "time_local", "local_timestamp", "timestamp_local", "gpstime"),
        *("gps_datetime", "gps_date_time", "gps_timestamp", "gpstimestamp", "gps_utc_time"),
        *("gps_time_utc", "event_time", "eventtime", "event_timestamp", "location_time"),
        *("location_timestamp", "position_time", "fix_timestamp", "vehicle_timestamp"),
        *("log_time", "logtime", "logged_at", "record_time", "recordtime", "recording_time"),
        *("reported_at", "observed_at", "observation_time", "measured_at"),
        *("captured_at", "collected_at", "sample_time", "sampled_at", "acquisition_time"),
        *("time_observations_started", "start_time", "starttime", "starttimestamp"),
        *("start_timestamp", "created_at", "createdat"),
        *("datum_zeit", "date_heure", "dateheure", "fecha_hora", "fechahora", "data_hora"),
        *("tijd", "tijdstip", "aika", "aikaleima", "tidpunkt", "время", "时间", "日時"),
    ),
    "date": (
        *("eventdate", "event_date", "observation_date", "observed_on", "utcdate", "gpsdate"),
        *("date_local", "log_date", "record_date", "päivämäärä", "pvm", "дата", "日期", "日付"),
    ),
    "lat": (
        *("latitude_deg", "lat_deg", "latitude_degrees", "lat_degrees", "latitudedegrees"),
        *("decimallatitude", "decimal_latitude", "latitude_decimal", "decimal_lat", "lat_decimal"),
        *("lat_dd", "latitude_dd", "dd_lat", "lat_wgs84", "latitude_wgs84", "wgs84_lat"),
        *("location_latitude", "position_latitude", "coords_latitude", "geo_lat", "geolat"),
        *("latitude_n/s", "lat_n/s", "gpslat", "gpslatitude", "lat_gps", "latitude_gps"),
        *("fix_lat", "geo_latitude"),
        *("latitudine", "breedtegraad", "breddgrad", "leveysaste", "широта", "纬度", "緯度"),
    ),
    "lon": (
        *("longitude_deg", "lon_deg", "lng_deg", "long_deg", "longitude_degrees", "lon_degrees"),
        *("longitudedegrees", "decimallongitude", "decimal_longitude", "longitude_decimal"),
        *("decimal_lon", "decimal_long", "lon_decimal", "long_decimal", "lon_dd", "long_dd"),
        *("longitude_dd", "dd_lon", "dd_long", "lon_wgs84", "longitude_wgs84", "wgs84_lon"),
        *("location_longitude", "position_longitude", "coords_longitude", "geo_lon", "geo_lng"),
        *("geo_long", "geolon", "geolng", "gpslon", "gpslng", "gpslong", "gpslongitude"),
        *("longitude_e/w", "lon_e/w", "lon_gps", "longitude_gps", "fix_lon", "geo_longitude"),
        "longitudine",
        *("lengtegraad", "längdgrad", "langdgrad", "pituusaste", "долгота", "经度", "経度"),
    ),
    "point": (),
}
# Columns of letters beside numbers without a sign.
SIDE_NAMES = {
    "lat": ("n/s", "ns", "n_s", "lat_ref", "latitude_ref", "lat_dir", "gps_latitude_ref"),
    "lon": ("e/w", "ew", "e_w", "lon_ref", "longitude_ref", "lon_dir", "gps_longitude_ref"),
}
# Whatever they are called, these number rows: each would be a user of its own.
ROW_NUMBERS = ("row_id", "event_id", "fid", "ogc_fid", "point_id", "record_id", "fix_id", "gid")
_TIERS = (USUAL_NAMES, OTHER_NAMES, RARE_NAMES)
_BRACKETS = re.compile(r"[(\[].*?[)\]]")
_DEGREES, _MINUTES = re.compile(r"_deg(rees?)?$"), re.compile(r"_min(utes?)?$")


def normal_name(name: str) -> str:
    """In small letters, with underscores: `Location-Lat`, `location.lat`, `Lat (deg)`, `@time`."""
    bare = _BRACKETS.sub("", name.strip().lower())
    return re.sub(r"[\s.:°_@-]+", "_", bare).strip("_")


@cache
def known_names(role: str) -> frozenset[str]:
    """All names by which a column is found."""
    return frozenset(name for tier in _TIERS for name in tier[role])


def find_known(role: str, available: Sequence[str]) -> list[str]:
    """The columns with the most usual names of a role; several: they are equally usual."""
    normal = {name: normal_name(name) for name in available}
    parts = {_stem(name) for name in normal.values() if _MINUTES.search(name)}
    for tier in _TIERS:
        found = [name for name in available if normal[name] in tier[role]]
        # Beside a column of minutes it is a part of a number, and not degrees.
        whole = [name for name in found if _stem(normal[name]) not in parts]
        if whole or found:
            return whole
    return []


def _stem(normal: str) -> str:
    return _DEGREES.sub("", _MINUTES.sub("", normal))


def unit_in_name(name: str) -> str | None:
    """What the numbers of a column count if its name says so."""
    normal = normal_name(name)
    if normal.endswith("e7"):
        return "e7"
    if normal.startswith("position_"):
        return "semicircles"  # of FIT files; small numbers are degrees all the same
    return None
