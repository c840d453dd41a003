"""Shared groups in a broker: what their dispatchers are told, and that every one of them delivers everything once."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.node.config import Config
from headwater.routing.dispatcher import Member
from headwater.routing.shared import DISPATCHERS, Group
from headwater.wire.packets import Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, SubscribeRequest
from tests.node.memory import Client, MemoryBroker

TOPIC = "t"


def group_of(broker: MemoryBroker) -> Group:
    group = broker.server.router.groups.get("g", TOPIC)
    assert group is not None
    return group


def member_of(broker: MemoryBroker, client_id: str) -> Member:
    member = group_of(broker).member(broker.server.sessions[client_id])
    assert member is not None
    return member


def joined(broker: MemoryBroker, client_id: str, qos: int = 1, **properties: int) -> Client:
    client = broker.client(client_id, properties=Properties(session_expiry_interval=100, **properties))
    client.send(Subscribe(1, [SubscribeRequest(f"$share/g/{TOPIC}", qos)]))
    client.packets()
    return client


def new_broker(dispatcher: str, **settings: object) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, shared_dispatcher=dispatcher, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("dispatcher", sorted(DISPATCHERS))
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_dispatcher_delivers_everything_once(dispatcher: str, qos: int) -> None:
    broker = new_broker(dispatcher)
    members = [joined(broker, f"m{number}", qos) for number in range(3)]
    publisher = broker.client("p")
    got: Counter[bytes] = Counter()
    for number in range(60):
        publisher.send(Publish(TOPIC, b"%d" % number, qos, packet_id=1 if qos else 0))
        if qos == 2:
            publisher.send(Pubrel(1))
        broker.later(0.01)
        for member in members:
            for packet in member.packets():
                if isinstance(packet, Publish):
                    got[packet.payload] += 1
                    if qos == 1:
                        member.send(Puback(packet.packet_id))
                    elif qos == 2:
                        member.send(Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    member.send(Pubcomp(packet.packet_id))
    assert got == {b"%d" % number: 1 for number in range(60)}
    for member in members:  # the last PUBREL may still be there
        for packet in member.packets():
            if isinstance(packet, Pubrel):
                member.send(Pubcomp(packet.packet_id))
    assert [member.in_flight for member in group_of(broker).members()] == [0, 0, 0]


@pytest.mark.parametrize("dispatcher", ["least_pending", "adaptive"])
def test_who_does_not_acknowledge_gets_less(dispatcher: str) -> None:
    """No client has to be changed for it: a plain acknowledgement tells how a member is doing."""
    broker = new_broker(dispatcher)
    quick, stuck = joined(broker, "quick"), joined(broker, "stuck")
    publisher = broker.client("p")
    taken = 0
    for _ in range(200):
        publisher.send(Publish(TOPIC, b"x", 1, packet_id=1))
        broker.later(0.01)
        for packet in quick.messages():
            taken += 1
            quick.send(Puback(packet.packet_id))
    assert taken + member_of(broker, "stuck").in_flight == 200
    assert taken > 150
    assert len(stuck.messages()) == member_of(broker, "stuck").in_flight


def test_what_is_refused_dropped_or_too_large_is_under_way_no_longer() -> None:
    broker = new_broker("round_robin", max_inflight=1, max_queued_messages=1)
    client = joined(broker, "m", 2, maximum_packet_size=100)
    publisher = broker.client("p")
    member = member_of(broker, "m")
    publisher.send(Publish(TOPIC, b"." * 200, 1, packet_id=1))
    assert member.in_flight == 0
    for packet_id in (2, 3, 4):  # one flies, one waits in the group, one is dropped
        publisher.send(Publish(TOPIC, b"x", 2, packet_id=packet_id), Pubrel(packet_id))
    assert member.in_flight == 1
    [flying] = client.messages()
    client.send(Pubrec(flying.packet_id, 0x80))
    assert member.in_flight == 1
    [flying] = client.messages()
    client.send(Pubrec(flying.packet_id))
    assert member.in_flight == 1
    client.send(Pubcomp(flying.packet_id))
    assert member.in_flight == 0
