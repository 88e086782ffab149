"""The names by which columns are known, and what they say about the numbers in them."""

from __future__ import annotations

import re

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
# Columns of letters beside numbers without a sign.
SIDE_NAMES = {
    "lat": ("n/s", "ns", "n_s", "lat_ref", "latitude_ref", "lat_dir", "gps_latitude_ref"),
    "lon": ("e/w", "ew", "e_w", "lon_ref", "longitude_ref", "lon_dir", "gps_longitude_ref"),
}
# Whatever they are called, these number rows: each would be a user of its own.
ROW_NUMBERS = ("row_id", "event_id", "fid", "ogc_fid", "point_id", "record_id", "fix_id", "gid")
_BRACKETS = re.compile(r"[(\[].*?[)\]]")


def normal_name(name: str) -> str:
    """A name in small letters, with underscores: `Location-Lat`, `location.lat`, `Lat (deg)`."""
    bare = _BRACKETS.sub("", name.strip().lower())
    return re.sub(r"[\s.:_-]+", "_", bare).strip("_")


def unit_in_name(name: str) -> str | None:
    """What the numbers of a column count if its name says so."""
    normal = normal_name(name)
    if normal.endswith("e7"):
        return "e7"
    if normal.startswith("position_"):
        return "semicircles"  # of FIT files; small numbers are degrees all the same
    return None
