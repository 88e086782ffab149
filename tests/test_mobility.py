"""Mobility models of groups: learnt from stays, saved, loaded, and refused if they are not ours."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hereish import Mobility, MobilityModel, ParameterError, PointError, Privacy, Run, whole_day
from hereish.core.mobility_model import BINS, PARTS
from hereish.core.types import Floats
from hereish.mobility import FORMAT, learn_model, load_model, save_model

ZONE = "Asia/Tokyo"
# Homes of two, and where both work: some hundred metres, and kilometres, apart.
HOMES, WORK = [(35.70, 139.70), (35.66, 139.75)], (35.68, 139.76)


def fortnight(every_min: int = 5) -> dict[str, Any]:
    """Two people who go to work from 9 to 17 on weekdays, with a fix now and then."""
    start = datetime(2024, 5, 6, tzinfo=ZoneInfo(ZONE))  # a Monday
    rng = np.random.default_rng(1)
    at_s, points, users = [], [], []
    for user, home in enumerate(HOMES):
        for minute in range(0, 14 * 1440, every_min):
            at = start + timedelta(minutes=minute)
            works = at.weekday() < 5 and 9 <= at.hour < 17
            at_s.append(at.timestamp())
            points.append(np.add(WORK if works else home, rng.normal(0.0, 2e-4, 2)))
            users.append(user * 10 + 7)
    return {"at_s": at_s, "points": points, "users": users}


@pytest.fixture(scope="module")
def model() -> MobilityModel:
    return learn_model(**fortnight(), name="two workers", time_zone=ZONE, places=8, licence="ours")


def places_of(model: MobilityModel) -> dict[str, int]:
    found = {}
    for name, place in {"work": WORK, "home 0": HOMES[0], "home 1": HOMES[1]}.items():
        away = np.abs(model.places - place).max(axis=1)
        found[name] = int(away.argmin())
        assert away.min() < 1e-3
    return found


def test_places_are_where_people_stay(model: MobilityModel) -> None:
    assert len(model) == 3
    places = places_of(model)
    assert len(set(places.values())) == 3
    # 22 and 18 m to each side, of one fix in ten minutes; what is nearer than 50 m counts as that.
    assert 1.0 / np.sqrt(model.exactness).max() == pytest.approx(50.0)


def test_hours_are_those_of_the_local_clock_and_moves_go_to_work_and_back(
    model: MobilityModel,
) -> None:
    places = places_of(model)
    work = model.hours[places["work"]]
    usual = np.diff(np.clip(3.0 * np.arange(PARTS + 1), 9.0, 17.0))
    np.testing.assert_allclose(work[:PARTS] / work[:PARTS].sum(), usual / 8.0, atol=0.03)
    np.testing.assert_allclose(work[PARTS:], 0.0, atol=1e-9)
    assert model.hours.sum() == pytest.approx(2 * 24.0, rel=0.01), "each person's are a day"
    for home in ("home 0", "home 1"):
        assert model.moves[places[home], places["work"]] == 10.0
        assert model.moves[places["work"], places[home]] == 10.0
    assert model.moves.sum() == 40.0


def test_a_group_of_many_leaves_out_what_is_rare() -> None:
    kept = learn_model(**fortnight(), name="two", time_zone=ZONE, places=2)
    assert len(kept) == 2
    assert {int(np.abs(kept.places - home).max(axis=1).min() < 1e-3) for home in HOMES} == {1}


def test_the_order_of_fixes_and_the_numbers_of_users_do_not_matter(model: MobilityModel) -> None:
    data = fortnight()
    order = np.random.default_rng(3).permutation(len(data["at_s"]))
    mixed: dict[str, Any] = {name: np.asarray(values)[order] for name, values in data.items()}
    mixed["users"] = np.where(mixed["users"] == 7, 0, 1)
    again = learn_model(**mixed, name="two workers", time_zone=ZONE, places=8, licence="ours")
    assert again == model


def test_it_survives_a_file(model: MobilityModel, tmp_path: Path) -> None:
    path = tmp_path / "group.npz"
    save_model(model, path)
    again = load_model(path)
    assert again == model
    assert repr(again) == repr(model)
    assert (again.name, again.licence) == ("two workers", "ours")
    for name in ("places", "exactness", "hours", "moves"):
        assert getattr(again, name).tobytes() == getattr(model, name).tobytes()


def test_files_that_are_none_of_another_version_or_changed_are_refused(
    model: MobilityModel, tmp_path: Path
) -> None:
    path = tmp_path / "group.npz"
    with pytest.raises(ParameterError, match="cannot be read"):
        load_model(path)
    path.write_bytes(b"no model")
    with pytest.raises(ParameterError, match="found something else"):
        load_model(path)
    save_model(model, path)
    with np.load(path) as arrays:
        held = {key: arrays[key] for key in arrays.files}

    def rewritten(**changed: Any) -> Path:
        np.savez(path, **(held | {name: np.array(value) for name, value in changed.items()}))
        return path

    with pytest.raises(ParameterError, match="made by another hereish"):
        load_model(rewritten(format=FORMAT.replace("1", "2")))
    with pytest.raises(ParameterError, match="found something else"):
        load_model(rewritten(format="hereish prior 1"))
    with pytest.raises(ParameterError, match="changed after it was saved"):
        load_model(rewritten(exactness=2.0 * held["exactness"]))
    with pytest.raises(ParameterError, match="numbers from 0"):
        load_model(rewritten(moves=-held["moves"]))
    with pytest.raises(ParameterError, match="must be finite"):
        load_model(rewritten(hours=np.full((3, BINS), np.nan)))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"points": np.zeros((3, 3))}, ParameterError, "as many times"),
        ({"users": [1, 2]}, ParameterError, "as many times"),
        ({"points": [(91.0, 0.0)] * 3}, PointError, "on the globe"),
        ({"at_s": [0.0, np.inf, 9.0]}, PointError, "finite"),
        ({"places": 0}, ParameterError, "from 1 to 256"),
        ({"near_m": 0.0}, ParameterError, "near_m"),
        ({"at_s": [0.0, 1e6, 2e6]}, ParameterError, "nothing to learn"),
        ({"time_zone": "Europe/Nowhere"}, ParameterError, "Nowhere"),
    ],
    ids=repr,
)
def test_what_cannot_be_learnt_from_is_refused(
    wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    usual: dict[str, Any] = {
        "at_s": [0.0, 900.0, 1800.0],
        "points": [(60.0, 25.0)] * 3,
        "users": [0, 0, 0],
        "name": "one",
    }
    assert len(learn_model(**usual)) == 1
    with pytest.raises(error, match=message) as raised:
        learn_model(**(usual | wrong))
    assert "91" not in str(raised.value), "no place in an error"


def test_it_is_learnt_across_the_antimeridian_and_at_a_pole() -> None:
    rng = np.random.default_rng(2)
    for lat, lon in ((-17.0, 180.0), (89.9999, 0.0)):
        lons = (lon + rng.normal(0.0, 3e-4, 50) / np.cos(np.radians(lat)) + 540.0) % 360.0 - 180.0
        points: Floats = np.column_stack([np.full(50, lat), lons])
        learnt = learn_model(600.0 * np.arange(50), points, np.zeros(50), name="edge")
        assert len(learnt) == 1
        assert 1.0 / np.sqrt(learnt.exactness[0]) < 120.0


def test_a_first_report_of_somebody_new_is_nearer_with_the_group(model: MobilityModel) -> None:
    errors = {}
    at = datetime(2024, 6, 4, 2, tzinfo=UTC)  # at eleven in Tokyo
    for name, known in (("group", model), ("nobody", None)):
        mobility = Mobility(time_zone=ZONE, model=known)
        m = whole_day(Privacy(2.3, 100.0), prediction=mobility)
        values = np.array([m.session(seed=i).report(WORK, at).value for i in range(200)])
        errors[name] = m.space.distance(values, np.broadcast_to(WORK, values.shape)).mean()
    assert errors["group"] < 0.8 * errors["nobody"]


def test_a_road_prediction_turns_to_where_the_group_goes(model: MobilityModel) -> None:
    from hereish.roads import RoadPrediction, graph_from_lines

    east = np.array([[0.0, 0.0], [0.0, 0.01], [0.0, 0.05]])
    north = np.array([[0.0, 0.01], [0.05, 0.01]])
    graph = graph_from_lines([east, north], name="crossing")
    run = Run.empty(1, 2, 3)
    values, times = run.values.copy(), run.times_s.copy()
    for i in range(3):
        values[0, i], times[0, i] = (0.0, 0.009 - 0.003 * i), 1000.0 - 60.0 * i
    run = run._replace(values=values, times_s=times)
    hours, moves = np.zeros((2, BINS)), np.zeros((2, 2))
    hours[1] = 1.0
    guesses = {}
    for goal in ((0.05, 0.01), (0.0, 0.05)):
        places = np.array([(0.0, -0.05), goal])
        known = MobilityModel("goal", places, np.full(2, 1e-4), hours, moves)
        towards = Mobility(model=known).towards
        np.testing.assert_array_equal(towards(run, run.at_s + 60.0)[0], goal)
        prediction = RoadPrediction(graph, still_m=100.0, pace=0.8, towards=towards)
        guesses[goal] = prediction(run, run.at_s + 60.0)[0]
        m = whole_day(Privacy(2.3, 100.0), prediction=prediction)
        assert known.digest in m.fingerprint, "the model is part of what is promised"
    assert guesses[0.05, 0.01][0] > 0.0005, "it turns north at the crossing"
    assert guesses[0.0, 0.05][0] == pytest.approx(0.0, abs=1e-6)
    assert guesses[0.0, 0.05][1] > 0.0105, "it goes straight on"


def test_damaged_files_are_refused_whatever_is_wrong_with_them(
    model: MobilityModel, tmp_path: Path
) -> None:
    path, rng = tmp_path / "model.npz", np.random.default_rng(5)
    save_model(model, path)
    whole = path.read_bytes()
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(ParameterError, match="expected a mobility model"):
        load_model(tmp_path / "array.npy")
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            load_model(path)
        except ParameterError:
            refused += 1
    assert refused > 100


def test_files_that_are_made_to_fill_the_memory_are_refused(
    model: MobilityModel, tmp_path: Path
) -> None:
    path, huge = tmp_path / "model.npz", np.zeros(1 << 23)  # which pack to a thousandth
    save_model(model, path)
    with np.load(path) as arrays:
        held = {key: arrays[key] for key in arrays.files}
    tracemalloc.start()
    np.savez_compressed(path, **held, another=huge)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    assert load_model(path) == model, "what is not asked for is not read"
    for name in ("moves", "name"):
        np.savez_compressed(path, **(held | {name: huge}))
        tracemalloc.reset_peak()
        with pytest.raises(ParameterError, match="unpacks to far more"):
            load_model(path)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < huge.nbytes / 10
