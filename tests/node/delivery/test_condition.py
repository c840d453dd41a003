"""`store.condition`: what is stored of the topics that are, by its content. Everything is delivered."""

from __future__ import annotations

import pytest

from headwater.message import POSITION_PROPERTY
from headwater.wire.packets import Publish
from tests.node.delivery.storing import StoringBroker, connected, subscriber


def values(*numbers: int) -> list[bytes]:
    return [b'{"value": %d}' % number for number in numbers]


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_does_not_meet_it_is_delivered_without_a_position(hot: bool, qos: int) -> None:
    broker = StoringBroker(hot=hot, enabled=True, condition="value > 30", of_broker={"data_dir": "unused"})
    plain, asking = subscriber(broker, "p", "t"), subscriber(broker, "a", "t", asks=True)
    sender = connected(broker, "s")
    payloads = values(31, 30, 32, 1, 33)
    sender.send(*(Publish("t", each, qos, False, False, at + 1 if qos else 0) for at, each in enumerate(payloads)))
    broker.settle()
    assert broker.summary() == [(1, "t", payloads[0]), (2, "t", payloads[2]), (3, "t", payloads[4])]
    assert [each.payload for each in plain.messages()] == payloads
    marks = [
        (each.payload, [value for name, value in pairs if name == POSITION_PROPERTY])
        for each in asking.messages()
        for pairs in [(each.properties.user_properties if each.properties else None) or []]
    ]
    assert marks == [(each, [f"s:{at}"] if at else []) for each, at in zip(payloads, (1, 0, 2, 0, 3), strict=True)]


def test_only_what_changes_is_stored() -> None:
    broker = StoringBroker(enabled=True, condition="changed(value, 1)", of_broker={"data_dir": "unused"})
    sender = connected(broker, "s")
    for topic in ("a", "b"):
        sender.send(*(Publish(topic, each, 0) for each in values(5, 5, 6, 7, 7)))
    broker.settle()
    assert [(row.topic, row.payload) for row in broker.rows()] == [
        (topic, each) for topic in ("a", "b") for each in values(5, 7)
    ]
