"""The first line of `hereish plan`, which needs no knowledge of the terms below it."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.terminal import Terminal, output_of


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--accuracy 3km", "12 to 36 reports per day (typically 25), usually within 3 km."),
        ("--accuracy 3km --every 2h", "12 reports per day, usually within 3 km."),
        ("--accuracy 3km --every 3d", "1 report every 3 days, usually within 3 km."),
        ("--accuracy 3km --mechanism independent", "17 reports per day, usually within 3 km."),
        (
            "--reports 17 --mechanism independent --window none",
            "17 reports in all, usually within 2.9 km.",
        ),
        (
            "--accuracy 3km --skip-speed 30km/h --window none",
            "12 to 34 reports in all (typically 24), usually within 3 km.",
        ),
        (
            "--reports 30 --skip-speed 30km/h",
            "22 to 31 reports per day (typically 29), usually within 4.1 km.",
        ),
        ("--accuracy 3km --window 12h", "12 to 24 reports per 12 h, usually within 3 km."),
        ("--accuracy 3km --window 10min", "1 report every 30 min, usually within 3 km."),
        (
            "--reports 3000 --window none",
            "more than 1,500 reports in all, usually within 410 km.",
        ),
        (
            "--accuracy 200m",
            "1 report in all, because the budget does not pay for another, usually within 200 m.",
        ),
        ("--accuracy 700m --radius 50m --every 0", None),
        ("--preset taxi", None),
        ("--window 6h", None),
    ],
)
def test_plan_begins_with_a_plain_line(hereish: Terminal, options: str, line: str | None) -> None:
    first, second, *_ = output_of(hereish("plan", *options.split())).splitlines()
    assert re.search(r"report.*, usually within [\d.]+ k?m\.$", first)
    assert line is None or first == line
    assert second == ""


@pytest.mark.parametrize("options", ["--accuracy 3km", "--reports 30", "--accuracy 7km"])
def test_the_line_has_the_numbers_of_the_forecast(hereish: Terminal, options: str) -> None:
    values = json.loads(output_of(hereish("plan", *options.split(), "--json")))
    expected = values["forecast"]
    ends = [
        expected["looked_ahead"] if end is None else end["reports"]
        for name, end in expected.items()
        if name.startswith("ends_")
    ]
    assert values["summary"].startswith(f"{min(ends)} to {max(ends)} reports per day")
    shown_km = float(values["summary"].split()[-2])
    assert shown_km == pytest.approx(values["noise_90_m"] / 1000, rel=0.02)


def test_the_terms_are_explained(hereish: Terminal) -> None:
    text = output_of(hereish("plan", "--accuracy", "3km"))
    terms = text.partition("The terms:\n")[2].partition("\n\n")[0]
    for term in ("epsilon", "fresh noise", "guess", "test", "threshold", "break-even"):
        assert re.search(rf"^  {term}  ", terms, re.M)
    alone = output_of(hereish("plan", "--accuracy", "3km", "--mechanism", "independent"))
    assert "epsilon" in alone
    assert "break-even" not in alone
