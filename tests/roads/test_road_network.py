"""RoadNetwork as a space: nodes, refusals, the same bits live and in batch, and no memory."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pyproj import Geod

import hereish
from hereish import ParameterError, PartError, Privacy, sanitize
from hereish.core.fingerprint import fingerprint
from hereish.core.types import Floats
from hereish.roads import RoadNetwork, graph_from_lines
from tests.support.laws import uniforms
from tests.support.towns import blocks, metres, village

LAWS = ["exponential", "laplace"]
PRIVACY = Privacy(math.log(10.0), 100.0)
START = datetime(2026, 5, 5, 8, tzinfo=UTC)


def space_of(law: Any, **rest: Any) -> RoadNetwork:
    return RoadNetwork(rest.get("graph", blocks()), law)


@pytest.mark.parametrize("law", LAWS)
def test_distances_are_along_the_streets(law: str) -> None:
    space = space_of(law)
    a, b = metres(np.array([[(0.0, 0.0)], [(300.0, 400.0)]])[:, 0])[:, None]
    assert space.distance(a, b)[0] == pytest.approx(700.0, abs=0.2)
    # People write points, not rows.
    assert space.distance(tuple(a[0]), tuple(b[0])) == space.distance(a, b)[0]  # type: ignore[arg-type]
    nowhere = np.full((1, 2), np.nan)
    assert np.isnan(space.distance(nowhere, b)).all()
    assert np.isnan(space.snap(nowhere)).all()
    assert (
        space.distance(a, b).tolist()
        == space.distance(np.vstack([a, a]), np.vstack([b, b]))[1:].tolist()
    )


@pytest.mark.parametrize("law", LAWS)
def test_releases_are_nodes(law: str) -> None:
    space = space_of(law)
    x = metres(uniforms(1, 300, 2) * 800.0)
    out = space.noise(x, 0.01, uniforms(2, 300, space.uniforms))
    assert np.array_equal(space.snap(out), out)
    assert {tuple(p) for p in out.tolist()} <= {tuple(p) for p in space.graph.nodes.tolist()}
    assert len(np.unique(out, axis=0)) > 30


@pytest.mark.parametrize("law", LAWS)
def test_noise_of_one_lane_is_that_lane_of_the_noise_of_many(law: str) -> None:
    space = space_of(law)
    x, u = metres(uniforms(3, 40, 2) * 800.0), uniforms(4, 40, space.uniforms)
    eps = np.geomspace(1e-4, 1e-1, 40)
    together = space.noise(x, eps, u)
    for i in range(40):
        lane = slice(i, i + 1)
        assert np.array_equal(space.noise(x[lane], eps[lane], u[lane]), together[lane])
        assert np.array_equal(space.noise(x[lane], float(eps[i]), u[lane]), together[lane])


def walk(steps: int) -> tuple[Floats, list[datetime]]:
    turns = np.cumsum(uniforms(5, steps, 2) * 120.0 - 60.0, axis=0)
    return metres(turns + 400.0), [START + timedelta(minutes=3 * i) for i in range(steps)]


def mechanisms(law: str) -> dict[str, hereish.PredictiveMechanism]:
    space = space_of(law)
    return {
        "fixed utility": hereish.fixed_utility(PRIVACY, 3000.0, space=space),
        "fixed rate": hereish.fixed_rate(PRIVACY, 20, space=space),
        "independent": hereish.independent(PRIVACY, reports=12, space=space),
    }


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["fixed utility", "fixed rate", "independent"])
def test_live_and_batch_release_the_same(name: str, law: str) -> None:
    m = mechanisms(law)[name]
    points, times = walk(12)
    batch = sanitize(m, points, [at.timestamp() for at in times], [0, 12], seed=6)
    session, live = m.session(seed=6), []
    for point, at in zip(points, times, strict=True):
        try:
            live.append(session.report(tuple(point), at).value)
        except hereish.BudgetExhaustedError:
            break
    assert len(live) == batch.released.sum() >= 6
    assert np.array_equal(live, batch.value[: len(live)])
    assert session.spent == batch.spent[0] <= PRIVACY.eps_per_m
    restored = hereish.Session.from_state(m, session.to_state(), seed=1)
    assert np.array_equal(restored.run.value, session.run.value)


@pytest.mark.parametrize("law", LAWS)
def test_what_was_asked_before_changes_nothing(law: str) -> None:
    """Nothing that was computed for a secret is kept: not in the space, not in its tables."""
    used, fresh = space_of(law), space_of(law)
    x, u = metres(uniforms(7, 30, 2) * 800.0), uniforms(8, 30, used.uniforms)
    used.noise(x[::-1], 0.02, u)
    held = pickle.dumps(vars(used.index))
    first, again = used.noise(x, 0.01, u), used.noise(x, 0.01, u)
    assert np.array_equal(first, again)
    assert np.array_equal(first, fresh.noise(x, 0.01, u))
    assert pickle.dumps(vars(used.index)) == held
    public = {"graph", "law", "_cap", "_axes"}
    assert vars(used).keys() <= public


def test_it_survives_pickling_and_is_known_by_its_network() -> None:
    space = space_of("exponential")
    assert pickle.loads(pickle.dumps(space)) == space  # noqa: S301  # our own bytes
    shown = {fingerprint(space_of(law, graph=g)) for law in LAWS for g in (blocks(), village())}
    assert len(shown) == 4
    used = space_of("exponential")
    used.noise(used.graph.nodes[:1], 0.01, np.full((1, used.uniforms), 0.5))
    assert fingerprint(used) == fingerprint(space), "tables are no settings"


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("eps", [0.002, 0.01, 0.1])
def test_the_stated_share_of_the_noise_lies_within_the_stated_distance(
    law: str, eps: float
) -> None:
    """On average over the network; 4,000 draws are right within 2.5 points (five deviations)."""
    space = space_of(law)
    x = np.tile(space.graph.nodes, (50, 1))[:4000]
    out = space.noise(x, eps, uniforms(9, len(x), space.uniforms))
    within = (space.distance(x, out) <= space.c_noise(0.9) / eps).mean()
    assert within >= 0.9 - 0.025
    assert 3.0 < space.c_noise(0.9) < 13.0
    assert space.c_noise(0.5) < space.c_noise(0.9)
    with pytest.raises(ParameterError, match="delta must lie strictly"):
        space.c_noise(1.0)


def test_whoever_is_beyond_the_network_is_reported_at_its_edge() -> None:
    space = space_of("exponential")
    far = np.array([[-33.9, 151.2]])
    report = hereish.independent(Privacy(1e3, 1.0), reports=1, space=space).session(seed=1)
    released = report.report(tuple(far[0]), START).value
    assert np.array_equal([released], space.snap(far))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"graph must be a hereish\.roads\.RoadGraph"):
        RoadNetwork("roads.npz")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="law must be 'exponential' or 'laplace'"):
        RoadNetwork(blocks(), "gaussian")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="no shorter than the crow flies"):
        RoadNetwork(blocks().stretched(np.array(0.5)), "laplace")
    with pytest.raises(PartError, match="unrounded_noise"):
        hereish.whole_day(PRIVACY, space=space_of("laplace"), prediction=hereish.Parrot())


def test_errors_never_contain_the_point() -> None:
    session = mechanisms("exponential")["independent"].session(seed=1)
    with pytest.raises(hereish.PointError) as caught:
        session.report((95.123, 24.0), START)
    assert "95.123" not in str(caught.value)


@pytest.mark.parametrize("lat", [0.0, 45.0, 89.0])
def test_a_metre_of_the_claim_is_no_longer_than_one_of_the_road_and_a_centimetre(
    lat: float,
) -> None:
    """Roads of 20 pieces in eight directions, on the ellipsoid, by another library."""
    turn = np.linspace(0.0, 2.0 * math.pi, 9)[:-1]
    lon, ahead, _ = Geod(ellps="WGS84").fwd(
        np.zeros(8), np.full(8, lat), np.degrees(turn), np.full(8, 2000.0)
    )
    lines = [[(lat, 0.0), (north, east)] for north, east in zip(ahead, lon, strict=True)]
    graph = graph_from_lines(lines, name="star")
    low, high = graph.edges.T
    a, b = graph.nodes[low], graph.nodes[high]
    geodesic = np.asarray(Geod(ellps="WGS84").inv(a[:, 1], a[:, 0], b[:, 1], b[:, 0])[2])
    claimed = RoadNetwork.claim_factor * 0.01 * graph.lengths_cm
    assert (claimed <= geodesic + 0.0100001).all()
    assert (claimed > 0.98 * geodesic).all()
