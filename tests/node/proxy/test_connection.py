"""The own client's connection to a home broker that is slow to answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headwater.message import Delivery, Message
from headwater.node.proxy.connection import HomeConnection
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.waiting import REFUSE, Budget


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
