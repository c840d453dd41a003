"""The life of a channel: time-outs, how many there may be, what a failure costs, how one part comes after another."""

from __future__ import annotations

import ast
import socket
from pathlib import Path
from typing import cast

import pytest

from headwater.node import broker as node
from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.collecting import LARGE_PACKET
from headwater.node.protocol.server import LINGER
from headwater.wire import encode
from headwater.wire.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
)
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    KEEP_ALIVE_TIMEOUT,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SESSION_TAKEN_OVER,
)
from tests.node.memory import Client, MemoryBroker, MemorySocket

PACKAGE = Path(node.__file__).parent.parent


def subscribed(broker: MemoryBroker, client_id: str, filter: str = "t", qos: int = 0, **connect: object) -> Client:
    client = broker.client(client_id, **connect)  # type: ignore[arg-type]
    client.send(Subscribe(1, [SubscribeRequest(filter, qos)]))
    client.packets()
    return client


def payloads(client: Client) -> list[bytes]:
    return [message.payload for message in client.messages()]


# ---- time ----


@pytest.mark.parametrize("version", [4, 5])
def test_silence_for_one_and_a_half_keep_alives_ends_the_connection(version: int) -> None:
    broker = MemoryBroker()
    client = broker.client("c", version, keep_alive=10)
    broker.later(14.9)
    client.send(Pingreq())
    assert client.packets() == [Pingresp()]
    broker.later(14.9)
    assert client.packets() == [] and not client.socket.shut
    broker.later(0.2)
    assert client.packets() == ([Disconnect(KEEP_ALIVE_TIMEOUT)] if version == 5 else [])
    assert client.socket.shut


def test_parts_of_a_packet_are_no_sign_of_life() -> None:
    """[MQTT-3.1.2-22] speaks of packets: who trickles bytes of one and never ends it is cut off all the same."""
    broker = MemoryBroker()
    client = broker.client("c", 5, keep_alive=10)
    packet = encode(Publish("t", b"." * 100), 5)
    for number in range(15):
        broker.later(1)
        client.feed(packet[number : number + 1])
    assert client.channel.finishing


def test_a_3_1_1_client_keeps_its_keep_alive() -> None:
    """It could not be told of ours."""
    broker = MemoryBroker(Config(sys_interval=0, max_keep_alive=10))
    assert broker.client("c", 4, keep_alive=60).channel.keep_alive == 60
    assert broker.client("d", 4).channel.keep_alive == 0


def test_sessions_are_bounded() -> None:
    """A new one is refused; those there are can be resumed and make room when they end."""
    broker = MemoryBroker(Config(sys_interval=0, max_sessions=1))
    kept = broker.client("kept", 5, properties=Properties(session_expiry_interval=100))
    kept.lose()
    refused = Client(broker)
    assert refused.connect(Connect("new", 5)).reason == QUOTA_EXCEEDED
    again = broker.client("kept", 5, clean_start=False)
    again.send(Disconnect())
    assert Client(broker).connect(Connect("new", 5)).reason == 0


def test_without_keep_alive_silence_is_fine() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    broker.later(1e6)
    assert not client.socket.shut


def test_the_longest_keep_alive_is_ours_to_say() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_keep_alive=10))
    for asked, told in ((0, 10), (11, 10), (10, None), (5, None)):
        client = Client(broker)
        answer = client.connect(Connect(f"c{asked}", 5, keep_alive=asked))
        assert answer.properties is not None and answer.properties.server_keep_alive == told
        assert client.channel.keep_alive == (told or asked)


@pytest.mark.parametrize("qos", [0, 1])
def test_too_many_bytes_of_properties_are_not_waited_for(qos: int) -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    pairs = [("x" * 60_000, "y" * 60_000)] * 2
    packet = encode(Publish("t", b"", qos, packet_id=qos, properties=Properties(user_properties=pairs)), 5)
    client.feed(packet[:60_000])
    (said,) = client.packets()
    assert isinstance(said, Disconnect) and said.reason == QUOTA_EXCEEDED
    allowed = broker.client("d")
    properties = Properties(user_properties=pairs[:1])
    packet = encode(Publish("t", b"z" * 200_000, qos, packet_id=qos, properties=properties), 5)
    allowed.feed(packet[:3])
    allowed.feed(packet[3:60_000])
    allowed.feed(packet[60_000:])
    assert len(allowed.packets()) == qos


