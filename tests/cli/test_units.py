from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import hereish
from hereish.cli import _units

GOOD: list[tuple[Callable[[str], float], str, float]] = [
    (_units.length_m, "100m", 100.0),
    (_units.length_m, " 3 km ", 3000.0),
    (_units.length_m, "0.5mi", 804.672),
    (_units.length_m, "1e3m", 1000.0),
    (_units.length_m, "10ft", 3.048),
    (_units.speed_kmh, "30km/h", 30.0),
    (_units.speed_kmh, "10 m/s", 36.0),
    (_units.duration_s, "5min", 300.0),
    (_units.duration_s, "1.5h", 5400.0),
    (_units.level, "ln 10", math.log(10)),
    (_units.level, "ln(4)", math.log(4)),
    (_units.level, "2.5", 2.5),
]


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_numbers_with_units_are_read(
    parse: Callable[[str], float], text: str, value: float
) -> None:
    assert parse(text) == pytest.approx(value, rel=1e-12)


BAD: list[tuple[Callable[[str], float], str, str]] = [
    (_units.length_m, "100", "'100' has no unit"),
    (_units.length_m, "100 parsecs", "'parsecs' is not one of them"),
    (_units.length_m, "100M", "such as 100m or 3km; found '100M'"),
    (_units.length_m, "-5m", "found '-5m'"),
    (_units.length_m, "0km", "above 0"),
    (_units.length_m, "", "found ''"),
    (_units.length_m, "1e999m", "above 0"),
    (_units.length_m, "nanm", "found 'nanm'"),
    (_units.speed_kmh, "30", "'30' has no unit"),
    (_units.duration_s, "5 minutes", "'minutes' is not one of them"),
    (_units.level, "ln 1", "found 'ln 1'"),
    (_units.level, "ln 0", "found 'ln 0'"),
    (_units.level, "-1", "found '-1'"),
    (_units.level, "1.2.3", "found '1.2.3'"),
    (_units.level, "ten", "such as 'ln 10'"),
]


@pytest.mark.parametrize(("parse", "text", "words"), BAD)
def test_what_is_wrong_is_said_with_an_example(
    parse: Callable[[str], float], text: str, words: str
) -> None:
    with pytest.raises(hereish.ParameterError) as refused:
        parse(text)
    assert words in str(refused.value)


def test_budgets_are_levels_per_period_and_the_shortest_comes_first() -> None:
    parsed = _units.budgets(["ln 1e6/forever", "ln 1000 / month", "2.5/24h", "ln 9/30 d"])
    assert [one.period for one in parsed] == ["24h", "30d", "month", "forever"]
    assert [one.level for one in parsed] == [2.5, math.log(9), math.log(1000), math.log(1e6)]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["ln 10"], "a budget is a level and a period"),
        (["ln 10/week"], "a period is day, month, forever or a rolling one"),
        (["ln 10/0h"], "duration in seconds must be a finite number above 0"),
        (["ln 10/1e9d"], "a period is"),
        (["ln 10/99999999999d"], "a period is"),
        (["/day"], "a level is a number above 0"),
        (["ln 10/day", "ln 20/day"], "each period has one budget, found day, day"),
    ],
)
def test_what_is_no_budget_is_refused(texts: list[str], why: str) -> None:
    with pytest.raises(hereish.ParameterError, match=why):
        _units.budgets(texts)
