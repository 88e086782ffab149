"""Files that priors are read from: CSV, Parquet, ESRI ASCII grids, GeoTIFF and our own .npz."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hereish._array_files import read_arrays
from hereish.core.prior import Prior
from hereish.core.types import Floats
from hereish.errors import ParameterError

_FORMAT = "hereish prior 1"
_COLUMNS = {
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "count": ("count", "population", "people", "weight", "weights", "n"),
}


def read_columns(table: Any) -> tuple[Floats, Floats | None]:
    """The points of a data frame or a dictionary, and the count of each, or None without any."""
    columns = {str(column).strip().lower(): column for column in _column_names(table)}
    lat, lon, count = (_column(table, columns, wanted) for wanted in _COLUMNS)
    if lat is None or lon is None:
        raise ParameterError(f"a table needs the columns lat and lon, found {sorted(columns)}")
    return np.stack([lat, lon], axis=1), count


def read_table(path: Path) -> dict[str, Any]:
    """The columns of a CSV or Parquet file."""
    return _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)


def read_raster(path: Path, name: str, licence: str) -> Prior:
    """A prior of a GeoTIFF or of an ESRI ASCII grid."""
    read = _read_geotiff if path.suffix.lower() in (".tif", ".tiff") else _read_ascii_grid
    return read(path, name, licence)


def save_prior(prior: Prior, path: str | Path) -> None:
    """Write a prior to one .npz file, with its name and its licence."""
    with Path(path).open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array(_FORMAT),
            name=np.array(prior.name),
            licence=np.array(prior.licence),
            corner=np.array([prior.south, prior.west]),
            cell_deg=np.array(prior.cell_deg),
            shape=np.array(prior.shape),
            cells=prior.cells,
            weights=prior.weights,
        )


def load_prior(path: str | Path) -> Prior:
    """A prior that `save_prior` wrote."""
    wanted = {"name", "licence", "corner", "cell_deg", "shape", "cells", "weights"}
    held = read_arrays(path, {"format", *wanted})
    pairs = ("corner", "cell_deg", "shape")
    if (
        str(held.get("format")) != _FORMAT
        or not wanted <= held.keys()
        or any(held[name].shape != (2,) or held[name].dtype.kind not in "iuf" for name in pairs)
        or any(held[name].dtype.kind not in "iuf" for name in ("cells", "weights"))
    ):
        raise ParameterError(f"{path}: expected a prior that hereish saved, found something else")
    (south, west), (height, width) = held["corner"].tolist(), held["cell_deg"].tolist()
    rows, columns = held["shape"].tolist()
    return Prior(
        str(held["name"]),
        south,
        west,
        (height, width),
        (rows, columns),
        held["cells"],
        held["weights"],
        str(held["licence"]),
    )


def _column_names(table: Any) -> list[Any]:
    names = table.keys() if isinstance(table, Mapping) else getattr(table, "columns", None)
    if names is None:
        raise ParameterError(
            f"a table is a file, a data frame or a dictionary, found a {type(table).__name__}"
        )
    return list(names)


def _column(table: Any, columns: dict[str, Any], wanted: str) -> Floats | None:
    named = next((columns[name] for name in _COLUMNS[wanted] if name in columns), None)
    if named is None:
        return None
    try:
        return np.asarray(table[named], dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"the column {named!r} must hold numbers only") from None


def _read_csv(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = csv.reader(file)
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, csv.Error):
        raise ParameterError(
            f"{path}: expected a CSV with a header, found something else"
        ) from None
    rows = [row for row in rows if row]
    if any(len(row) != len(header) for row in rows):
        raise ParameterError(f"{path}: every line must have the {len(header)} fields of the header")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _read_parquet(path: Path) -> dict[str, Any]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise ParameterError("Parquet needs more: pip install 'hereish[parquet]'") from None
    try:
        file = parquet.ParquetFile(path)
        known = {name for names in _COLUMNS.values() for name in names}
        read = file.read([n for n in file.schema_arrow.names if n.strip().lower() in known])
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"{path}: cannot be read as Parquet ({type(error).__name__})"
        ) from None
    return {name: read[name].to_numpy() for name in read.column_names}


def _read_ascii_grid(path: Path, name: str, licence: str) -> Prior:
    header: dict[str, float] = {}
    try:
        with path.open(encoding="ascii") as file:
            while (line := file.readline()) and line.strip()[:1].isalpha():
                key, value = line.split()
                header[key.lower()] = float(value)
            first = np.array(line.split(), np.float64)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that nothing is left to read
                rest = np.loadtxt(file, dtype=np.float64, ndmin=1).ravel()
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise ParameterError(f"{path}: expected an ESRI ASCII grid, found something else") from None
    numbers = np.concatenate([first, rest])
    try:
        rows, columns, size = int(header["nrows"]), int(header["ncols"]), header["cellsize"]
        half = {"corner": 0.0, "center": -0.5 * size}
        (south,) = (header[f"yll{k}"] + half[k] for k in half if f"yll{k}" in header)
        (west,) = (header[f"xll{k}"] + half[k] for k in half if f"xll{k}" in header)
        table = numbers.reshape(rows, columns)[::-1]
    except (KeyError, ValueError):
        raise ParameterError(
            f"{path}: an ESRI ASCII grid begins with ncols, nrows, xllcorner, yllcorner and "
            "cellsize, and has as many numbers as they say"
        ) from None
    table = np.where(table == header.get("nodata_value", -9999.0), 0.0, table)
    return Prior.from_grid(
        name, table, south=south, west=west, cell_deg=(size, size), licence=licence
    )


def _read_geotiff(path: Path, name: str, licence: str) -> Prior:
    try:
        rasterio = import_module("rasterio")
    except ImportError:
        raise ParameterError("GeoTIFF needs more: pip install rasterio") from None
    try:
        with rasterio.open(path) as file:
            table, at, crs = file.read(1, masked=True).filled(0), file.transform, file.crs
    except rasterio.errors.RasterioError:
        raise ParameterError(f"{path}: cannot be read as GeoTIFF") from None
    if at.b or at.d or at.e >= 0 or (crs is not None and not crs.is_geographic):
        raise ParameterError(
            f"{path}: a raster must be in degrees and north up; "
            "gdalwarp -t_srs EPSG:4326 makes it so"
        )
    table = np.asarray(table, np.float64)[::-1]
    south = at.f + at.e * len(table)
    return Prior.from_grid(
        name, table, south=south, west=at.c, cell_deg=(-at.e, at.a), licence=licence
    )
