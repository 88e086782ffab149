"""How much a token may send is counted in points, and nobody is refused for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hereish.gateway.http.rate_limit import RateLimiter, to_retry_after
from tests.support import client_payloads as payloads
from tests.support.hostile_stage import hostile
from tests.support.leaks import TRUE

KEY, OTHER = b"k", b"o"


def test_a_thousand_points_count_as_a_thousand() -> None:
    limiter = RateLimiter(100.0)
    assert limiter.wait_s(KEY, 1000, now_s=0.0) == 0.0  # ten seconds' worth of them
    assert limiter.wait_s(KEY, 1, now_s=0.0) == pytest.approx(0.01)
    assert limiter.wait_s(OTHER, 1000, now_s=0.0) == 0.0
    assert limiter.wait_s(KEY, 1000, now_s=5.0) == pytest.approx(5.0)
    assert limiter.wait_s(KEY, 500, now_s=5.0) == 0.0


@pytest.mark.parametrize("per_s", [0.05, 1.0, 20.0, 1e4])
@pytest.mark.parametrize("points", [1, 9, 200, 1000])
def test_who_waits_as_long_as_they_are_told_goes_on(per_s: float, points: int) -> None:
    """A phone that was offline sends batch after batch, and tries again only when it may."""
    limiter, now_s, taken = RateLimiter(per_s), 0.0, 0
    for _ in range(10):
        for _ in range(3):
            # As the gateway asks: one when a request comes, and all when it is read. So the first
            # wait may be for one point, and only the second one for all of them.
            wait_s = limiter.wait_s(KEY, now_s=now_s)
            wait_s = wait_s or limiter.wait_s(KEY, points, counted=1, now_s=now_s)
            if wait_s == 0.0:
                taken += points
                break
            now_s += int(to_retry_after(wait_s))
    assert taken == 10 * points
    # And yet no more than the rate, but for what may come at once and one batch.
    assert taken <= per_s * now_s + max(1.0, 10 * per_s) + points + 20


def test_a_batch_that_has_to_wait_still_counts_as_a_request() -> None:
    """Else bodies that are read in vain would be free."""
    limiter = RateLimiter(20.0)
    assert limiter.wait_s(KEY, 50, now_s=0.0) == 0.0
    read = 0
    for _ in range(1000):
        if limiter.wait_s(KEY, now_s=0.0):
            break
        assert limiter.wait_s(KEY, 1000, counted=1, now_s=0.0) > 0.0
        read += 1
    assert read == 150


def test_without_a_rate_nothing_is_counted() -> None:
    assert RateLimiter(0.0).wait_s(KEY, 10**9) == 0.0


def test_batches_are_refused_until_they_may_come_and_none_is_lost(tmp_path: Path) -> None:
    with hostile(tmp_path, "alice", "bob", rate=100.0) as stage:
        refused = 0
        for number in (1000, 500):  # the first takes all that may come at once
            features = [payloads.overland_feature(*TRUE, payloads.iso(time.time()))] * number
            body = payloads.sent(payloads.overland(*features))
            while (answer := stage.ask("POST", "/overland", content=body)).status_code == 429:
                refused += 1
                assert stage.ask("GET", "/v1/budget", "bob").status_code == 200
                time.sleep(int(answer.headers["retry-after"]))
            assert (answer.status_code, answer.content) == (200, b'{"result":"ok"}')
        assert 1 <= refused <= 2
        sent = stage.ask("GET", "/v1/devices", "bob").json()
        assert sent["devices"] == []
        while (devices := stage.ask("GET", "/v1/devices")).status_code == 429:
            time.sleep(1)
        assert [one["points_today"] for one in devices.json()["devices"]] == [1500]