@pytest.mark.parametrize("beginning", [b"", b"\x10", encode(Connect("c", 5), 5)[:-1]], ids=["none", "a byte", "a part"])
def test_who_does_not_connect_in_time_is_cut_off(beginning: bytes) -> None:
    broker = MemoryBroker(Config(sys_interval=0, connect_timeout=10))
    client = Client(broker)
    if beginning:
        client.feed(beginning)
    broker.later(9.9)
    assert not client.socket.shut
    broker.later(0.2)
    assert client.socket.shut and client.packets() == []


def test_who_connects_in_time_is_not_cut_off() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    broker.later(1000)
    assert not client.socket.shut


def test_last_words_may_be_read_for_a_moment() -> None:
    """The socket is shut but not closed at once: closing could destroy what the client has not read yet."""
    broker = MemoryBroker()
    client = broker.client("c")
    client.feed(b"\x00\x00")
    assert [type(packet) for packet in client.packets()] == [Disconnect]
    assert client.socket.shut and not client.socket.closed
    broker.later(LINGER + 0.1)
    assert client.socket.closed and client.channel not in broker.server.channels
    polite = broker.client("p")
    polite.send(Disconnect())
    assert polite.socket.closed, "who said goodbye waits for nothing"


def test_a_wall_clock_that_jumps_does_not_matter() -> None:
    """No module asks for the time of day: the loop and the broker read the monotonic clock, the others are told. Only
    what is shown to people has it, the end of a token or of advice, which is made an interval at once, a certificate's,
    the number of a node's life, stamps that order what nodes write, since when a filter is on its way, and what is on
    disk, expiry of what is forwarded from there and what goes to object storage included."""
    node = PACKAGE / "node"
    shown = {node / "operations" / "logs.py", node / "protocol" / "tracing.py"}
    shown |= {node / name for name in ("access/tokens.py", "transports/contexts.py", "links/identity.py")}
    shown |= {
        node / "links" / name
        for name in (
            "retaining.py",
            "sending.py",
            "claiming.py",
            "wills.py",
            "draining.py",
            "appointed.py",
            "owning.py",
        )
    }
    shown |= {node / "proxy" / name for name in ("leading.py", "retained.py")}
    shown |= set((PACKAGE / "node" / "persistence").rglob("*.py"))
    shown |= {PACKAGE / "node" / "delivery" / name for name in ("coordinator.py", "trimming.py")}
    shown |= {PACKAGE / "node" / "delivery" / name for name in ("history.py", "history_child.py")}
    shown |= {PACKAGE / "node" / "advice" / name for name in ("advising.py", "document.py")}
    shown.add(node / "forwarding" / "converting.py")
    steady = ("time.monotonic", "time.process_time")
    wrong: list[str] = []
    clocks: list[str] = []
    for path in sorted(
        each
        for part in ("node", "session", "routing", "wire")
        for each in (PACKAGE / part).rglob("*.py")
        if each not in shown
    ):
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(found, ast.Import):
                names = [alias.name for alias in found.names if alias.name == "datetime"]
            elif isinstance(found, ast.ImportFrom) and found.module in ("time", "datetime"):
                names = [f"{found.module}.{alias.name}" for alias in found.names]
            elif isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name) and found.value.id == "time":
                names = [f"time.{found.attr}"]
            clocks += [name for name in names if name in steady]
            wrong += [f"{path.name}: {name}" for name in names if name not in steady]
    assert clocks and wrong == []


def test_nothing_expires_when_the_wall_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    lasting = Properties(session_expiry_interval=60)
    subscribed(broker, "s", qos=1, properties=lasting).lose()
    expiring = Properties(message_expiry_interval=60)
    broker.client("p").send(Publish("t", b"m", 1, True, False, 1, expiring))
    for jump in (-1e9, 1e9):
        monkeypatch.setattr("time.time", lambda jump=jump: 1.7e9 + jump)
        broker.later(1)
    assert "s" in broker.server.sessions and len(broker.server.router.retained) == 1
    again = broker.client("s", clean_start=False, properties=lasting)
    assert again.channel.session is not None
    broker.turn()


# ---- how many ----


