"""Query any points-of-interest service with the released place, and lose nothing nearby.

A service that is queried with the released place answers about somewhere else. So query a wider
circle, computed from the release and public settings alone (one that depended on the true place
would disclose it), and drop on the device what is too far:

    query = lbs.query(report, r_m=500)              # public: a place and a radius to send
    results = lbs.nearby(answer, here, r_m=500)     # private: runs where the true place is known

The true place is not among the arguments of anything that makes a query.

Promise of `reach` and `query`: whatever the mechanism guessed and wherever the user is, everything
within `r_m` of the user lies within the returned radius of the released place with probability at
least `delta`, in great-circle metres (mean radius) and in WGS84 geodesic metres. No radius, and no
promise, where a guess was released without a test; whether one is made is decided beforehand. It
is about the place that was first sent with the report: one that is sent again gets what it got.

A report does not say which `space` and `test` made it. Give those of the mechanism where they are
not the usual ones: on a coarser grid releases move further.

Proof. Let a = sqrt(delta). Each kind of report has a radius (`accuracy_m` at a) such that (1) fresh
noise stays within it with probability at least a, whatever the test said, and (2) a guess beyond
it passes the test with probability at most 1 - a. If the guess is within its radius, only noise
can fail, and does so with probability at most 1 - a <= 1 - delta. If it is beyond, all is well when
it is rejected and the noise is small: at least a * a = delta. Where noise was drawn without a test,
delta itself serves. The paper's Proposition 1 takes delta for both, and then a far guess fails with
probability up to 1 - delta**2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from hereish.core.decision import LaplaceTest, TestThenNoise
from hereish.core.noise_first import NoiseFirst
from hereish.core.privacy import positive
from hereish.core.spaces import Sphere, find_point_outside
from hereish.core.types import Floats, Kind
from hereish.errors import ParameterError, PointError

Item = TypeVar("Item")
# A degree of latitude on WGS84 is nowhere longer. Rounding moves a release by 0.71 grid steps, and
# next to a pole, where the steps of longitude widen, by up to 0.9: a whole step covers it.
_LONGEST_DEGREE_M = 111_700.0
# Every guess passes the test with probability 6e-8 or more, so no radius can promise everything.
_MAX_DELTA = 0.999999
_COORDINATE_NAMES = (("lat", "lon"), ("latitude", "longitude"), ("lat", "lng"))


class ReportLike(Protocol):
    """What is read of a report: a `hereish.Report`, or one of the gateway's.

    Besides these, `threshold` (±inf if there was no test) or `threshold_m` (None if there was
    none), `noise_first` and `moves_noise` where they are not False and 0, and for a query `value`
    or `lat` and `lon`.
    """

    @property
    def kind(self) -> str: ...
    @property
    def eps_test(self) -> float: ...
    @property
    def eps_noise(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Query:
    """A query to a service. Made of public data: it may be sent, logged and kept."""

    lat: float
    lon: float
    radius_m: int  # rounded up, since some services take whole metres only


def accuracy_m(
    report: ReportLike,
    *,
    delta: float = 0.95,
    space: Sphere | None = None,
    test: TestThenNoise | None = None,
) -> float | None:
    """How far the user may be from the released place, for this kind of report (Proposition 1).

    Fresh noise stays within it with probability `delta`. A guess that is further away passes the
    test with probability at most `1 - delta`; that says how rarely it happens, and not how likely
    it is of a guess that has passed, which depends on how good guesses are.

    None where nothing is promised: an untested guess may be anywhere, and without a release there
    is no place.
    """
    return _error_radius_m(report, _check_delta(delta), _check_space(space), test)


def reach(
    report: ReportLike,
    *,
    r_m: float,
    delta: float = 0.95,
    space: Sphere | None = None,
    test: TestThenNoise | None = None,
) -> float | None:
    """The radius around the released place that holds all within `r_m` of the user, see above.

    `r_m` must be public too: the same for everybody, or chosen without looking at the place. None
    where nothing is promised, as for untested guesses; query with a radius of your own, or not
    at all.
    """
    delta, radius_m, sphere = _check_delta(delta), _check_radius(r_m), _check_space(space)
    tested = _read_plan(report).threshold is not None
    away_m = _error_radius_m(report, math.sqrt(delta) if tested else delta, sphere, test)
    # Great circles are longer than geodesics by at most 0.56 %, the inverse of the factor.
    return None if away_m is None else away_m + radius_m / sphere.claim_factor


def query(
    report: ReportLike,
    *,
    r_m: float,
    delta: float = 0.95,
    space: Sphere | None = None,
    test: TestThenNoise | None = None,
) -> Query | None:
    """The place and the radius to send to a service; None where `reach` promises nothing."""
    radius_m = reach(report, r_m=r_m, delta=delta, space=space, test=test)
    if radius_m is None:
        return None
    value = getattr(report, "value", None)
    if value is None:
        value = getattr(report, "lat", None), getattr(report, "lon", None)
    place = _to_row(value)
    if place is None or find_point_outside(_check_space(space), place) is not None:
        raise ParameterError(
            "the released value must be a latitude and a longitude in degrees, found something "
            "else; queries are for reports of a Sphere"
        )
    lat, lon = place[0].tolist()
    return Query(lat, lon, math.ceil(radius_m))


def nearby(
    answer: Iterable[Item],
    true_place: tuple[float, float],
    *,
    r_m: float,
    key: Callable[[Item], tuple[float, float]] | None = None,
) -> list[Item]:
    """Those of the answer that are within `r_m` of the true place, nearest first. Stays local.

    Understands things with `lat` and `lon` (or `latitude` and `longitude`, or `lat` and `lng`) as
    keys or attributes, elements of Overpass, and GeoJSON features of points; `key` gives the
    latitude and longitude of anything else. The result depends on the true place, and so does its
    order: do not send it anywhere.
    """
    radius_m = _check_radius(r_m)
    here = _to_row(true_place)
    sphere = Sphere()
    wrong = (
        "it must be two numbers"
        if here is None
        else (find_point_outside(sphere, here) or (0, None))[1]
    )
    if here is None or wrong is not None:
        raise PointError(f"bad true place: {wrong}")
    if isinstance(answer, (Mapping, str, bytes)):
        raise ParameterError(
            "answer must be a list of places, found the whole body; pass its list, such as "
            "body['elements'] (Overpass) or body['features'] (GeoJSON)"
        )
    items = list(answer)
    rows = [_locate(number, item, key) for number, item in enumerate(items)]
    places = np.array(rows, dtype=np.float64).reshape(-1, 2)
    beyond = (np.abs(places[:, 1]) > 180.0) & (np.abs(places[:, 1]) <= 540.0)  # across 180 degrees
    places[beyond, 1] = (places[beyond, 1] + 180.0) % 360.0 - 180.0
    bad = find_point_outside(sphere, places)
    if bad is not None:
        raise ParameterError(f"place {bad[0]} of the answer (counted from 0): {bad[1]}")
    distance_m = sphere.distance(places, np.broadcast_to(here, places.shape))
    order = np.argsort(distance_m, kind="stable")
    return [items[i] for i in order.tolist() if distance_m[i] <= radius_m]


def _error_radius_m(
    report: ReportLike, share: float, sphere: Sphere, test: TestThenNoise | None
) -> float | None:
    eps_test, eps_noise, threshold, noise_first, moves_noise = _read_plan(report)
    factor = sphere.claim_factor  # noise and test are drawn with eps times this
    if report.kind == Kind.HARD and eps_noise > 0.0:
        rounding_m = 10.0**-sphere.decimals * _LONGEST_DEGREE_M
        away = sphere.c_noise(share) / factor + moves_noise
        great_circle_m = away / eps_noise + rounding_m
    elif report.kind == Kind.EASY and eps_test > 0.0 and threshold is not None:
        if noise_first:
            c_test = NoiseFirst.c_test(share, eps_test / eps_noise)
        else:
            c_test = getattr(test, "c_test", LaplaceTest().c_test)(share)
        # A guess was rounded before it was tested. Thresholds may be below 0, distances may not.
        great_circle_m = max(0.0, threshold + c_test / (eps_test * factor))
    else:
        return None
    # Geodesics are longer than great circles by at most 0.45 %; this is 0.56 %, see `reach`.
    return great_circle_m / factor if math.isfinite(great_circle_m) else None


class _Plan(NamedTuple):
    eps_test: float
    eps_noise: float
    threshold: float | None  # None if there was no test
    noise_first: bool
    moves_noise: float


def _read_plan(report: ReportLike) -> _Plan:
    """The plan of a report: what was paid for test and noise, and the threshold."""
    if getattr(report, "kind", None) not in tuple(Kind):
        # Whatever it was is not repeated: it may be a true place that was passed by mistake.
        raise ParameterError(
            f"a report (hereish.Report or the client's) is needed, found {type(report).__name__}"
        )
    threshold = getattr(report, "threshold", getattr(report, "threshold_m", None))
    if threshold is not None and not math.isfinite(threshold):
        threshold = None
    return _Plan(
        float(report.eps_test),
        float(report.eps_noise),
        threshold,
        bool(getattr(report, "noise_first", False)),
        float(getattr(report, "moves_noise", 0.0)),
    )


def _check_delta(delta: float) -> float:
    if not (isinstance(delta, (int, float)) and 0.5 < delta <= _MAX_DELTA):
        raise ParameterError(f"delta must be above 0.5 and at most {_MAX_DELTA}, found {delta!r}")
    return float(delta)


def _check_radius(r_m: float) -> float:
    if not isinstance(r_m, (int, float, np.number)):  # not repeated: it may be a place
        raise ParameterError(f"r_m must be a number of metres, found {type(r_m).__name__}")
    return positive("r_m", float(r_m))


def _check_space(space: Sphere | None) -> Sphere:
    if space is not None and not isinstance(space, Sphere):
        raise ParameterError(f"space must be a hereish.Sphere, found {type(space).__name__}")
    return space or Sphere()


def _to_row(place: Any) -> Floats | None:
    """Two numbers as one row, or None: not an error here, which would carry the place along."""
    try:
        row = np.array(place, dtype=np.float64).reshape(1, -1)
    except (TypeError, ValueError):
        return None
    return row if row.shape == (1, 2) else None


def _locate(
    number: int, item: Item, key: Callable[[Item], tuple[float, float]] | None
) -> tuple[float, float]:
    try:
        lat, lon = key(item) if key else _locate_usual(item)
        return float(lat), float(lon)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ParameterError(
            f"place {number} of the answer (counted from 0) has no latitude and longitude that "
            "can be read; pass key=, a function that returns both"
        ) from None


def _locate_usual(item: Any) -> tuple[Any, Any]:
    """The latitude and longitude in the formats that `nearby` lists."""
    if not isinstance(item, Mapping):
        for lat, lon in _COORDINATE_NAMES:
            if hasattr(item, lat) and hasattr(item, lon):
                return getattr(item, lat), getattr(item, lon)
        raise AttributeError("lat")
    geometry = item.get("geometry")
    if isinstance(geometry, Mapping) and geometry.get("type") == "Point":
        return geometry["coordinates"][1], geometry["coordinates"][0]
    for at in (item, item.get("center")):  # ways of Overpass have one with `out center`
        for lat, lon in _COORDINATE_NAMES:
            if isinstance(at, Mapping) and lat in at and lon in at:
                return at[lat], at[lon]
    raise KeyError("lat")
