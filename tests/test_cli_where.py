"""`headwater sub --where`: the broker sends only what meets the condition, and says whether it does so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import Client
from tests.brokers import wait_until_listening
from tests.node.persistence.test_persistence import process
from tests.test_cli import Subscribed, failure, headwater, pub


@pytest.fixture(params=["true", "false"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, bool]]:
    with process(tmp_path / "data", "--set", f"conditions.enabled={request.param}") as (started, port):
        wait_until_listening(started, port)
        yield port, request.param == "true"


def test_only_what_holds_is_printed(broker: tuple[int, bool]) -> None:
    port, enabled = broker
    count = 1 if enabled else 2
    with Subscribed("-p", port, "-t", "t/+", "--where", "value > 30", "-C", count) as subscriber:
        pub("-p", port, "-t", "t/1", "-m", '{"value": 3}')
        pub("-p", port, "-t", "t/1", "-m", '{"value": 31}')
        printed = subscriber.output()
        assert (b"does not say that it applies --where" in subscriber.log) is not enabled
    assert printed.splitlines()[-count:] == [b'{"value": 3}', b'{"value": 31}'][-count:]


def test_the_form_behind_the_topic_filter(broker: tuple[int, bool]) -> None:
    port, enabled = broker
    if not enabled:
        return
    with Subscribed("-p", port, "-t", "t/+?value > 30", "-C", 1, "-V", "311") as subscriber:
        pub("-p", port, "-t", "t/1", "-m", '{"value": 3}')
        pub("-p", port, "-t", "t/1", "-m", '{"value": 31}')
        assert subscriber.output() == b'{"value": 31}\n'


def test_mistakes_are_told_before_anybody_is_asked() -> None:
    status, said = failure("sub", "-t", "t", "--where", "value >")
    assert status == 2
    assert "at character 8" in said
    assert "needs MQTT 5" in failure("sub", "-t", "t", "--where", "a = 1", "-V", "311")[1]


def test_a_program_hears_what_the_broker_says_of_a_condition(broker: tuple[int, bool]) -> None:
    port, enabled = broker
    if not enabled:
        return

    async def main() -> None:
        async with Client("127.0.0.1", port) as client:
            answer = await client.subscribe_and_hear(["a?b >", "c?d>1"])
            assert answer.reasons == [0x8F, 0]
            assert answer.properties is not None
            assert "character 4" in (answer.properties.reason_string or "")

    asyncio.run(main())
    done = headwater("sub", "-p", port, "-t", "a?b >", "-E")
    assert done.returncode != 0
