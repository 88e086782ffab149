"""All formats. To add one, write its module and add its `Format` here."""

from __future__ import annotations

from collections.abc import Callable

from hereish.errors import ParameterError
from hereish.traces.formats import (
    delimited,
    fit,
    geojson,
    geolife,
    geopackage,
    google,
    gpx,
    json_records,
    kml,
    mfjson,
    nmea,
    parquet,
    tcx,
    tdrive,
)
from hereish.traces.formats.base import Format

# The order in which they are listed. Of several with one extension, the first is taken where the
# content is not known, as that of an output.
FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        gpx.FORMAT,
        geojson.FORMAT,
        delimited.FORMAT,
        delimited.TSV,
        parquet.PARQUET,
        parquet.GEOPARQUET,
        geopackage.FORMAT,
        kml.KML,
        kml.KMZ,
        mfjson.FORMAT,
        google.FORMAT,
        json_records.FORMAT,
        fit.FORMAT,
        tcx.FORMAT,
        geolife.FORMAT,
        tdrive.FORMAT,
        nmea.FORMAT,
    )
}
FORMAT_NAMES = tuple(FORMATS)
WRITTEN_NAMES = tuple(name for name, form in FORMATS.items() if form.open_writer is not None)
STANDARD_STREAM_FORMAT = delimited.FORMAT  # of standard input and output, unless it is said


def get_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise ParameterError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")
    return FORMATS[name]


def recognize(name: str) -> Format | None:
    """The format of a file, by its name; None if that does not tell."""
    return next(iter(_candidates(name)), None)


def recognize_content(name: str, read_head: Callable[[], bytes]) -> Format | None:
    """The format of a file that is there, by its first bytes where its name is of several.

    None if its name is of no format, or its content of none that has its name.
    """
    candidates = _candidates(name)
    bare = name.lower().removesuffix(".gz")
    others = [form for form in FORMATS.values() if bare.endswith(form.sniffed_extensions)]
    if len(candidates) <= 1 and not others:
        return candidates[0] if candidates else None
    head = read_head()
    candidates = [form for form in others if form.sniff is not None and form.sniff(head)] or (
        candidates
    )
    unsure = [form for form in candidates if form.sniff is None]
    claiming = (form for form in candidates if form.sniff is not None and form.sniff(head))
    return next(claiming, None) or next(iter(unsure), None)


def _candidates(name: str) -> list[Format]:
    bare = name.lower().removesuffix(".gz")
    return [form for form in FORMATS.values() if bare.endswith(form.extensions)]


def all_extensions() -> str:
    """The extensions of all formats, for error messages."""
    ends = dict.fromkeys(end for form in FORMATS.values() for end in form.extensions)
    return ", ".join([*ends, ".zip"])
