"""What four weeks tell of homes by default: docs/attack.md. Seeded, so the same in every run."""

from __future__ import annotations

from hereish.attack.night_study import best_rows, made_up, mechanisms, study

NIGHTS = (28,)


def homes_found(name: str, people: int) -> float:
    group = made_up(people, seed=63)
    compared = {name: mechanisms(group.time_zone)[name]}
    (row,) = best_rows(study(group, compared, nights=NIGHTS, seed=64))
    return float(row["best_within_200_m"])


def test_by_default_four_weeks_tell_few_homes() -> None:
    assert homes_found("whole-day", 14) <= 0.15


def test_places_that_get_ever_more_exact_tell_most_homes() -> None:
    """The control: the same observer, and what it can find."""
    assert homes_found("few-days", 6) >= 0.5
