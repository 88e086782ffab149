"""Policies: what they describe, and that a change never pays for a window twice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from hereish.core import presets
from hereish.core.settings import ACCURACY_M, NUMBERS, PRESETS, Preset
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy, _parse_and_build
from hereish.gateway.ledger.tables import entries
from tests.support.ledgers import empty_ledger
from tests.support.stage import HELSINKI, member, policy, shown

FAR = (61.5, 25.5)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def utc(day: int, hour: float = 0.0) -> float:
    return datetime(2025, 11, day, tzinfo=UTC).timestamp() + hour * 3600


STORED = (
    '{"accuracy_m": 2000.0, "eta": 0.4, "gamma": 0.9, "interval_s": 600.0, "level": 1.5, '
    '"mechanism": "predictive", "on_exhausted": "predict", "prediction_rate": 0.5, '
    '"radius_m": 100.0, "skip_kmh": 30.0, "skip_limit_m": 500.0, "skip_since": "tested", '
    '"time_zone": "Asia/Tokyo", "window": "43200"}'
)
STORED_FIRST = (  # by the first version: what was not set is not in it
    '{"interval_s": 1800.0, "level": 2.302585092994046, "mechanism": "independent", '
    '"on_exhausted": "stop", "radius_m": 200, "reports": 30, "skip_since": "hard", '
    '"time_zone": "UTC", "window": "day"}'
)


@pytest.mark.parametrize("stored", [STORED, STORED_FIRST])
def test_stored_policies_stay_the_same_to_the_byte(stored: str) -> None:
    loaded = Policy.from_json(stored)
    assert loaded.to_json() == stored
    assert loaded.build().window == loaded._window()


def test_a_stored_policy_is_the_one_that_was_set() -> None:
    assert Policy.from_json(STORED) == Policy(
        level=1.5,
        radius_m=100.0,
        accuracy_m=2000.0,
        eta=0.4,
        gamma=0.9,
        prediction_rate=0.5,
        skip_kmh=30.0,
        skip_limit_m=500.0,
        skip_since="tested",
        window="43200",
        time_zone="Asia/Tokyo",
        interval_s=600.0,
        on_exhausted="predict",
    )
    shortest = Policy.from_json('{"level": 2.0, "radius_m": 100.0, "accuracy_m": 3000.0}')
    assert shortest == Policy(level=2.0, radius_m=100.0, accuracy_m=3000.0)


def test_a_policy_survives_its_text() -> None:
    full = policy(eta=0.4, gamma=0.9, skip_kmh=30.0, skip_since="tested", time_zone="Asia/Tokyo")
    assert Policy.from_json(full.to_json()) == full
    assert full.build() == Policy.from_json(full.to_json()).build()


# As the version before presets stored them, with the fingerprints of what it built from them.
BEFORE_PRESETS = {
    "utility": (
        '{"accuracy_m": 3000.0, "interval_s": 1800.0, "level": 2.302585092994046, "mechanism": '
        '"predictive", "on_exhausted": "stop", "radius_m": 100.0, "skip_since": "hard", '
        '"time_zone": "Europe/Helsinki", "window": "day"}',
        "Privacy(level=2.302585092994046, radius_m=100.0); FixedUtility(accuracy=3000.0, "
        "constants=Constants(c_noise=3.889720169867429, c_test=1.6094379124341005, eta=0.5, "
        "gamma=0.8)); Sphere(decimals=5); Parrot(); LaplaceTest(); None; "
        "Day(time_zone='Europe/Helsinki'); stop",
    ),
    "rate": (
        '{"interval_s": 600.0, "level": 2.302585092994046, "mechanism": "predictive", '
        '"on_exhausted": "stop", "radius_m": 100.0, "reports": 30, "skip_kmh": 30.0, '
        '"skip_since": "hard", "time_zone": "Europe/Helsinki", "window": "day"}',
        "Privacy(level=2.302585092994046, radius_m=100.0); FixedRate(rate=0.0007675283643209241, "
        "prediction_rate=0.75, learn_after=8, constants=Constants(c_noise=3.889720169867429, "
        "c_test=1.6094379124341005, eta=0.6, gamma=0.8)); Sphere(decimals=5); Parrot(); "
        "LaplaceTest(); SkipBySpeed(kmh=30.0, limit_m=None, since='hard'); "
        "Day(time_zone='Europe/Helsinki'); stop",
    ),
}


@pytest.mark.parametrize("which", sorted(BEFORE_PRESETS))
def test_policies_from_before_presets_build_what_they_built(which: str) -> None:
    stored, fingerprint = BEFORE_PRESETS[which]
    loaded = Policy.from_json(stored)
    assert loaded.build().fingerprint == fingerprint
    assert loaded.with_preset_numbers() == loaded
    assert loaded.to_json() == stored


def test_without_an_accuracy_the_budget_lasts_the_day() -> None:
    default = Policy(math.log(10), 100.0, time_zone="Europe/Helsinki")
    expected = presets.whole_day(default.privacy, window=Day("Europe/Helsinki"))
    assert default.build().fingerprint == expected.fingerprint
    quarter = replace(default, interval_s=900.0).build()
    paced = presets.whole_day(
        default.privacy, every=timedelta(minutes=15), window=Day("Europe/Helsinki")
    )
    assert quarter.fingerprint == paced.fingerprint != expected.fingerprint
    every_fix = replace(default, interval_s=0.0).build()
    assert every_fix.fingerprint == replace(default, interval_s=300.0).build().fingerprint


@pytest.mark.parametrize("interval_s", [0.0, 1.0, 300.0, 7 * 86_400.0])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_is_a_policy_at_any_interval(preset: Preset, interval_s: float) -> None:
    one = Policy(math.log(10), 100.0, preset=preset, interval_s=interval_s)
    stored = Policy.from_json(one.with_preset_numbers().to_json())
    assert stored.build().fingerprint == one.build_checked().fingerprint
    assert one.describe().startswith(f"{preset} ({PRESETS[preset]})")


def test_retuned_numbers_do_not_change_a_policy_that_is_stored(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an upgrade in the middle of a day would find a state of another mechanism."""
    token = shown(member(ledger, preset="whole-day", interval_s=1800.0))
    first = ledger.report(token, [Fix(*HELSINKI, utc(3, 9))]).answers[0].release
    retuned = replace(presets.WHOLE_DAY, near=3.0, share=0.5)
    monkeypatch.setitem(NUMBERS, "whole-day", retuned)
    _parse_and_build.cache_clear()
    ledger.policies._cached.clear()
    again, later = ledger.report(
        token, [Fix(*HELSINKI, utc(3, 9)), Fix(*HELSINKI, utc(3, 10))]
    ).answers
    assert again.release == first
    assert later.own
    kept = accounts.describe_user(ledger, "alice").policy
    assert "numbers of its own" in kept.describe()
    # Negative control: a policy that does not hold them is another one from now on.
    bare = policy(preset="whole-day", interval_s=1800.0)
    assert bare.build().fingerprint != kept.build().fingerprint


