"""Sessions that begin, resume, are taken over and end, and their wills, on a clock that the test moves."""

from __future__ import annotations

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.wire.packets import Connect, Disconnect, Properties, Publish, Subscribe, SubscribeRequest, Will
from headwater.wire.reasons import (
    DISCONNECT_WITH_WILL,
    NOT_AUTHORIZED,
    PROTOCOL_ERROR,
    SESSION_TAKEN_OVER,
    USE_ANOTHER_SERVER,
)
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed

FOR_EVER = 0xFFFFFFFF


def lasting(seconds: int) -> Properties:
    return Properties(session_expiry_interval=seconds)


def will(delay: int = 0, expiry: int | None = None) -> Will:
    return Will("w", b"gone", 1, False, Properties(will_delay_interval=delay, message_expiry_interval=expiry))


def present(broker: MemoryBroker, client_id: str, version: int = 5) -> bool:
    return Client(broker).connect(Connect(client_id, version, clean_start=False, properties=lasting(1))).session_present


# ---- expiry ----


def test_a_session_is_kept_for_its_expiry_interval_and_not_longer() -> None:
    hooks = Hooks()
    expired: list[str] = []
    hooks.add("client_expired", expired.append)
    broker = MemoryBroker(hooks=hooks)
    client = broker.client("c", properties=lasting(10))
    broker.later(1000)
    client.lose()
    broker.later(9.9)
    assert "c" in broker.server.sessions and expired == []
    broker.later(0.2)
    assert "c" not in broker.server.sessions and expired == ["c"]
    assert broker.server.stats.expired == 1


def test_coming_back_stops_the_expiry_and_the_next_loss_starts_it_anew() -> None:
    broker = MemoryBroker()
    broker.client("c", properties=lasting(10)).lose()
    broker.later(9)
    client = broker.client("c", clean_start=False, properties=lasting(20))
    broker.later(100)
    client.lose()
    broker.later(19)
    assert "c" in broker.server.sessions
    broker.later(2)
    assert "c" not in broker.server.sessions


@pytest.mark.parametrize(("version", "clean", "kept"), [(5, True, False), (4, True, False), (4, False, True)])
def test_without_an_interval_the_protocol_version_decides(version: int, clean: bool, kept: bool) -> None:
    broker = MemoryBroker()
    broker.client("c", version, clean_start=clean).lose()
    broker.later(1e9)
    assert ("c" in broker.server.sessions) is kept


def test_for_ever_is_for_ever_unless_we_limit_it() -> None:
    broker = MemoryBroker()
    broker.client("c", properties=lasting(FOR_EVER)).lose()
    broker.later(1e9)
    assert "c" in broker.server.sessions
    limited = MemoryBroker(Config(sys_interval=0, max_session_expiry=100))
    for asked, told in ((FOR_EVER, 100), (101, 100), (100, None)):
        client = Client(limited)
        answer = client.connect(Connect("c", 5, properties=lasting(asked)))
        assert answer.properties is not None and answer.properties.session_expiry_interval == told
    client.lose()
    limited.later(101)
    assert "c" not in limited.server.sessions
    old = limited.client("old", 4, clean_start=False)
    old.lose()
    limited.later(101)
    assert "old" not in limited.server.sessions


def test_disconnect_may_change_the_expiry_but_not_make_one_up() -> None:
    broker = MemoryBroker()
    broker.client("c", properties=lasting(10)).send(Disconnect(0, lasting(50)))
    broker.later(49)
    assert "c" in broker.server.sessions
    broker.later(2)
    assert "c" not in broker.server.sessions
    broker.client("c", properties=lasting(10)).send(Disconnect(0, lasting(0)))
    assert "c" not in broker.server.sessions
    client = broker.client("c")
    client.send(Disconnect(0, lasting(5)))
    [answer] = client.packets()
    assert isinstance(answer, Disconnect) and answer.reason == PROTOCOL_ERROR


# ---- take-over ----


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_the_newer_connection_wins(version: int, clean: bool) -> None:
    broker = MemoryBroker()
    old = subscribed(broker, "c", qos=1, properties=lasting(100))
    new = Client(broker)
    answer = new.connect(Connect("c", version, clean, properties=lasting(100) if version == 5 else None))
    assert answer.session_present is not clean
    assert old.packets() == [Disconnect(SESSION_TAKEN_OVER)] and old.socket.shut
    broker.client("p").send(Publish("t", b"m"))
    assert payloads(new) == ([] if clean else [b"m"])
    assert broker.server.attaching.connected == 2


def test_the_end_of_an_old_connection_does_not_touch_the_new_one() -> None:
    broker = MemoryBroker()
    old = broker.client("c", properties=lasting(0))
    new = subscribed(broker, "c")
    old.lose()
    broker.later(100)
    broker.client("p").send(Publish("t", b"m"))
    assert payloads(new) == [b"m"]


# ---- wills ----


@pytest.mark.parametrize(
    ("delay", "expiry", "after"),
    [(0, 0, 0), (0, 100, 0), (10, 100, 10), (100, 10, 10), (10, 0, 0), (10, FOR_EVER, 10)],
)
def test_a_will_waits_for_its_delay_but_not_longer_than_its_session(delay: int, expiry: int, after: int) -> None:
    broker = MemoryBroker()
    watcher = subscribed(broker, "watcher", "w")
    broker.client("c", will=will(delay), properties=lasting(expiry)).lose()
    if after:
        broker.later(after - 0.5)
        assert payloads(watcher) == []
        broker.later(1)
    assert payloads(watcher) == [b"gone"]
    broker.later(1000)
    assert payloads(watcher) == [], "once"


