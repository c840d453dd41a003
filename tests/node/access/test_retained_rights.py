"""Retained messages whose publisher may not publish there any more (`acl_retained`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.wire.packets import Connect, Publish, Subscribe, SubscribeRequest, Will
from tests.node.access.arriving import arrive, broker_with, key_file, of_kind, rules_file
from tests.node.access.test_tokens import token
from tests.node.memory import MemoryBroker

BEFORE = "topic readwrite t/#\nuser ann\ntopic readwrite t/#\npattern readwrite c/%c\n"
AFTER = "topic read t/#\nuser ann\ntopic readwrite t/#\n"


def broker_of(folder: Path, acl_retained: bool = True) -> MemoryBroker:
    rules = rules_file(folder, BEFORE)
    return broker_with(acl_file=rules, acl_retained=acl_retained, others={"allow_anonymous": True})


def retained(broker: MemoryBroker) -> list[str]:
    reader = broker.client("reader", username="ann")
    reader.send(Subscribe(1, [SubscribeRequest("#", 1)]))
    topics = [packet.topic for packet in of_kind(reader, Publish) if isinstance(packet, Publish)]
    reader.lose()
    return sorted(topics)


def change_rules(broker: MemoryBroker, folder: Path, text: str) -> None:
    rules_file(folder, text)
    broker.server.access.reload(broker.server.config.access)


@pytest.mark.parametrize("checked", [True, False])
def test_they_are_not_sent_as_long_as_the_rules_forbid_them(checked: bool, tmp_path: Path) -> None:
    broker = broker_of(tmp_path, checked)
    for user, topic in ((None, "t/anonymous"), ("ann", "t/ann")):
        broker.client("p", username=user).send(Publish(topic, b"x", retain=True))
    assert retained(broker) == ["t/ann", "t/anonymous"]
    change_rules(broker, tmp_path, AFTER)
    assert retained(broker) == (["t/ann"] if checked else ["t/ann", "t/anonymous"])
    change_rules(broker, tmp_path, BEFORE)
    assert retained(broker) == ["t/ann", "t/anonymous"]


def test_the_rights_are_those_of_the_client_id(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    broker.client("p", username="ann").send(Publish("c/p", b"x", retain=True))
    everything = f"{AFTER}topic read #\n"
    change_rules(broker, tmp_path, f"{everything}pattern write c/%c\n")
    assert retained(broker) == ["c/p"]
    change_rules(broker, tmp_path, f"{everything}pattern write c/%c/deeper\n")
    assert retained(broker) == []


def test_messages_without_a_publisher_are_sent(tmp_path: Path) -> None:
    """A will is published when its client is gone; the broker's own messages are nobody's."""
    broker = broker_of(tmp_path)
    broker.client("p", will=Will("t/will", b"x", retain=True)).lose()
    change_rules(broker, tmp_path, AFTER)
    assert retained(broker) == ["t/will"]


def test_rights_of_a_token_are_not_asked_for_again(tmp_path: Path) -> None:
    """It is not there any more."""

    async def scenario() -> None:
        rules = rules_file(tmp_path, AFTER)
        broker = broker_with(
            jwt_key_file=key_file(tmp_path), acl_file=rules, acl_retained=True, others={"allow_anonymous": True}
        )
        acl = {"publish": ["t/token"], "subscribe": []}
        client, _ = await arrive(broker, Connect("p", 5, password=token(acl=acl)))
        client.send(Publish("t/token", b"x", retain=True))
        reader = broker.client("reader")
        reader.send(Subscribe(1, [SubscribeRequest("t/#", 1)]))
        assert [packet.topic for packet in of_kind(reader, Publish) if isinstance(packet, Publish)] == ["t/token"]

    asyncio.run(scenario())