@pytest.mark.parametrize(("version", "answer"), [(5, SERVER_BUSY), (4, 3)])
def test_one_connection_too_many_is_refused(version: int, answer: int) -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_connections=2))
    first, _ = broker.client("a"), broker.client("b")
    refused = Client(broker)
    assert refused.connect(Connect("c", version)).reason == answer
    assert refused.socket.shut
    first.send(Disconnect())
    assert Client(broker).connect(Connect("c", version)).reason == 0


def test_a_client_may_replace_itself_when_all_places_are_taken() -> None:
    """Or one whose old connection is dead but not yet found dead could not come back."""
    broker = MemoryBroker(Config(sys_interval=0, max_connections=1))
    old = broker.client("a")
    assert Client(broker).connect(Connect("a", 5)).reason == 0
    assert old.packets() == [Disconnect(SESSION_TAKEN_OVER)]
    assert broker.server.attaching.connected == 1


def test_sockets_that_do_not_connect_are_bounded_too() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_connections=1))
    broker.client("c")
    strangers = [Client(broker) for _ in range(64)]
    extra = MemorySocket(9999)
    broker.server.accept(cast(socket.socket, extra), "memory", True)
    assert strangers[0].socket.closed and not extra.closed
    assert not strangers[1].socket.closed and len(broker.server.channels) == 65


def test_clients_do_not_give_way_to_another_socket() -> None:
    broker = MemoryBroker()
    clients = [broker.client(f"c{number}") for number in range(3)]
    broker.server.most_sockets = 3
    extra = MemorySocket(9999)
    broker.server.accept(cast(socket.socket, extra), "memory", True)
    assert extra.closed and not any(each.socket.closed for each in clients)


# ---- failures ----


def test_a_failure_of_ours_costs_one_connection() -> None:
    """Whatever dealing with a packet raises is counted and logged; the client is told, the others are served on."""
    hooks = Hooks()
    broker = MemoryBroker(hooks=hooks)
    other = subscribed(broker, "o")
    client = broker.client("c")

    def confuse(packet: Packet, channel: object) -> Packet | None:
        return Connack() if isinstance(packet, Pingreq) and channel is client.channel else None

    hooks.add("packet_read", confuse)
    client.send(Publish("t", b"before"), Pingreq())
    # A PINGREQ is answered before anybody looks what a filter made of it; a SUBSCRIBE is not.
    assert client.packets() == [Pingresp()]
    hooks.remove("packet_read", confuse)
    hooks.add("packet_read", lambda packet, channel: Connack() if isinstance(packet, Subscribe) else None)
    client.send(Subscribe(1, [SubscribeRequest("t")]))
    [last] = client.packets()
    assert isinstance(last, Disconnect) and last.reason == IMPLEMENTATION_SPECIFIC_ERROR
    assert broker.server.stats.failures == 1
    broker.client("p").send(Publish("t", b"after"))
    assert payloads(other) == [b"before", b"after"]


# ---- packets in parts ----


def test_a_large_packet_in_parts_counts_in_the_memory_for_queues() -> None:
    broker = MemoryBroker(Config(sys_interval=0, max_queue_memory=1_000_000))
    reader, client, greedy = subscribed(broker, "r"), broker.client("c"), broker.client("g")
    data = encode(Publish("t", bytes(600_000)), 5)
    assert len(data) > LARGE_PACKET
    client.feed(data[:500_000])
    assert broker.server.budget.used == 500_000
    greedy.feed(data[:400_000])
    assert broker.server.budget.used == 900_000
    greedy.feed(data[400_000:550_000])
    [last] = greedy.packets()
    assert isinstance(last, Disconnect) and last.reason == QUOTA_EXCEEDED
    assert broker.server.budget.used == 500_000
    for start in range(500_000, len(data), 50_000):
        client.feed(data[start : start + 50_000])
    assert broker.server.budget.used == 0
    assert payloads(reader) == [bytes(600_000)]


def test_a_large_packet_that_never_ends_gives_its_memory_back() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    client.feed(encode(Publish("t", bytes(600_000)), 5)[:1000])
    client.lose()
    assert broker.server.budget.used == 0


