"""The policies of `hereish user add` and `user policy`: forecasts, remedies, files, versions."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.support.stage import HELSINKI, paths_in, shown
from tests.support.terminal import Terminal, commands_in, output_of

README_POLICY = ("--accuracy", "3km", "--time-zone", "Europe/Helsinki")


def test_without_an_accuracy_the_budget_lasts_the_day(hereish: Terminal, tmp_path: Path) -> None:
    added = output_of(hereish("user", "add", "alice", "--time-zone", "Europe/Helsinki"))
    assert "lasts the day" in added
    assert "gone between" not in added
    assert not [words for words in commands_in(added) if words[1:3] == ["user", "policy"]]
    token = output_of(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)])
    ledger.close()
    told = output_of(hereish("user", "show", "alice"))
    assert "whole-day (a budget that lasts the day, for anybody)" in told
    assert "expected to last to the end of the day" in told
    shown_as = json.loads(output_of(hereish("user", "show", "alice", "--json")))
    assert "whole-day" in shown_as["description"]
    assert shown_as["policy"]["preset"] == "whole-day"
    assert shown_as["policy"]["every_s"] == 1800.0
    assert shown_as["forecast"]["lasts_share"] == 1.0
    assert shown_as["forecast"]["ends_typical_s"] is None


def test_several_budgets_are_shown_with_what_is_left_of_each(hereish: Terminal) -> None:
    budgets = ("--budget", "ln 1000/month", "--budget", "ln 10/day", "--budget", "ln 1e6/forever")
    added = output_of(hereish("user", "add", "alice", *budgets, "--time-zone", "Europe/Helsinki"))
    assert "For the reports of each day (Europe/Helsinki)" in added
    assert "for the reports of each month (Europe/Helsinki), at most 1000 times" in added
    told = output_of(hereish("user", "show", "alice"))
    assert told.count("0.0% spent, 100.0% of it is left") == 2
    assert "covers all reports together" in told
    shown_as = json.loads(output_of(hereish("user", "show", "alice", "--json")))
    assert [limit["remaining"] > 0.0 for limit in shown_as["standing"]["limits"]] == [True, True]
    assert [period for period, _ in shown_as["policy"]["limits"]] == ["month", "forever"]
    again = ("--budget", "ln 10/day", "--budget", "ln 100/30d")
    changed = output_of(hereish("user", "policy", "alice", *again))
    assert "for the reports of any 30 days, at most 100 times" in changed


def test_without_a_day_s_budget_a_day_has_that_of_the_shortest(hereish: Terminal) -> None:
    added = output_of(hereish("user", "add", "alice", "--budget", "ln 10/24h"))
    assert "For the reports of each day (UTC)" in added
    assert "for the reports of any 24 hours, at most 10 times" in added
    output_of(hereish("user", "add", "bob", "--budget", "ln 10/6h", "--budget", "ln 20/month"))
    policy = json.loads(output_of(hereish("user", "show", "bob", "--json")))["policy"]
    assert (policy["window"], [name for name, _ in policy["limits"]]) == (
        "21600.0",
        ["6h", "month"],
    )


def test_budgets_and_a_level_or_a_window_are_refused(hereish: Terminal) -> None:
    for option in (("--level", "ln 5"), ("--window", "12h")):
        refused = hereish("user", "add", "alice", "--budget", "ln 10/day", *option)
        assert refused.code == 2
        assert f"--budget says what {option[0]} says: leave out one of them" in refused.err


def test_the_second_promise_is_shown_beside_the_first(hereish: Terminal) -> None:
    hereish("user", "add", "ann", "--reports", "30", "--mechanism", "independent")
    words = output_of(hereish("user", "show", "ann"))
    assert "at most 10 times as likely" in words
    assert "at most 3.42 times as likely" in words
    assert "the reports so far: at most 1 times" in words
    told = json.loads(output_of(hereish("user", "show", "ann", "--json")))["second"]
    assert told["level_so_far"] == 0.0
    assert told["delta"] == 1e-6
    hereish("user", "add", "bob", "--reports", "30")
    assert "plus a probability" not in output_of(hereish("user", "show", "bob"))
    assert json.loads(output_of(hereish("user", "show", "bob", "--json")))["second"] is None


def test_quiet_hours_are_shown(hereish: Terminal) -> None:
    output_of(hereish("user", "add", "alice", "--quiet-hours", "23:00-06:30"))
    assert "no tests from 23:00 to 06:30" in output_of(hereish("user", "show", "alice"))


def test_the_paper_is_a_preset(hereish: Terminal) -> None:
    output_of(hereish("user", "add", "alice", "--preset", "paper-utility"))
    told = output_of(hereish("user", "show", "alice"))
    assert "paper-utility (the paper's fixed utility: an accuracy)" in told


def test_when_the_rest_of_the_budget_ends_is_shown(hereish: Terminal) -> None:
    """Whatever the time is: of a day that never ends, and that 20 reports do not reach."""
    hereish("user", "add", "alice", "--accuracy", "3km", "--window", "none")
    told = output_of(hereish("user", "show", "alice"))
    assert re.search(r"expected to be spent at about .*\d\d:\d\d \(between .* and .*\)", told)
    expected = json.loads(output_of(hereish("user", "show", "alice", "--json")))["forecast"]
    assert expected["ends_early_s"] < expected["ends_late_s"]
    assert expected["window_ends_s"] is None


def test_a_policy_that_ends_about_noon_says_so(hereish: Terminal) -> None:
    added = output_of(hereish("user", "add", "alice", *README_POLICY))
    [first, last] = re.findall(r"gone between (\d\d:\d\d) and (\d\d:\d\d)", added)[0]
    assert "10:00" <= first < "12:30" < last <= "15:00"
    assert re.search(r"\(at 0[67]:\d\d if every guess fails\)", added)
    assert "nothing is released until midnight" in added
    assert "made-up" in added
    changed = output_of(
        hereish("user", "policy", "alice", *README_POLICY, "--on-exhausted", "predict")
    )
    assert f"gone between {first} and {last}" in changed
    assert "the last release is repeated, untested, until midnight" in changed


def test_the_remedies_are_valid_and_last_the_day(hereish: Terminal) -> None:
    name = "Ann O'Neil"
    added = output_of(hereish("user", "add", name, *README_POLICY))
    remedies = [words for words in commands_in(added) if words[1:3] == ["user", "policy"]]
    options = {option for words in remedies for option in words if option.startswith("--")}
    assert options == {"--accuracy", "--every", "--preset", "--time-zone"}
    for words in remedies:
        assert words[3] == name
        zone = words.index("--time-zone")
        assert words[zone + 1] == "Europe/Helsinki", "all of it is said anew"
        said = output_of(hereish(*words[1:]))
        assert "lasts the day" in said
        assert "gone between" not in said
        planned = output_of(hereish("plan", *words[4:]))
        assert "lasts the day" in planned


def test_settings_of_a_file_are_remedied_by_a_longer_interval_alone(
    hereish: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "my settings.toml").write_text(
        "[promise]\nlevel = 2.3\nradius_m = 100.0\n[mechanism]\nnoise_accuracy_m = 2500.0\n"
        "eta = 0.4\ngamma = 0.9\nprediction_rate = 0.8\n"
    )
    added = output_of(hereish("user", "add", "alice", "--settings", tmp_path / "my settings.toml"))
    [words] = [words for words in commands_in(added) if words[1:3] == ["user", "policy"]]
    assert "--every" in words
    assert "lasts the day" in output_of(hereish(*words[1:]))


def test_days_in_utc_that_nobody_asked_for_are_noted(hereish: Terminal) -> None:
    note = "days begin at midnight UTC; give --time-zone"
    assert note in hereish("user", "add", "alice", "--accuracy", "3km").err
    assert note not in hereish("user", "add", "bob", *README_POLICY).err
    said = hereish("user", "add", "eve", "--accuracy", "3km", "--time-zone", "UTC")
    assert note not in said.err
    never = hereish("user", "add", "joe", "--accuracy", "3km", "--window", "none")
    assert note not in never.err


def test_a_policy_of_tuned_settings(hereish: Terminal, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "[promise]\nlevel = 2.3\nradius_m = 100.0\n[mechanism]\nnoise_accuracy_m = 2500.0\n"
        "eta = 0.4\ngamma = 0.9\nprediction_rate = 0.8\n"
        "[skip]\nspeed_kmh = 20.0\nlimit_m = 900.0\nrestart_after_passed_test = true\n"
    )
    output_of(hereish("user", "add", "alice", "--settings", tmp_path / "s.toml"))
    told = json.loads(output_of(hereish("user", "show", "alice", "--json")))["policy"]
    assert (told["accuracy_m"], told["eta"], told["skip_since"]) == (2500.0, 0.4, "tested")
    twice = hereish("user", "add", "bob", "--settings", tmp_path / "s.toml", "--accuracy", "3km")
    assert twice.code == 2
    assert "leave out --accuracy" in twice.err


def test_quiet_hours_of_a_policy_of_tuned_settings(hereish: Terminal, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "[promise]\nlevel = 2.3\nradius_m = 100.0\n[preset]\nname = 'whole-day'\n"
        "[numbers]\nshare = 1.0\n"
    )
    args = ("--settings", tmp_path / "s.toml", "--quiet-hours", "23:00-6:30")
    output_of(hereish("user", "add", "alice", *args))
    told = json.loads(output_of(hereish("user", "show", "alice", "--json")))["policy"]
    assert (told["quiet"], told["numbers"]["share"]) == ("23:00-06:30", 1.0)


def test_a_changed_policy_says_when_it_applies(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "0")
    assert "nothing was reported yet" in output_of(
        hereish("user", "policy", "alice", "--reports", "30")
    )
    token = output_of(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)])
    ledger.close()
    changed = output_of(hereish("user", "policy", "alice", "--accuracy", "4km"))
    assert "policy 3 of alice applies from the next window on" in changed
    assert "waits for a later window: predictive, 4 km" in output_of(
        hereish("user", "show", "alice")
    )