def test_a_policy_from_before_places_had_an_end_has_none() -> None:
    kept = Policy(math.log(10), 100.0, preset="whole-day").with_preset_numbers()
    assert kept.numbers is not None
    assert kept.numbers["finest"] > 0.0
    older = json.loads(kept.to_json())
    added = dict.fromkeys(("finest", "finest_noise", "night"), 0.0)
    for name in added:
        del older["numbers"][name]
    loaded = Policy.from_json(json.dumps(older))
    assert loaded.numbers == kept.numbers | added
    assert loaded.build().fingerprint != kept.build().fingerprint


def test_policies_are_described_in_words() -> None:
    default = Policy(math.log(10), 100.0, quiet="23:00-06:30")
    lasting = "whole-day (a budget that lasts the day, for anybody)"
    assert default.describe() == f"{lasting}, no tests from 23:00 to 06:30"
    assert default.with_preset_numbers().describe() == default.describe()
    planned = Policy(math.log(10), 100.0, preset="whole-day", reports=30, accuracy_m=850.0)
    assert planned.describe() == f"{lasting}, about 30 reports, 850 m"
    assert policy().describe() == "predictive, 3 km"
    for preset in ("walker", "taxi", "paper-utility"):
        assert policy(preset=preset, accuracy_m=None).describe().endswith("), 3 km")
    assert policy(preset="walker", accuracy_m=500.0).describe().endswith("), 500 m")


