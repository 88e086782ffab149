"""Mobility models of a group, learnt from traces that are public or were sanitised; their files.

A model must be public: whoever reads a release may know it. One that was learnt from the true
places of those who are to be protected discloses them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hereish._array_files import read_arrays
from hereish.core.mobility import Mobility, hours_within_parts
from hereish.core.mobility_model import BINS, MOST_PLACES, PARTS, MobilityModel
from hereish.core.places import is_weekend
from hereish.core.privacy import positive
from hereish.core.spaces import Sphere, find_point_outside
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PointError

__all__ = ["learn_model", "load_model", "save_model"]

FORMAT = "hereish mobility model 1"  # the number is the version
_SLOT_S = 600.0  # fixes of ten minutes are one
_LONGEST_S = 12 * 3600.0  # between two fixes at one place, for it to be a stay
_HOUR_S = 3600.0
_LEAST_SPREAD_M = 50.0
_RADIUS_M = 6_371_008.8
_MOST_BYTES = 1 << 22  # of a file: one of MOST_PLACES has far fewer
_SPHERE = Sphere()


def learn_model(
    at_s: ArrayLike,
    points: ArrayLike,
    users: ArrayLike,
    *,
    name: str,
    time_zone: str = "UTC",
    places: int = 64,
    near_m: float = 250.0,
    licence: str = "",
) -> MobilityModel:
    """A model of a group: where its people stay, when, and where they go from there.

    Of fixes in any order, with the time in seconds, latitude and longitude, and whose each is (a
    number). A stay is time between two fixes, at most twelve hours apart, that are within `near_m`
    of each other; `places` are those with the most of it, each user's stays counting alike.

    Guarantee: none. The traces must be public, or sanitised before.
    """
    times, whose = np.asarray(at_s, dtype=np.float64), np.asarray(users, dtype=np.int64)
    fixes = np.asarray(points, dtype=np.float64)
    if fixes.shape != (len(times), 2) or whose.shape != times.shape or times.ndim != 1:
        raise ParameterError(
            "learn_model takes as many times, points (latitude, longitude) and users, found the "
            f"shapes {times.shape}, {fixes.shape} and {whose.shape}"
        )
    if not np.isfinite(times).all() or find_point_outside(_SPHERE, fixes) is not None:
        raise PointError("times and points must be finite, and points on the globe")
    if isinstance(places, bool) or not 1 <= places <= MOST_PLACES:
        raise ParameterError(f"places must be from 1 to {MOST_PLACES}, found {places!r}")
    positive("near_m", near_m)
    times, fixes, whose = _thinned(times, fixes, whose)
    next_too = (whose[1:] == whose[:-1]) & (np.diff(times) <= _LONGEST_S)
    stays = next_too & (_SPHERE.distance(fixes[1:], fixes[:-1]) <= near_m)
    begins = stays.nonzero()[0]
    if not len(begins):
        raise ParameterError(
            f"nobody stays within {near_m:g} m in these traces: there is nothing to learn"
        )
    lasts_h = (times[begins + 1] - times[begins]) / _HOUR_S
    total_h = np.bincount(whose[begins], lasts_h)
    weight = lasts_h / total_h[whose[begins]]
    centres, spread = _cluster(fixes[begins], weight, places, near_m)
    count = len(centres)
    place = _nearest(centres, fixes, near_m)
    there = place[begins] >= 0
    kept = begins[there]
    hours = np.zeros((count, BINS))
    clock = Mobility(time_zone=time_zone)
    # Each user's stays add up to a day.
    for part in range(PARTS):
        since_s = clock.local_s(times[kept])
        within = hours_within_parts(clock.local_s(times[kept + 1])) - hours_within_parts(since_s)
        share = within[part] * (24.0 / total_h[whose[kept]])
        np.add.at(hours, (place[kept], part + PARTS * is_weekend(since_s)), share)
    moves = np.zeros((count, count))
    order = (place >= 0).nonzero()[0]  # what lies between two places is the way
    a, b = order[:-1], order[1:]
    moved = (whose[a] == whose[b]) & (place[a] != place[b]) & (times[b] - times[a] <= _LONGEST_S)
    np.add.at(moves, (place[a[moved]], place[b[moved]]), 1.0)
    return MobilityModel(name, centres, spread**-2, np.maximum(hours, 0.0), moves, licence)


def save_model(model: MobilityModel, path: str | Path) -> None:
    """Write a model to one .npz file, with its name, its licence and the version of its format."""
    with Path(path).open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array(FORMAT),
            name=np.array(model.name),
            licence=np.array(model.licence),
            digest=np.array(model.digest),
            places=model.places,
            exactness=model.exactness,
            hours=model.hours,
            moves=model.moves,
        )


def load_model(path: str | Path) -> MobilityModel:
    """A model that `save_model` wrote."""
    named = {"name", "licence", "digest", "places", "exactness", "hours", "moves"}
    held = read_arrays(path, {"format", *named}, _MOST_BYTES)
    found, wanted = str(held.get("format")), FORMAT.rpartition(" ")[0]
    if found.rpartition(" ")[0] == wanted and found != FORMAT:
        raise ParameterError(
            f"{path}: expected {FORMAT!r}, found {found!r}; it was made by another hereish"
        )
    if found != FORMAT or not named <= held.keys():
        raise ParameterError(f"{path}: expected a mobility model of hereish, found something else")
    model = MobilityModel(
        str(held["name"]),
        held["places"],
        held["exactness"],
        held["hours"],
        held["moves"],
        str(held["licence"]),
    )
    if model.digest != str(held["digest"]):
        raise ParameterError(f"{path}: the model was changed after it was saved; learn it again")
    return model


def _thinned(times: Floats, fixes: Floats, whose: Ints) -> tuple[Floats, Floats, Ints]:
    """The first fix of every ten minutes of each user, in the order of users and times."""
    order = np.lexsort((times, whose))
    times, fixes, whose = times[order], fixes[order], whose[order]
    slot = np.floor(times / _SLOT_S)
    first = np.ones(len(times), dtype=np.bool_)
    first[1:] = (np.diff(slot) != 0.0) | (np.diff(whose) != 0)
    _, number = np.unique(whose[first], return_inverse=True)
    return times[first], fixes[first], number


def _vectors(points: Floats) -> Floats:
    lat, lon = np.radians(points.T)
    return np.asarray(
        np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    )


def _cluster(points: Floats, weight: Floats, places: int, near_m: float) -> tuple[Floats, Floats]:
    """The places with most of the weight around them, and how far from them it lies."""
    vectors = _vectors(points)
    cells, which = np.unique(
        np.round(vectors * (2.0 * _RADIUS_M / near_m)), axis=0, return_inverse=True
    )
    most = np.argsort(-np.bincount(which.ravel(), weight), kind="stable")
    tree = _tree(vectors)
    reach = near_m / _RADIUS_M
    left = np.ones(len(points), dtype=np.bool_)
    found: list[tuple[float, Floats, float]] = []
    # The heaviest cells may be one place cut in two, so a few more are looked at.
    for cell in cells[most[: 8 * places]]:
        own = np.array(tree.query_ball_point(cell * (near_m / (2.0 * _RADIUS_M)), reach), np.int64)
        own = own[left[own]]
        if not len(own):
            continue
        left[own] = False
        middle = np.average(vectors[own], axis=0, weights=weight[own])
        middle /= np.sqrt(middle @ middle)
        away = ((vectors[own] - middle) ** 2).sum(axis=1)
        spread_m = _RADIUS_M * float(np.sqrt(np.average(away, weights=weight[own])))
        found.append((float(weight[own].sum()), middle, max(spread_m, _LEAST_SPREAD_M)))
    found.sort(key=lambda one: -one[0])
    middles = np.array([middle for _, middle, _ in found[:places]])
    lat = np.degrees(np.arctan2(middles[:, 2], np.hypot(middles[:, 0], middles[:, 1])))
    lon = np.degrees(np.arctan2(middles[:, 1], middles[:, 0]))
    return np.column_stack([lat, lon]), np.array([spread_m for _, _, spread_m in found[:places]])


def _nearest(centres: Floats, fixes: Floats, near_m: float) -> Ints:
    """The place that each fix is at, or -1."""
    away, place = _tree(_vectors(centres)).query(_vectors(fixes))
    return np.where(away * _RADIUS_M <= near_m, place, -1)


def _tree(vectors: Floats) -> Any:
    from scipy.spatial import cKDTree  # here because scipy is slow to import

    return cKDTree(vectors)