@pytest.mark.parametrize(
    ("delay", "clean", "published"),
    [(10, False, False), (10, True, True), (0, False, True), (0, True, True)],
)
@pytest.mark.parametrize("taken_over", [True, False])
def test_coming_back_in_time_silences_a_delayed_will(
    delay: int, clean: bool, published: bool, taken_over: bool
) -> None:
    """Unless it comes with a clean start, which ends the old session. The same for a take-over as for a loss."""
    broker = MemoryBroker()
    watcher = subscribed(broker, "watcher", "w")
    client = broker.client("c", will=will(delay), properties=lasting(100))
    if not taken_over:
        client.lose()
        broker.later(5)
    broker.client("c", clean_start=clean, properties=lasting(100))
    assert payloads(watcher) == ([b"gone"] if published else [])
    broker.later(1000)
    assert payloads(watcher) == []


@pytest.mark.parametrize(("reason", "published"), [(0, False), (DISCONNECT_WITH_WILL, True), (0x80, True)])
def test_only_a_normal_goodbye_silences_the_will(reason: int, published: bool) -> None:
    broker = MemoryBroker()
    watcher = subscribed(broker, "watcher", "w")
    broker.client("c", will=will()).send(Disconnect(reason))
    assert payloads(watcher) == ([b"gone"] if published else [])


def test_a_will_grows_older_only_from_its_publication() -> None:
    broker = MemoryBroker()
    broker.client("c", will=Will("w", b"gone", 1, True, Properties(message_expiry_interval=10))).lose()
    broker.later(4)
    watcher = broker.client("watcher")
    watcher.send(Subscribe(1, [SubscribeRequest("w", 1)]))
    [message] = watcher.messages()
    assert message.properties == Properties(message_expiry_interval=6)


def test_the_will_of_the_new_connection_replaces_the_old_one() -> None:
    broker = MemoryBroker()
    watcher = subscribed(broker, "watcher", "w")
    broker.client("c", will=will(10), properties=lasting(100)).lose()
    again = broker.client("c", clean_start=False, will=Will("w", b"second"), properties=lasting(100))
    again.lose()
    assert payloads(watcher) == [b"second"]
    broker.later(1000)
    assert payloads(watcher) == []


# ---- refusals ----


@pytest.mark.parametrize(("version", "reason"), [(5, NOT_AUTHORIZED), (4, 5)])
@pytest.mark.parametrize(
    ("allowed", "loopback", "fine"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_anonymous_clients(version: int, reason: int, allowed: bool | None, loopback: bool, fine: bool) -> None:
    broker = MemoryBroker(Config(sys_interval=0, allow_anonymous=allowed))
    client = Client(broker)
    client.channel.loopback = loopback
    assert client.connect(Connect("c", version)).reason == (0 if fine else reason)
    assert client.socket.shut is not fine


@pytest.mark.parametrize(("version", "reason"), [(5, USE_ANOTHER_SERVER), (4, 3)])
def test_everybody_is_sent_elsewhere(version: int, reason: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0, server_reference="other:1883"))
    client = Client(broker)
    answer = client.connect(Connect("c", version))
    assert answer.reason == reason and client.socket.shut
    if version == 5:
        assert answer.properties is not None and answer.properties.server_reference == "other:1883"


@pytest.mark.parametrize(("takes", "answer"), [(5, b"\x20\x03\x00\x95\x00"), (4, b"")])
def test_who_takes_too_small_packets_is_refused(takes: int, answer: bytes) -> None:
    """A CONNACK with what we grant does not fit; one without would hide it."""
    broker = MemoryBroker()
    client = Client(broker)
    client.version = 5
    client.send(Connect("c", 5, properties=Properties(maximum_packet_size=takes)))
    assert bytes(client.socket.sent) == answer
    assert client.channel.finishing and "c" not in broker.server.sessions


def test_response_information_names_the_client() -> None:
    broker = MemoryBroker(Config(sys_interval=0, response_information="replies/%c"))
    for asked, told in ((1, "replies/c"), (0, None)):
        answer = Client(broker).connect(Connect("c", 5, properties=Properties(request_response_information=asked)))
        assert answer.properties is not None and answer.properties.response_information == told


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    broker = MemoryBroker()
    server = broker.server
    for number in range(50):
        client = subscribed(broker, f"c{number}", f"a/{number}", qos=1, properties=lasting(10), will=will(5))
        client.send(Subscribe(2, [SubscribeRequest("$share/g/b", 1), SubscribeRequest("+/x", 2)]))
        client.lose()
    publisher = broker.client("p")
    publisher.send(*(Publish("b", b"m", 1, False, False, number) for number in range(1, 50)))
    assert server.budget.used > 0
    broker.later(11)
    publisher.send(Disconnect())
    broker.later(10)
    assert (server.sessions, server.channels, server.budget.used, server.subscribing.count) == ({}, set(), 0, 0)
    assert (server.ending.expiries, server.ending.wills, server.attaching.connected) == ({}, {}, 0)
    assert len(server.router.groups) == 0 and not server.hot.fanouts.of("b").somebody
