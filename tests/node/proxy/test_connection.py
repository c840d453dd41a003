"""The own client's connection to a home broker that is slow to answer."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from headwater.message import Delivery, Message
from headwater.node.proxy.connection import HELD, MOST_HELD, HomeConnection
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.waiting import REFUSE, Budget
from headwater.wire.packets import Publish


def test_an_id_that_is_only_reserved_is_no_message_to_send_again() -> None:
    """UNSUBACK of the probe comes later than its time: the session is attached meanwhile."""
    session = Session("home", Outbound(Budget(1 << 20), 10, 1 << 20, REFUSE))
    connection: Any = HomeConnection.__new__(HomeConnection)
    connection.home = SimpleNamespace(session=session)
    connection._reserved = []
    outbound = session.outbound
    outbound.connected(10)
    delivery = Delivery(Message("a", b"b", 1), 1, False)
    sent = outbound.take_id()
    outbound.fly(sent, delivery, 1)
    reserved = connection.reserve()
    assert connection._resume(session) == [sent]
    assert reserved in outbound.flights  # until it is answered
    connection._release(reserved)
    assert list(outbound.flights) == [sent]


def test_messages_without_payload_that_find_no_room_are_bounded_too() -> None:
    """A home broker of 3.1.1 may send any number of them before the first is acknowledged."""
    connection: Any = HomeConnection.__new__(HomeConnection)
    connection.held = deque()
    connection._held_bytes = 0
    connection.channel = SimpleNamespace(paused=0, session=None)
    paused: list[int] = []

    def pause(channel: Any, why: int) -> None:
        channel.paused |= why
        paused.append(len(connection.held))

    connection.home = SimpleNamespace(try_held_soon=lambda: None, server=SimpleNamespace(pause=pause))
    for number in range(20_000):
        connection._hold(Publish("t", b"", 1, packet_id=number + 1))
    assert len(paused) == 1
    assert paused[0] * HELD <= MOST_HELD + 2 * HELD
