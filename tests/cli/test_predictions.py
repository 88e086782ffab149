"""--prediction: what is chosen is what is built, stored and told, and nothing else changes."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from hereish import Day, Ensemble, Filter, Linear, Mobility, ParameterError, Parrot, PlaceMemory
from hereish.core.settings import (
    NUMBERS,
    PREDICTIONS,
    MechanismSettings,
    PredictionName,
    Preset,
)
from hereish.evaluation import settings_file
from hereish.gateway.ledger.policy import Policy
from tests.support.terminal import Terminal, output_of

ZONE = "Europe/Helsinki"
KINDS = {
    "parrot": Parrot,
    "places": PlaceMemory,
    "mobility": Mobility,
    "linear": Linear,
    "filter": Filter,
    "ensemble": Ensemble,
}


def settings_of(preset: Preset) -> MechanismSettings:
    return MechanismSettings(math.log(10), 100.0, preset=preset)


@pytest.fixture
def ride(tmp_path: Path) -> Path:
    """An hour on a train, north at 36 m/s, with a fix every ten seconds."""
    rows = ["time,lat,lon"]
    for i in range(360):
        minute, second = divmod(10 * i, 60)
        rows.append(f"2026-05-05T12:{minute:02}:{second:02}Z,{60.0 + i * 360 / 111_195:.6f},25.0")
    path = tmp_path / "ride.csv"
    path.write_text("\n".join(rows))
    return path


@pytest.mark.parametrize("preset", get_args(Preset))
def test_each_name_is_its_prediction_in_every_preset(preset: Preset) -> None:
    usual = settings_of(preset).build(Day(ZONE))
    for name in PREDICTIONS:
        m = replace(settings_of(preset), prediction=name).build(Day(ZONE))
        assert type(m.prediction) is KINDS[name]
        assert replace(m, prediction=usual.prediction) == usual, "and nothing else is another"
        if name == "ensemble":
            assert isinstance(m.prediction, Ensemble)
            assert m.prediction.members == (usual.prediction, Linear(), Filter())
        if isinstance(m.prediction, PlaceMemory):
            assert m.prediction.time_zone == ZONE
    own = "places" if preset in NUMBERS else "parrot"
    same = replace(settings_of(preset), prediction=own).build(Day(ZONE))  # type: ignore[arg-type]  # it is one
    assert same.fingerprint == usual.fingerprint


def test_a_name_that_is_none_and_noise_without_guesses_are_refused() -> None:
    unknown = MechanismSettings(1.0, 100.0, 3000.0, prediction="oracle")  # type: ignore[arg-type]  # so
    with pytest.raises(ParameterError, match="must be one of parrot, places, mobility"):
        unknown.build()
    independent = MechanismSettings(1.0, 100.0, 3000.0, mechanism="independent")
    with pytest.raises(ParameterError, match="independent noise predicts nothing"):
        replace(independent, prediction="linear").build()


@pytest.mark.parametrize("name", PREDICTIONS)
def test_files_are_sanitised_with_it(hereish: Terminal, ride: Path, name: str) -> None:
    out = ride.with_name("out.csv")
    wide = ("--level", "ln 10", "--radius", "1m", "--accuracy", "200m", "--seed", "1")
    told = output_of(hereish("sanitize", ride, "-o", out, *wide, "--prediction", name))
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    hard = sum(row["kind"] == "hard" for row in rows)
    if name in ("parrot", "places", "mobility"):
        assert len(rows) < 100, "the budget is gone: each report is fresh noise"
        assert hard > 0.8 * len(rows)
    else:
        assert len(rows) > 150
        assert hard < 0.4 * len(rows)
    assert ("its mean" in told) == (name in ("places", "mobility", "filter", "ensemble"))


def test_it_is_told_and_stored(hereish: Terminal) -> None:
    plan = ("plan", "--accuracy", "3km", "--every", "1min")
    assert "going on as the reports so far" in output_of(hereish(*plan, "--prediction", "linear"))
    assert "the last release again" in output_of(hereish(*plan))
    output_of(hereish("user", "add", "alice", "--accuracy", "3km", "--prediction", "filter"))
    assert "3 km, guesses by filter" in output_of(hereish("user", "show", "alice"))
    shown = json.loads(output_of(hereish("user", "show", "alice", "--json")))
    assert shown["policy"]["prediction"] == "filter"
    done = hereish("plan", "--reports", "9", "--mechanism", "independent", "--prediction", "linear")
    assert done.code == 2
    assert "leave out --prediction" in done.err


def test_policies_without_one_stay_the_same_to_the_byte() -> None:
    for name in (None, *PREDICTIONS):
        policy = Policy(level=2.0, radius_m=100.0, accuracy_m=3000.0, prediction=name)
        text = policy.to_json()
        assert ("prediction" in json.loads(text)) == (name is not None)
        assert Policy.from_json(text) == policy


def test_settings_are_tuned_for_it_and_used(hereish: Terminal, tmp_path: Path, ride: Path) -> None:
    path = tmp_path / "settings.toml"
    output_of(
        hereish(
            *("tune", "-o", path, "--trials", "4", "--p", "0.5", "--prediction", "filter"),
            *("--skip", "off"),
        )
    )
    found = settings_file.read(path)
    assert found.prediction == "filter"
    assert isinstance(found.build().prediction, Filter)
    out = ride.with_name("out.csv")
    done = hereish("sanitize", ride, "-o", out, "--settings", path, "--prediction", "linear")
    assert "--prediction is a setting of the file of --settings" in done.err
    output_of(hereish("sanitize", ride, "-o", out, "--settings", path))
    path.write_text(path.read_text().replace('"filter"', '"oracle"'))
    done = hereish("sanitize", ride, "-o", out, "--settings", path)
    assert "prediction must be one of parrot" in done.err


def test_every_name_is_described() -> None:
    assert set(PREDICTIONS) == set(get_args(PredictionName)) == set(KINDS)