def test_a_small_packet_in_parts_is_not_counted() -> None:
    broker = MemoryBroker()
    client = broker.client("c")
    client.feed(encode(Publish("t", bytes(LARGE_PACKET - 100)), 5)[:1000])
    assert broker.server.budget.used == 0


# ---- order ----


def test_what_comes_later_waits_behind_what_waits() -> None:
    """QoS 0 does not overtake QoS 1 that waits for an acknowledgement's place, whatever the topic."""
    broker = MemoryBroker()
    reader = subscribed(broker, "r", "#", 1, properties=Properties(receive_maximum=1))
    publisher = broker.client("p")
    publisher.send(Publish("a", b"1", 1, False, False, 1), Publish("a", b"2", 1, False, False, 2), Publish("b", b"3"))
    [first] = reader.messages()
    assert first.payload == b"1"
    reader.send(Puback(first.packet_id))
    assert payloads(reader) == [b"2", b"3"]


def test_order_holds_when_a_place_becomes_free_in_the_same_turn() -> None:
    """A QoS 0 message is held for the turn's end while an acknowledgement lets an earlier one out: that goes first."""
    broker = MemoryBroker()
    reader = subscribed(broker, "r", "#", 1, properties=Properties(receive_maximum=1))
    publisher = broker.client("p")
    publisher.send(Publish("a", b"1", 1, False, False, 1), Publish("a", b"2", 1, False, False, 2))
    [first] = reader.messages()
    with broker.one_turn():
        publisher.send(Publish("b", b"3"))
        reader.send(Puback(first.packet_id))
    assert payloads(reader) == [b"2", b"3"]


def test_order_holds_when_the_places_are_used_up_in_the_same_turn() -> None:
    """A QoS 0 message is held for the turn's end; a later one that has to wait does not get before it."""
    broker = MemoryBroker()
    reader = subscribed(broker, "r", "#", 1, properties=Properties(receive_maximum=1))
    publisher = broker.client("p")
    publisher.send(Publish("a", b"1", 1, False, False, 1))
    [first] = reader.messages()
    with broker.one_turn():
        publisher.send(Publish("b", b"2"))
        publisher.send(Publish("a", b"3", 2, False, False, 2))
        publisher.send(Publish("a", b"4", 1, False, False, 3))
    assert payloads(reader) == [b"2"]
    reader.send(Puback(first.packet_id))
    assert payloads(reader) == [b"3"]


def test_what_comes_later_waits_behind_what_is_sent_again() -> None:
    """Also behind messages in flight that a smaller receive maximum does not let out again at once."""
    broker = MemoryBroker()
    lasting = Properties(session_expiry_interval=60)
    reader = subscribed(broker, "r", "#", 1, properties=lasting)
    publisher = broker.client("p")
    publisher.send(Publish("a", b"1", 1, False, False, 1), Publish("a", b"2", 1, False, False, 2))
    reader.lose()
    again = broker.client("r", clean_start=False, properties=Properties(session_expiry_interval=60, receive_maximum=1))
    publisher.send(Publish("b", b"3"))
    [first] = again.messages()
    assert (first.payload, first.dup) == (b"1", True)
    again.send(Puback(first.packet_id))
    assert [(each.payload, each.dup) for each in again.messages()] == [(b"2", True), (b"3", False)]


def test_what_is_too_large_now_does_not_hold_up_what_is_not() -> None:
    """A client comes back with a smaller maximum packet size: what was in flight and does not fit is given up and told,
    and the rest goes on, although no acknowledgement frees a place."""
    hooks = Hooks()
    dropped: list[object] = []
    hooks.add("qos_dropped", lambda client_id, packet_id: dropped.append((client_id, packet_id)))
    broker = MemoryBroker(hooks=hooks)
    lasting = Properties(session_expiry_interval=60)
    reader = subscribed(broker, "r", "#", 1, properties=lasting)
    publisher = broker.client("p")
    for number, size in enumerate([100, 100, 100, 1], 1):
        publisher.send(Publish("a", b"%d" % number * size, 1, False, False, number))
    reader.lose()
    small = Properties(session_expiry_interval=60, receive_maximum=1, maximum_packet_size=50)
    again = broker.client("r", clean_start=False, properties=small)
    assert payloads(again) == [b"4"]
    assert dropped == [("r", 1), ("r", 2), ("r", 3)]
    assert broker.server.stats.publish_dropped == 3
