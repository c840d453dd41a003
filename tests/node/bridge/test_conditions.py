"""Messages that a bridge passes on by their content, in both directions, whatever the remote is."""

from __future__ import annotations

from headwater.client import Client
from tests.client.scripted import run, until
from tests.node.bridge.scene import bridge, broker, client, said, take, until_up


def test_only_what_meets_the_condition_goes_on() -> None:
    topics = [
        {"filter": "#", "direction": "out", "qos": 1, "local_prefix": "out/", "condition": "value > 30"},
        {"filter": "#", "direction": "in", "qos": 1, "local_prefix": "in/", "condition": "changed(value)"},
    ]

    async def publish(publisher: Client, topic: str, *values: int) -> None:
        for value in values:
            for qos in (0, 1):
                await publisher.publish(topic, b'{"value": %d}' % value, qos=qos)

    async def scenario() -> None:
        async with (
            broker() as far,
            broker(bridge(far.port, *topics)) as near,
            client(far.port, "a") as there,
            client(near.port, "in/#") as here,
        ):
            await until_up(near)
            await publish(here, "out/a", 30, 31, 2, 32)
            assert said(await take(there, 4)) == [("a", b'{"value": %d}' % value) for value in (31, 31, 32, 32)]
            await publish(there, "b", 5, 5, 6)
            assert said(await take(here, 2)) == [("in/b", b'{"value": %d}' % value) for value in (5, 6)]
            await until(lambda: near.bridges.views()[0].sent.dropped == 4)

    run(scenario())


def test_question_marks_of_a_bridges_filters_are_characters() -> None:
    async def scenario() -> None:
        entry = bridge(0, {"filter": "a?b", "direction": "out", "qos": 1})
        async with broker() as far:
            entry["addresses"] = [f"127.0.0.1:{far.port}"]
            async with (
                broker(entry, conditions={"enabled": True}) as near,
                client(far.port, "a?b") as there,
                client(near.port) as here,
            ):
                await until_up(near)
                await here.publish("a?b", b"x", qos=1)
                assert said(await take(there, 1)) == [("a?b", b"x")]

    run(scenario())
