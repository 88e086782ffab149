from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.core.spaces import Sphere
from hereish.errors import ParameterError, PointError
from hereish.traces.faults import Fault
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.summary import ReleaseCounts
from hereish.traces.table import Ids
from hereish.viewer.page import json_for_script, page
from hereish.viewer.spending import local_ms
from hereish.viewer.views import MOST_DRAWN, MOST_VIEWS
from tests.support.show_traces import DAY_S, HELSINKI, batch, people

HOSTILE = "</script><img src=x onerror=alert(1)>"
NOON_S = datetime(2025, 6, 3, 12, tzinfo=ZoneInfo(HELSINKI)).timestamp()


class Reader(HTMLParser):
    """The elements of a page, and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.page_data: Any = None
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = "page-data" if ("id", "page-data") in attrs else tag
        if self._open in self.texts:
            self.texts[self._open].append("")

    def handle_data(self, data: str) -> None:
        if self._open == "page-data":
            self.page_data = json.loads(data)
        elif self._open in self.texts:
            self.texts[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    @property
    def policy(self) -> dict[str, list[str]]:
        metas = [attrs for _, attrs in self.tags if attrs.get("http-equiv")]
        parts = [part.split() for part in str(metas[0]["content"]).split(";")]
        return {name: values for name, *values in parts}


def page_data(*arguments: Any, **named: Any) -> Any:
    return Reader(page(*arguments, **named)).page_data


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- which report belongs to which true point


def test_reports_in_any_order_find_their_true_points() -> None:
    true, reported, guarantee = people()
    shuffled = reported.take(np.random.default_rng(1).permutation(len(reported)))
    assert page_data(true, shuffled, guarantee) == page_data(true, reported, guarantee)
    view = page_data(true, reported, guarantee)["views"][0]
    first = true.user is not None and true.user.codes == 0
    mine = true.at_us[first][:1]
    row = int(np.flatnonzero(reported.at_us == mine)[0])
    expected_m = Sphere().distance(
        np.array([[true.lat[0], true.lon[0]]]), np.array([[reported.lat[row], reported.lon[row]]])
    )
    assert view["true"]["error_m"][0] == pytest.approx(expected_m[0], abs=0.06)


def test_numbers_are_over_all_reports_of_a_view() -> None:
    at_s = NOON_S + 60 * np.arange(4)
    true = batch(at_s, [[60.0, 25.0]] * 4)
    away = [[60.0, 25.0], [60.001, 25.0], [60.003, 25.0]]
    (view,) = page_data(true, batch(at_s[:3], away, kind=["hard", "easy", "new"]))["views"]
    metre = math.radians(0.001) * 6371008.771415059
    assert (view["points"], view["reports"], view["kinds"]) == (4, 3, [1, 1, 0, 1])
    assert view["mean_m"] == pytest.approx(4 * metre / 3)
    assert 3 * metre * (1 - 1e-9) <= view["within_90_m"] <= 3 * metre * 1.001
    assert view["true"]["place"][3] is None, "it has no report"
    width_m, counts = view["bins"]["width_m"], view["bins"]["counts"]
    assert sum(counts) == 3
    assert counts[int(3 * metre / width_m)] == 1


def test_two_points_at_one_instant_pair_in_their_order() -> None:
    true = batch([NOON_S, NOON_S], [[60.0, 25.0], [61.0, 25.0]])
    reported = batch([NOON_S, NOON_S], [[60.001, 25.0], [61.001, 25.0]])
    (view,) = page_data(true, reported)["views"]
    assert max(view["true"]["error_m"]) < 112


def test_users_are_told_apart_and_may_be_numbers_in_one_file() -> None:
    true = batch([NOON_S] * 2, [[60.0, 25.0], [10.0, 25.0]], [7, 8])
    found = page_data(true, batch([NOON_S] * 2, [[10.0, 25.0], [60.0, 25.0]], ["8", "7"]))
    assert found["users"] == ["7", "8"]
    assert [view["true"]["error_m"] for view in found["views"]] == [[0.0], [0.0]]


def test_reports_of_nobody_known_are_counted_or_refused() -> None:
    true = batch([NOON_S, NOON_S + 1], [[60.0, 25.0]] * 2)
    some = batch([NOON_S, NOON_S + 9], [[60.0, 25.0]] * 2)
    assert page_data(true, some)["unmatched"] == 1
    none = batch([NOON_S + 9], [[60.0, 25.0]])
    with pytest.raises(ParameterError, match=r"none of the 1 reports .* do not belong together"):
        page(true, none)
    other = batch([NOON_S], [[60.0, 25.0]], ["b"])
    with pytest.raises(ParameterError, match="do not belong together"):
        page(batch([NOON_S], [[60.0, 25.0]], ["a"]), other)
    several = batch([NOON_S] * 2, [[60.0, 25.0]] * 2, ["a", "b"])
    with pytest.raises(ParameterError, match="several users and the other none"):
        page(several, true)


def test_rows_with_a_fault_are_not_looked_at() -> None:
    true = batch([NOON_S, 4e11], [[60.0, 25.0], [math.nan, math.nan]])
    marked = dataclasses.replace(true, fault=np.array([Fault.NONE, Fault.TIME], dtype=np.uint8))
    (view,) = page_data(marked, batch([NOON_S], [[60.0, 25.0]]))["views"]
    assert view["points"] == 1


def test_a_reported_place_tells_its_times_up_to_twelve() -> None:
    at_s = NOON_S + 60 * np.arange(40)
    places = [[60.001, 25.0]] * 30 + [[60.002, 25.0]] * 9 + [[60.001, 25.0]]
    true = batch(at_s, [[60.0, 25.0]] * 40)
    (view,) = page_data(true, batch(at_s, places, kind=["hard"] + ["easy"] * 39))["views"]
    assert view["places"]["count"] == [31, 9]
    assert [len(times) for times in view["places"]["times"]] == [12, 9]
    assert view["places"]["kinds"] == [[1, 30, 0, 0], [0, 9, 0, 0]]
    assert view["places"]["times"][1] == view["true"]["at"][30:39]
    assert view["true"]["place"] == [0] * 30 + [1] * 9 + [0]


def test_a_trace_over_the_date_line_stays_in_one_piece() -> None:
    true = batch([NOON_S, NOON_S + 60], [[-17.0, 179.99], [-17.0, -179.99]])
    reported = batch([NOON_S, NOON_S + 60], [[-17.0, -179.98], [-17.0, 179.98]])
    (view,) = page_data(true, reported)["views"]
    every = view["true"]["lon"] + view["places"]["lon"]
    assert max(every) - min(every) < 0.1
    assert max(view["true"]["error_m"]) < 5000


# ---- days, clocks and budgets


def test_each_user_has_a_view_a_day_and_one_of_all() -> None:
    found = page_data(*people(users=2, days=2))
    days = [(view["user"], view["day"]) for view in found["views"]]
    each = ["Tuesday 3 June 2025", "Wednesday 4 June 2025", None]
    assert days == [(user, day) for user in (0, 1) for day in each]
    first, second, both = found["views"][:3]
    assert first["reports"] + second["reports"] == both["reports"]
    assert found["zone"] == HELSINKI
    (alone,) = page_data(*people(users=1, days=1))["views"]
    assert alone["day"] == "Tuesday 3 June 2025"


@given(
    at_us=st.lists(st.integers(-(10**15), 4 * 10**15), min_size=1, max_size=20),
    zone=st.sampled_from(["Europe/Helsinki", "America/St_Johns", "Asia/Kathmandu", "UTC"]),
)
def test_clocks_show_what_they_show_in_their_zone(at_us: list[int], zone: str) -> None:
    shown = local_ms(np.array(at_us), ZoneInfo(zone)).tolist()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for at, ms in zip(at_us, shown, strict=True):
        there = (epoch + timedelta(microseconds=at)).astimezone(ZoneInfo(zone))
        wall = there.replace(tzinfo=UTC) - epoch
        assert ms == wall // timedelta(milliseconds=1)


def test_a_time_that_no_calendar_has_is_refused_without_the_place() -> None:
    true = batch([4e11], [[60.123456, 25.0]])
    with pytest.raises(PointError, match="years 1 to 9999") as caught:
        page(true, true)
    assert "60.1" not in str(caught.value)


def test_the_budget_burns_down_and_is_full_again_at_midnight() -> None:
    true, reported, guarantee = people(users=1, days=2)
    first, second, both = page_data(true, reported, guarantee)["views"]
    costs = reported.kept["cost"].astype(float) / (guarantee.eps_per_m or 0)
    for view, spent in ((first, costs[: first["reports"]]), (second, costs[first["reports"] :])):
        steps = view["budget"]
        assert steps["shares"]
        assert steps["spent"][0] == 0.0
        assert steps["spent"][1:-1] == pytest.approx(np.cumsum(spent), abs=1e-6)
        assert steps["spent"][-1] == steps["spent"][-2], "it stays until the day's last point"
        assert steps["most_spent"] == pytest.approx(spent.sum())
        assert steps["at"][0] % (DAY_S * 1000) == 0, "it begins at midnight"
    at, spent_ = both["budget"]["at"], both["budget"]["spent"]
    midnight = at[0] + DAY_S * 1000
    refill = at.index(midnight)
    assert spent_[refill] == 0.0
    assert spent_[refill - 1] > 0.3


def test_without_a_promise_costs_are_added_up_and_without_costs_nothing_is_claimed() -> None:
    true, reported, _ = people(users=1, days=1)
    (view,) = page_data(true, reported)["views"]
    assert not view["budget"]["shares"]
    assert view["budget"]["most_spent"] == pytest.approx(reported.kept["cost"].sum())
    for kept in ({}, {"cost": np.full(len(reported), "x")}, {"cost": np.full(len(reported), -1.0)}):
        bare = dataclasses.replace(reported, kept=kept)
        (view,) = page_data(true, bare)["views"]
        assert view["budget"] is None
        assert view["kinds"] == [0, 0, 0, len(reported)]


def test_a_budget_a_trace_has_a_line_a_trace() -> None:
    at_s = NOON_S + 60 * np.arange(6)
    true = batch(at_s, [[60.0, 25.0]] * 6)
    costs = [0.1, 0.2, 0.4, 0.3, 0.3, 0.3]
    reported = dataclasses.replace(
        batch(at_s, [[60.0, 25.0]] * 6, cost=costs), trace=Ids.of(["a", "a", "b", "b", "a", "b"])
    )
    (view,) = page_data(true, reported, GuaranteeMetadata("…", eps_per_m=1.0, window="trace"))[
        "views"
    ]
    assert view["budget"]["spent"] == pytest.approx(
        [0, 0.1, 0.3, 0.6, None, 0, 0.4, 0.7, 1.0, 1.0], abs=1e-6
    )
    (whole,) = page_data(true, reported, GuaranteeMetadata("…", eps_per_m=2.0, window="none"))[
        "views"
    ]
    assert whole["budget"]["most_spent"] == pytest.approx(0.8)


def test_costs_of_reports_without_a_true_point_count_too() -> None:
    true = batch([NOON_S + 60], [[60.0, 25.0]])
    reported = batch([NOON_S, NOON_S + 60], [[60.0, 25.0]] * 2, cost=[0.5, 0.25])
    (view,) = page_data(true, reported, GuaranteeMetadata("…", eps_per_m=1.0))["views"]
    assert view["budget"]["spent"][:2] == [0.5, 0.75]


# ---- large traces


def test_a_large_trace_is_thinned_for_drawing_only() -> None:
    n = 20_000
    at_s = NOON_S + 0.5 * np.arange(n)
    points = np.column_stack([60 + 1e-5 * np.arange(n), np.full(n, 25.0)])
    few = np.arange(0, n, 40)  # 500 reports, all of which are drawn
    (view,) = page_data(batch(at_s, points), batch(at_s[few], points[few] + 0.01))["views"]
    drawn = view["true"]
    assert 2000 < len(drawn["at"]) <= MOST_DRAWN
    assert drawn["at"] == sorted(drawn["at"])
    assert sum(place is not None for place in drawn["place"]) == len(few) == view["reports"]
    assert (drawn["at"][0], view["points"]) == (round(NOON_S * 1000), n)
    assert drawn["at"][-1] - drawn["at"][0] == (n - 1) * 500
    gaps = np.diff(drawn["at"])
    assert gaps.max() < 20_000, "evenly"


def test_the_few_fresh_and_refused_points_among_many_are_all_drawn() -> None:
    n = 20_000
    at_s = NOON_S + 0.5 * np.arange(n)
    fresh, refused = np.array([7, 8_001, 8_002]), np.arange(15_001, n, 100)
    asked = np.setdiff1d(np.arange(n), refused)
    kind = np.where(np.isin(asked, fresh), "hard", "easy").tolist()
    points = np.column_stack([60 + 1e-5 * np.arange(n), np.full(n, 25.0)])
    (view,) = page_data(batch(at_s, points), batch(at_s[asked], points[asked], kind=kind))["views"]
    drawn = view["true"]
    assert len(drawn["at"]) <= MOST_DRAWN
    assert (view["kinds"][0], drawn["kind"].count(0)) == (3, 3)
    assert drawn["place"].count(None) == len(refused) == view["points"] - view["reports"]


def test_points_that_nobody_asked_about_are_not_refused() -> None:
    at_s = NOON_S + 60.0 * np.arange(61)
    true = batch(at_s, [[60.0, 25.0]] * 61)
    asked = np.arange(0, 61, 10)
    reported = batch(at_s[asked[:4]], [[60.001, 25.0]] * 4)  # the budget refused the other three
    every = GuaranteeMetadata("…", eps_per_m=1.0, every_s=600.0)
    found = page_data(true, reported, every)
    (view,) = found["views"]
    assert (found["every_s"], view["points"], view["reports"], view["thinned"]) == (600, 61, 4, 54)
    refused = [
        i
        for i, place in enumerate(view["true"]["place"])
        if place is None and not view["true"]["thinned"][i]
    ]
    assert refused == asked[4:].tolist()
    (unknown,) = page_data(true, reported, dataclasses.replace(every, every_s=None))["views"]
    assert unknown["thinned"] == 0


def test_nine_of_ten_errors_are_counted_as_the_command_counts_them() -> None:
    rng = np.random.default_rng(2)
    for n in (1, 3, 10, 37):
        at_s, points = NOON_S + 60.0 * np.arange(n), rng.normal([60.0, 25.0], 0.01, (n, 2))
        away = points + rng.normal(0.0, 0.01, (n, 2))
        (view,) = page_data(batch(at_s, points), batch(at_s, away))["views"]
        counts = ReleaseCounts()
        kinds = SimpleNamespace(kind=np.zeros(n, dtype=np.int64))
        counts.add(kinds, Sphere().distance(points, away))  # type: ignore[arg-type]  # all it needs
        assert view["within_90_m"] == counts.displacements.p90_m


def test_a_page_of_very_many_days_says_what_it_leaves_out() -> None:
    days = MOST_VIEWS + 25
    at_s = NOON_S + DAY_S * np.arange(days)
    found = page_data(*[batch(at_s, [[60.0, 25.0]] * days)] * 2)
    assert len(found["views"]) == MOST_VIEWS
    assert found["left_out"] == 25


# ---- what the page may do


@pytest.fixture(scope="module")
def hostile() -> Reader:
    true, reported, guarantee = people(users=2, days=1, names=[HOSTILE, "<!--<script>"])
    words = f"{HOSTILE} & <b>bold</b>"
    return Reader(page(true, reported, dataclasses.replace(guarantee, statement=words)))


def test_texts_of_files_are_no_markup(hostile: Reader) -> None:
    names = [tag for tag, _ in hostile.tags]
    assert "img" not in names
    assert names.count("script") == 3
    assert hostile.page_data["users"] == [HOSTILE, "<!--<script>"]
    assert hostile.page_data["guarantee"]["statement"].startswith(HOSTILE)


def test_nothing_on_the_page_can_be_fetched(hostile: Reader) -> None:
    for tag, attributes in hostile.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img", "a")
        assert not {"src", "href", "style", "srcset", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag


def test_the_policy_names_the_scripts_and_allows_nothing_else(hostile: Reader) -> None:
    policy = hostile.policy
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == [digest(text) for text in hostile.texts["script"]]
    assert digest(hostile.texts["style"][0]) in policy["style-src"]
    assert policy["img-src"] == ["data:", "blob:"]
    assert policy["base-uri"] == policy["form-action"] == ["'none'"]
    values = {value for values in policy.values() for value in values}
    assert not values & {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "'self'"}
    before = [tag for tag, _ in hostile.tags[: [t for t, _ in hostile.tags].index("script")]]
    assert "meta" in before, "a policy holds for what comes after it"


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_json_in_a_script_ends_where_it_ends(value: dict[str, str]) -> None:
    text = json_for_script(value | {"x": HOSTILE})
    assert json.loads(text) == value | {"x": HOSTILE}
    assert not set("<>&") & set(text)
    assert text.isascii()


def test_without_the_library_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['plotly'] = None\n"
        "from hereish.viewer.page import plotly\n"
        "from hereish.errors import HereishError\n"
        "try: plotly()\n"
        "except HereishError as missing: print(missing)"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own words
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "pip install 'hereish[show]'" in done.stdout


def test_an_unknown_time_zone_is_refused() -> None:
    true = batch([NOON_S], [[60.0, 25.0]])
    with pytest.raises(ParameterError, match="IANA name"):
        page(true, true, time_zone="Europe/Nowhere")
    with pytest.raises(ParameterError, match="IANA name"):
        page(true, true, GuaranteeMetadata("…", window="day", time_zone="../../etc/passwd"))
