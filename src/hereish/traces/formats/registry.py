"""All formats. To add one, write its module and add its `Format` here."""

from __future__ import annotations

from hereish.errors import ParameterError
from hereish.traces.formats import delimited, geojson, geolife, gpx, parquet, tdrive
from hereish.traces.formats.base import Format

# The order in which they are listed, and tried where several have the same extension.
FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        gpx.FORMAT,
        geojson.FORMAT,
        delimited.FORMAT,
        parquet.PARQUET,
        parquet.GEOPARQUET,
        geolife.FORMAT,
        tdrive.FORMAT,
    )
}
FORMAT_NAMES = tuple(FORMATS)
STANDARD_STREAM_FORMAT = delimited.FORMAT  # of standard input and output, unless it is said


def get_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise ParameterError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")
    return FORMATS[name]


def recognize(name: str) -> Format | None:
    """The format of a file, by its name; None if that does not tell."""
    name = name.lower().removesuffix(".gz")
    return next((f for f in FORMATS.values() if name.endswith(f.extensions)), None)


def all_extensions() -> str:
    """The extensions of all formats, for error messages."""
    return ", ".join(end for format_ in FORMATS.values() for end in format_.extensions)