def test_the_accuracy_in_force_is_stored(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later hereish may have another one where none is given."""
    member(ledger, preset="walker", accuracy_m=None)
    kept = accounts.describe_user(ledger, "alice").policy
    assert kept.accuracy_m == ACCURACY_M
    before = kept.build().fingerprint
    monkeypatch.setattr("hereish.core.settings.ACCURACY_M", 5000.0)
    assert Policy.from_json(kept.to_json()).build().fingerprint == before
    # Negative control: without it the policy would be another one.
    assert replace(kept, accuracy_m=None).build().fingerprint != before


def test_a_policy_of_a_newer_version_is_refused() -> None:
    text = json.dumps({**json.loads(policy().to_json()), "colour": "green"})
    with pytest.raises(ParameterError, match="colour"):
        Policy.from_json(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": "week"}, "a window is day"),
        ({"window": "30"}, "a window is day"),
        ({"time_zone": "Moon/Crater"}, "IANA name"),
        ({"time_zone": "Moon/Crater", "window": "3600"}, "IANA name"),
        ({"reports": 30, "accuracy_m": 3000.0}, "either an accuracy .* or a number of reports"),
        ({"mechanism": "independent", "skip_kmh": 30.0}, "skips tests"),
        ({"accuracy_m": 10.0}, "the whole budget is"),
        ({"level": -1.0}, "level must be"),
    ],
)
def test_a_policy_that_describes_nothing_says_why(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        policy(**settings).build()


@pytest.mark.parametrize("interval_s", [-1.0, math.nan, math.inf, 8 * 86_400.0])
def test_an_interval_has_bounds(interval_s: float) -> None:
    with pytest.raises(ParameterError, match="smallest interval"):
        policy(interval_s=interval_s)


def test_a_change_waits_for_the_next_window(ledger: Ledger) -> None:
    token = shown(member(ledger))
    ledger.report(token, [Fix(*HELSINKI, utc(3, 10))])
    assert accounts.set_policy(ledger, "alice", policy(reports=30, radius_m=50.0)) == 2
    same = ledger.report(token, [Fix(*HELSINKI, utc(3, 11))])
    assert same.policy.accuracy_m == 3000.0
    assert same.budget.total == math.log(10) / 100
    assert accounts.describe_user(ledger, "alice").waiting is not None
    fresh = ledger.report(token, [Fix(*HELSINKI, utc(4, 1))])
    assert fresh.policy.reports == 30
    assert fresh.budget.total == math.log(10) / 50
    assert fresh.answers[0].release is not None
    assert fresh.budget.spent == fresh.answers[0].release.cost
    assert accounts.describe_user(ledger, "alice").waiting is None


def test_before_the_first_report_a_change_applies_at_once(ledger: Ledger) -> None:
    token = shown(member(ledger))
    accounts.set_policy(ledger, "alice", policy(reports=30))
    accounts.set_policy(ledger, "alice", policy(reports=40))
    assert ledger.report(token, [Fix(*HELSINKI, utc(3))]).policy.reports == 40


def test_the_last_change_of_several_is_the_one_that_comes(ledger: Ledger) -> None:
    token = shown(member(ledger))
    ledger.report(token, [Fix(*HELSINKI, utc(3))])
    accounts.set_policy(ledger, "alice", policy(reports=30))
    accounts.set_policy(ledger, "alice", policy(reports=40))
    assert ledger.report(token, [Fix(*HELSINKI, utc(4))]).policy.reports == 40


def test_the_history_is_kept_over_a_change_so_the_first_report_may_be_a_guess(
    ledger: Ledger,
) -> None:
    token = shown(member(ledger))
    first = ledger.report(token, [Fix(*HELSINKI, utc(3))])
    accounts.set_policy(ledger, "alice", policy(accuracy_m=4000.0, skip_kmh=0.001))
    after = ledger.report(token, [Fix(*first_place(first), utc(4))])
    assert after.answers[0].release is not None
    assert after.answers[0].release.kind in ("easy", "hard", "untested")
    assert after.policy.accuracy_m == 4000.0


def first_place(reported: object) -> tuple[float, float]:
    release = reported.answers[0].release  # type: ignore[attr-defined]  # of a Reported
    return release.lat, release.lon


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"time_zone": "Pacific/Auckland"}, {"time_zone": "Pacific/Honolulu"}),
        ({"time_zone": "Pacific/Honolulu"}, {"time_zone": "Pacific/Auckland"}),
        ({"window": "21600"}, {"time_zone": "Europe/Helsinki"}),
        ({"time_zone": "Europe/Helsinki"}, {"window": "21600"}),
        ({"window": "86400"}, {"window": "25200"}),
        (
            {"preset": "whole-day", "time_zone": "Pacific/Auckland"},
            {"preset": "whole-day", "time_zone": "Pacific/Honolulu"},
        ),
        (
            {"preset": "whole-day", "time_zone": "Pacific/Honolulu"},
            {"time_zone": "Pacific/Auckland"},
        ),
        ({"window": "21600"}, {"preset": "whole-day", "time_zone": "Europe/Helsinki"}),
        ({"preset": "whole-day"}, {"preset": "frequent", "window": "21600"}),
    ],
)
def test_no_window_of_either_policy_holds_more_than_its_budget(
    ledger: Ledger, old: dict[str, str], new: dict[str, str]
) -> None:
    """Spend all that can be had for four days around a change, and add up each window."""
    token = shown(member(ledger, **old))
    steps = [utc(3) + 900.0 * i for i in range(4 * 96)]
    for i, at_s in enumerate(steps):
        if i == 100:
            accounts.set_policy(ledger, "alice", policy(**new))
        ledger.report(token, [Fix(*(HELSINKI, FAR)[i % 2], at_s)])
    with ledger.database.reading() as tx:
        rows = tx.execute(select(entries.c.at_s, entries.c.cost, entries.c.policy_id)).all()
    assert len({row.policy_id for row in rows}) == 2
    total = math.log(10) / 100
    for settings, version in ((old, 0), (new, 1)):
        window = policy(**settings).build().window
        ids = sorted({row.policy_id for row in rows})
        sums: dict[int, float] = {}
        for row in rows:
            number = _number(window, row.at_s)
            sums[number] = sums.get(number, 0.0) + row.cost
        # In the windows that this policy pays for, everything counts, whoever paid for it.
        paid = {_number(window, row.at_s) for row in rows if row.policy_id == ids[version]}
        assert all(sums[number] <= total for number in paid)
        assert len(paid) > 1


def _number(window: object, at_s: float) -> int:
    import numpy as np

    return int(window.index(np.array([at_s]))[0])  # type: ignore[attr-defined]  # a Window


def test_the_count_above_would_notice_a_budget_that_is_handed_out_twice() -> None:
    """Negative control: the same sums, with a change of zone that applied at once."""
    total = math.log(10) / 100
    auckland, honolulu = Day("Pacific/Auckland"), Day("Pacific/Honolulu")
    noon = utc(3, 12)
    costs = [(noon - 60, total), (noon + 60, total)]  # one budget before the change, one after
    for window in (auckland, honolulu):
        sums: dict[int, float] = {}
        for at_s, cost in costs:
            number = _number(window, at_s)
            sums[number] = sums.get(number, 0.0) + cost
        if max(sums.values()) > total:
            return
    pytest.fail("it was not noticed")


def test_what_got_nothing_while_a_policy_waited_gets_nothing_for_ever(ledger: Ledger) -> None:
    token = shown(member(ledger, time_zone="Pacific/Honolulu"))
    ledger.report(token, [Fix(*HELSINKI, utc(3, 9))])
    accounts.set_policy(ledger, "alice", policy(time_zone="Pacific/Auckland"))
    # The old day is over in Honolulu, and in Auckland the day of that report is not.
    asked = [Fix(*HELSINKI, utc(3, 10.2)), Fix(*HELSINKI, utc(3, 10.4))]
    assert [a.release for a in ledger.report(token, asked).answers] == [None, None]
    accounts.set_policy(ledger, "alice", policy(time_zone="Pacific/Honolulu"))
    assert [a.release for a in ledger.report(token, asked).answers] == [None, None]


def test_one_budget_for_ever_cannot_be_followed_or_follow(ledger: Ledger) -> None:
    token = shown(member(ledger, window="none"))
    ledger.report(token, [Fix(*HELSINKI, utc(3))])
    with pytest.raises(ParameterError, match="no next window"):
        accounts.set_policy(ledger, "alice", policy())
    daily = shown(member(ledger, "bob"))
    ledger.report(daily, [Fix(*HELSINKI, utc(3))])
    with pytest.raises(ParameterError, match="no next window"):
        accounts.set_policy(ledger, "bob", policy(window="none"))
