"""The checks of a target: bad credentials are refused without being repeated."""

from __future__ import annotations

from typing import Any

import pytest

from hereish.errors import ParameterError
from hereish.gateway.forwarding.targets import parse_target
from tests.support.forwarding_stage import PASSWORD


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("owntracks", {"username": "a", "bearer": "b"}, "not both"),
        ("owntracks", {"password": PASSWORD}, "needs a user"),
        ("owntracks", {"username": "a:b", "password": PASSWORD}, "colon"),
        ("owntracks", {"username": "a", "password": f"{PASSWORD}\n"}, "can be printed"),
        ("owntracks", {"bearer": f"{PASSWORD} x"}, "no spaces"),
        ("owntracks", {"headers": {"Host": "x"}}, "a header is a name"),
        ("owntracks", {"headers": {"Authorization": PASSWORD}}, "given apart"),
        ("owntracks", {"headers": {"X Y": "x"}}, "a header is a name"),
        ("owntracks", {"headers": {"X-Y": f"{PASSWORD}\r\nX-Z: 1"}}, "one line"),
        ("mqtt", {"headers": {"X-Y": "x"}}, "MQTT has no"),
        ("mqtt", {"bearer": PASSWORD}, "MQTT has no"),
    ],
)
def test_bad_credentials_are_refused_in_words_that_do_not_repeat_them(
    kind: str, more: dict[str, Any], words: str
) -> None:
    address = "mqtt://host/t" if kind == "mqtt" else "https://host/"
    with pytest.raises(ParameterError, match=words) as refused:
        parse_target(address, kind, **more)
    assert PASSWORD not in str(refused.value)


def test_two_users_at_once_are_refused() -> None:
    with pytest.raises(ParameterError, match="not both"):
        parse_target("https://a:b@host/", "overland", username="c")
