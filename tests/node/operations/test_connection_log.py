"""Who comes, goes and is refused, as the log tells it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.client import ConnectError, Rejected, SyncClient
from headwater.wire.reasons import NOT_AUTHORIZED
from tests.node.test_run import configured, started

SETTINGS = """
allow_anonymous = true
[access]
acl_file = "{rules}"
"""


def test_at_debug_the_log_tells_who_comes_and_goes_and_what_they_may_not(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("user alice\ntopic readwrite fine\n")
    with started(*configured(tmp_path, SETTINGS.format(rules=rules)), "--log-level", "debug") as broker:
        with SyncClient("127.0.0.1", broker.port, client_id="pump", username="alice", keep_alive=7) as client:
            client.subscribe("fine")
            assert client.subscribe("secret/#") == [NOT_AUTHORIZED]
            with pytest.raises(Rejected):
                client.publish("secret/x", b"y", qos=1)
        with SyncClient("127.0.0.1", broker.port, client_id="old", version=4):
            pass
        broker.end()
    told = re.findall(r"DEBUG +headwater\.(?:connections|access): (.*)", broker.said)
    assert [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line) for line in told] == [
        "'pump' (ADDRESS) is connected as 'alice': MQTT 5.0, keep alive 7 s, a new session",
        "'pump' (ADDRESS) may not subscribe to 'secret/#': not authorized",
        "'pump' (ADDRESS) may not publish to 'secret/x'",
        "'pump' (ADDRESS) is disconnected: it said so",
        "'old' (ADDRESS) is connected: MQTT 3.1.1, keep alive 60 s, a new session",
        "'old' (ADDRESS) is disconnected: it said so",
    ]


def test_who_is_refused_is_told_without_debug(tmp_path: Path) -> None:
    with started(*configured(tmp_path, "allow_anonymous = false")) as broker:
        with pytest.raises(ConnectError), SyncClient("127.0.0.1", broker.port, client_id="pump"):
            pass
        broker.end()
    assert re.search(r"INFO .*'pump' \(127.0.0.1:\d+\) is refused: anonymous clients are not allowed", broker.said)
    assert "is connected" not in broker.said
