from __future__ import annotations

import json
from pathlib import Path

import pytest

from hereish import cli
from tests.support.terminal import Terminal, output_of

HONEST = """
import numpy as np

def planar(traces, at_s, rng):
    eps = np.log(10) / 100 / traces.shape[1]
    radius = rng.gamma(2.0, 1.1 / eps, traces.shape[:2])
    angle = rng.uniform(0.0, 2.0 * np.pi, traces.shape[:2])
    away = radius * np.exp(1j * angle) / 111_195.0
    lat = traces[:, :, 0]
    lon = traces[:, :, 1] + away.imag / np.cos(np.radians(lat))
    return np.stack([lat + away.real, lon], axis=2)
"""


def test_a_mechanism_of_ours_is_audited_by_its_options(hereish: Terminal) -> None:
    out = output_of(hereish("audit", "--accuracy", "1km", "--runs", 2000, "--seed", 1))
    assert "No violation was found" in out
    assert "100 m north at the equator" in out
    assert "chance of 1e-06" in out


def test_the_verdict_says_what_would_have_been_noticed(hereish: Terminal) -> None:
    options = ("--mechanism", "independent", "--reports", 4, "--latitude", 60, "--runs", 4000)
    near = ("audit", *options, "--distance", "100m", "--seed", 1)
    said = " ".join(output_of(hereish(*near)).split())
    share = json.loads(output_of(hereish(*near, "--json")))["seen_from_share"]
    assert f"9 times out of 10, if it lost {share:.2f} times what is claimed" in said


def test_programs_get_the_same(hereish: Terminal) -> None:
    options = ("--latitude", 45, "--distance", "50m", "--runs", 2000, "--seed", 1, "--length", 3)
    found = json.loads(output_of(hereish("audit", "--reports", 4, *options, "--json")))
    assert found["refuted"] is False
    assert found["runs"] == 2000
    assert found["pairs"][0]["pair"] == "50 m north at 45° N"
    assert found["pairs"][0]["claim_of_budget"] == pytest.approx(1.151, rel=0.01)


def test_a_claim_that_is_refuted_has_an_exit_code_of_its_own(hereish: Terminal) -> None:
    done = hereish("audit", "hereish.audit.controls:rounding", "--runs", 2000)
    assert done.code == cli.REFUTED == 3
    assert "REFUTED" in done.out
    quiet = hereish("audit", "hereish.audit.controls:rounding", "--runs", 2000, "--quiet")
    assert quiet.code == cli.REFUTED


def test_a_function_of_ones_own_is_found_in_the_folder(
    hereish: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_noise.py").write_text(HONEST, "utf-8")
    monkeypatch.chdir(tmp_path)
    done = hereish("audit", "my_noise:planar", "--runs", 5000, "--seed", 2)
    assert "No violation was found" in output_of(done)
    # The same noise for a claim of less than a third as much.
    done = hereish("audit", "my_noise:planar", "--level", "ln 2", "--runs", 20_000, "--seed", 2)
    assert done.code == cli.REFUTED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "SyntaxError"),
        ("raise ValueError('no')", "ValueError: no"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_a_module_that_fails_is_no_audit_that_has_passed(
    text: str, said: str, hereish: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"failing_{said[:3].lower()}"
    (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    done = hereish("audit", f"{name}:f", "--runs", 2000)
    assert done.code == cli.USAGE_ERROR
    assert f"fails when it is imported: {said}" in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nothing_here:f",), "cannot import"),
        (("hereish.audit.controls:rounding", "--accuracy", "3km"), "--accuracy describes"),
        (("--distance", "300km"), "at most 100 km"),
    ],
)
def test_usage_errors_say_what_to_do(hereish: Terminal, args: tuple[str, ...], said: str) -> None:
    done = hereish("audit", *args)
    assert done.code == cli.USAGE_ERROR
    assert said in done.err
