"""Messages of shared groups that are kept, with members whose sessions are not."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.persistence.records import DELIVERY, GROUP, MESSAGE
from headwater.wire.packets import (
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from tests.node.memory import Client
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect, count, passing, publish, subscribe

GROUPED = "$share/g/t"


def group_with_an_absent_member(config: Config | None = None) -> DurableBroker:
    broker = DurableBroker(config=config)
    kept = connect(broker, "kept")
    subscribe(broker, kept, GROUPED, 2)
    kept.lose()
    broker.settle()
    return broker


def member_of(broker: DurableBroker, **properties: object) -> Client:
    """A passing one."""
    member = connect(broker, "member", clean_start=True, properties=Properties(**properties))  # type: ignore[arg-type]
    subscribe(broker, member, GROUPED, 2)
    return member


def come_back(broker: DurableBroker) -> list[bytes]:
    """What the absent member gets."""
    kept = connect(broker, "kept", settle=False)
    broker.settle()
    return [message.payload for message in kept.messages()]


def payloads(client: Client) -> list[bytes]:
    return [message.payload for message in client.messages()]


def test_qos_2_that_waited_in_a_group_goes_to_a_passing_member_when_the_group_has_given_it_away_for_good() -> None:
    """[MQTT-4.8.2-5] Once it is begun with one member, no other may get it: also not after a crash."""
    broker = group_with_an_absent_member()
    publish(passing(broker), "t", b"x", qos=2)
    broker.settle()
    member = passing(broker, "member")
    member.send(Subscribe(9, [SubscribeRequest(GROUPED, 2)]))
    assert payloads(member) == []
    assert come_back(broker.crash()) == [b"x"]
    broker.settle()
    assert payloads(member) == [b"x"]
    assert come_back(broker.crash()) == []


def test_a_new_qos_2_message_goes_to_a_passing_member_when_its_publisher_is_known_to_have_sent_it() -> None:
    """Else the publisher sends it again after a crash, and another member gets it."""
    broker = group_with_an_absent_member()
    member = member_of(broker)
    publisher = connect(broker, "publisher")
    publish(publisher, "t", b"x", qos=2, packet_id=3)
    assert payloads(member) == []
    broker.settle()
    assert payloads(member) == [b"x"]
    broker = broker.crash()
    publisher = connect(broker, "publisher")
    publisher.send(Publish("t", b"x", 2, False, True, 3))
    assert come_back(broker) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_for_a_passing_member_is_the_groups_again(qos: int) -> None:
    """A dispatcher that keeps an order lets messages wait for the member that they belong to."""
    broker = group_with_an_absent_member(Config(sys_interval=0, shared_dispatcher="hash_topic"))
    member = member_of(broker, receive_maximum=1)
    publisher = passing(broker, "publisher")
    for packet_id in (1, 2, 3):
        publish(publisher, "t", b"%d" % packet_id, qos=qos, packet_id=packet_id)
    broker.settle()
    [begun] = member.messages()
    assert begun.payload == b"1"
    again = [b"1", b"2", b"3"] if qos == 1 else [b"2", b"3"]
    assert come_back(broker.crash()) == again
    acknowledge(broker, member, begun)
    [begun] = member.messages()
    assert come_back(broker.crash(None)) == ([b"2", b"3"] if qos == 1 else [b"3"])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("dispatcher", ["round_robin", "hash_topic"])
def test_nothing_is_left_when_a_passing_member_has_acknowledged_all(dispatcher: str, qos: int) -> None:
    broker = group_with_an_absent_member(Config(sys_interval=0, shared_dispatcher=dispatcher))
    member = member_of(broker, receive_maximum=1)
    publisher = passing(broker, "publisher")
    for packet_id in (1, 2, 3):
        publish(publisher, "t", qos=qos, packet_id=packet_id)
    broker.settle()
    for _ in range(3):
        [message] = member.messages()
        acknowledge(broker, member, message)
    assert (count(broker, DELIVERY), count(broker, MESSAGE), count(broker, GROUP)) == (0, 0, 1)


@pytest.mark.parametrize("receive_maximum", [1, 10])
def test_a_group_may_end_while_its_last_member_has_messages_of_it(receive_maximum: int) -> None:
    broker = group_with_an_absent_member(Config(sys_interval=0, shared_dispatcher="hash_topic"))
    member = member_of(broker, receive_maximum=receive_maximum)
    publisher = passing(broker, "publisher")
    for packet_id in (1, 2):
        publish(publisher, "t", packet_id=packet_id)
    broker.settle()
    kept = connect(broker, "kept")
    for each in (kept, member):
        each.send(Unsubscribe(9, [GROUPED]))
    broker.settle()
    assert count(broker, GROUP) == 0
    after = broker.crash()
    after.settle()
    assert (count(after, DELIVERY), count(after, MESSAGE)) == (0, 0)
    for message in member.messages():
        member.send(Puback(message.packet_id))
    broker.settle()
    assert (count(broker, DELIVERY), count(broker, MESSAGE)) == (0, 0)


def acknowledge(broker: DurableBroker, member: Client, message: Publish) -> None:
    if message.qos == 1:
        member.send(Puback(message.packet_id))
    else:
        member.send(Pubrec(message.packet_id))
        broker.settle()
        member.send(Pubcomp(message.packet_id))
    broker.settle()
