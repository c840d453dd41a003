"""Status reports in a broker: consent, what is told to groups, what is ignored, and what a lie can do."""

from __future__ import annotations

import json
import logging

import pytest

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.protocol.reporting import LONGEST_BODY
from headwater.node.protocol.statistics import statistics_of
from headwater.node.protocol.sys_topics import SysTopics
from headwater.routing.dispatcher import Member
from headwater.routing.dispatchers.member_queue import MemberQueue
from headwater.session.report_grant import BURST
from headwater.wire import encode
from headwater.wire.packets import (
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
from headwater.wire.primitives import encode_varint
from headwater.wire.status import StatusReport, consent, encode_status, interval_of
from tests.node.memory import Client, MemoryBroker
from tests.wire.test_status import examples


def new_broker(**settings: object) -> MemoryBroker:
    return MemoryBroker(Config(sys_interval=0, **settings))  # type: ignore[arg-type]


def reporter(broker: MemoryBroker, client_id: str = "c", interval: int = 1000, **properties: int) -> Client:
    asked = Properties(user_properties=[consent(interval)], **properties)  # type: ignore[arg-type]
    return broker.client(client_id, clean_start=False, properties=asked)


def join(client: Client, share: str, topic: str = "t") -> None:
    client.send(Subscribe(1, [SubscribeRequest(f"$share/{share}/{topic}", 0)]))
    client.packets()


def member_of(broker: MemoryBroker, client_id: str, share: str, topic: str = "t") -> Member:
    group = broker.server.router.groups.get(share, topic)
    assert group is not None
    member = group.member(broker.server.sessions[client_id])
    assert member is not None
    return member


def report(client: Client, waiting: object, milliseconds: object = 0) -> list[Packet]:
    """Send a report; the answers."""
    return raw_report(client, json.dumps({"msgsInQueue": waiting, "processingTimePerMsg": milliseconds}).encode())


def raw_report(client: Client, payload: bytes, properties: list[tuple[str, str]] | None = None) -> list[Packet]:
    client.feed(encode_status(StatusReport(payload, properties)))
    return client.packets()


def counts(broker: MemoryBroker) -> tuple[int, int, int]:
    statistics = statistics_of(broker.server, 0.0)
    return statistics.reports, statistics.reports_bad, statistics.reports_early


# ---- consent ----


def test_the_page_is_right_about_this_broker() -> None:
    """Byte by byte: what the examples of docs/status-reports.md send is answered as they say."""
    page = examples()
    broker = new_broker()
    client = Client(broker)
    client.feed(page["A client asks"])
    join_bytes = encode(Subscribe(1, [SubscribeRequest("$share/g/t", 0)]), 5)
    client.feed(join_bytes)
    client.feed(page["A report"])
    member = member_of(broker, "w1", "g")
    assert (member.waiting, member.reported_seconds, member.report_interval) == (3, 0.0255, 1.0)
    client.feed(page["A report with a User Property"])
    assert (member.waiting, member.reported_seconds) == (0, 0.0255)
    answers = page["The broker grants it"] + b"\x90\x04\x00\x01\x00\x00" + 2 * page["The answer to either"]
    assert client.socket.sent == answers


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.25, 86400.0])
def test_the_shortest_time_is_told(seconds: float) -> None:
    broker = new_broker(report_min_interval=seconds)
    answer = Client(broker).connect(Connect("c", 5, properties=Properties(user_properties=[consent(9)])))
    assert interval_of(answer.properties) == round(seconds * 1000)


def test_who_does_not_ask_sees_no_difference() -> None:
    """Not a byte, with reports switched on or off, and a body stays malformed."""
    sent = []
    for reports in (True, False):
        client = new_broker(status_reports=reports).client("c", keep_alive=60)
        raw_report(client, b"{}")
        sent.append(bytes(client.socket.sent))
        assert client.socket.shut
    assert sent[0] == sent[1]
    assert b"status" not in sent[0] and sent[0].startswith(bytes.fromhex("20 0E 00 00 0B 22 00 40 27"))


def test_3_1_1_has_no_reports() -> None:
    client = new_broker().client("c", 4)
    assert raw_report(client, b"{}") == [] and client.socket.shut


@pytest.mark.parametrize("asked", [[("status-report-ms", "0")], [consent(5), consent(5)], [("other", "5")]])
def test_what_is_no_consent_is_not_answered(asked: list[tuple[str, str]]) -> None:
    client = Client(new_broker())
    answer = client.connect(Connect("c", 5, properties=Properties(user_properties=asked)))
    assert answer.reason == 0 and answer.properties is not None and answer.properties.user_properties is None
    [last] = report(client, 0)
    assert isinstance(last, Disconnect) and last.reason == 0x81


def test_reports_can_be_switched_off() -> None:
    client = Client(new_broker(status_reports=False))
    answer = client.connect(Connect("c", 5, properties=Properties(user_properties=[consent(1000)])))
    assert answer.reason == 0 and interval_of(answer.properties) == 0
    [last] = report(client, 0)
    assert isinstance(last, Disconnect) and last.reason == 0x81


def test_connack_is_not_made_too_large_by_it() -> None:
    """[MQTT-3.2.2-20] A client that takes only small packets is accepted, and granted nothing."""
    asked = Properties(user_properties=[consent(1000)], maximum_packet_size=38)
    client = Client(new_broker())
    answer = client.connect(Connect("c", 5, properties=asked))
    assert answer.reason == 0 and interval_of(answer.properties) == 0 and not client.socket.shut
    report(client, 0)
    assert client.socket.shut
    asked.maximum_packet_size = 39
    roomy = Client(new_broker())
    assert interval_of(roomy.connect(Connect("c", 5, properties=asked)).properties) == 50
    asked.maximum_packet_size = 5
    tiny = Client(new_broker())
    tiny.version = 5
    tiny.send(Connect("c", 5, properties=asked))
    assert tiny.socket.shut


def test_a_consent_that_is_not_asked_again_is_over() -> None:
    broker = new_broker()
    reporter(broker).lose()
    client = broker.client("c", clean_start=False)
    report(client, 0)
    assert client.socket.shut


@pytest.mark.parametrize("first", [0xC1, 0xC8])
def test_flags_of_a_report_are_as_reserved_as_ever(first: int) -> None:
    client = reporter(new_broker())
    client.feed(bytes((first, 3)) + b"\x00{}")
    [last] = client.packets()
    assert isinstance(last, Disconnect) and last.reason == 0x81


# ---- what is told ----


def test_all_groups_are_told_also_those_joined_later() -> None:
    broker = new_broker(shared_dispatcher="least_load")
    client, silent = reporter(broker, interval=2500), broker.client("s")
    join(client, "one")
    join(client, "two", "t/2")
    join(silent, "one")
    assert report(client, 5, 20) == [Pingresp()]
    join(client, "three")
    broker.later(0.05)
    for share, topic, waiting in (("one", "t", 5), ("two", "t/2", 5), ("three", "t", -1)):
        assert member_of(broker, "c", share, topic).waiting == waiting
    report(client, 7)
    for share, topic in (("one", "t"), ("two", "t/2"), ("three", "t")):
        member = member_of(broker, "c", share, topic)
        assert (member.waiting, member.report_interval) == (7, 2.5)
    assert member_of(broker, "c", "one").reported_seconds == 0.02, "no message done tells no time"
    assert member_of(broker, "s", "one").waiting == -1
    assert counts(broker) == (2, 0, 0)


def test_both_spellings_and_user_properties() -> None:
    broker = new_broker()
    client = reporter(broker)
    join(client, "g")
    payload = b'{"numberOfMsgsInQueue": 4, "processingTimerPerMsg": 12.5, "more": [1]}'
    assert raw_report(client, payload, [("a", "b"), ("a", "b")]) == [Pingresp()]
    member = member_of(broker, "c", "g")
    assert (member.waiting, member.reported_seconds) == (4, 0.0125)


def test_a_report_steers() -> None:
    broker = new_broker(shared_dispatcher="least_load")
    busy, idle = reporter(broker, "busy"), reporter(broker, "idle")
    join(busy, "g")
    join(idle, "g")
    report(busy, 10, 10)
    report(idle, 0, 10)
    broker.client("p").send(*[Publish("t", b"x")] * 6)
    assert (len(busy.messages()), len(idle.messages())) == (0, 6)


def test_what_was_reported_ends_with_the_connection() -> None:
    broker = new_broker(shared_dispatcher="least_pending")
    client = reporter(broker, session_expiry_interval=100)
    join(client, "g")
    report(client, 5, 20)
    member = member_of(broker, "c", "g")
    member.sent_since_report = 3
    client.lose()
    assert (member.waiting, member.reported_seconds, member.report_interval) == (-1, 0.0, 0.0)
    assert member.sent_since_report == 0 and member is member_of(broker, "c", "g")


def test_who_reports_no_longer_is_known_by_its_acknowledgements() -> None:
    broker = new_broker(shared_dispatcher="adaptive")
    client = reporter(broker, session_expiry_interval=100)
    client.send(Subscribe(1, [SubscribeRequest("$share/g/t", 1)]))
    report(client, 0, 1000)
    client.lose()
    client = broker.client("c", clean_start=False, properties=Properties(session_expiry_interval=100))
    queue = member_of(broker, "c", "g").model
    assert isinstance(queue, MemberQueue) and queue.service == 1.0
    publisher = broker.client("p")
    for _ in range(20):
        publisher.send(Publish("t", b"x", 1, packet_id=1))
        [message] = client.messages()
        broker.later(0.01)
        client.send(Puback(message.packet_id))
    assert queue.service == pytest.approx(0.01)


def test_a_client_that_takes_over_its_connection_starts_anew() -> None:
    broker = new_broker()
    old = reporter(broker, session_expiry_interval=100)
    join(old, "g")
    report(old, 5, 20)
    new = reporter(broker, interval=500, session_expiry_interval=100)
    member = member_of(broker, "c", "g")
    assert member.waiting == -1 and old.socket.shut
    report(new, 6)
    assert (member.waiting, member.report_interval) == (6, 0.5)


def test_a_report_is_a_sign_of_life() -> None:
    broker = new_broker()
    client = broker.client("c", keep_alive=10, properties=Properties(user_properties=[consent(1000)]))
    for _ in range(10):
        broker.later(14)
        assert raw_report(client, b"rubbish") == [Pingresp()]
    broker.later(16)
    [last] = client.packets()
    assert isinstance(last, Disconnect) and last.reason == 0x8D


def test_a_plain_pingreq_is_no_report() -> None:
    broker = new_broker()
    client = reporter(broker)
    client.send(*[Pingreq()] * 10)
    assert client.packets() == [Pingresp()] * 10
    assert counts(broker) == (0, 0, 0)


def test_hooks_see_reports_as_any_packet() -> None:
    hooks = Hooks()
    seen: list[object] = []
    hooks.add("packet_read", lambda packet, client: seen.append(packet))
    hooks.add("packet_processed", lambda client, packet: seen.append(packet))
    broker = MemoryBroker(Config(sys_interval=0), hooks)
    client = reporter(broker)
    join(client, "g")
    seen.clear()
    report(client, 5)
    first, second = seen
    assert isinstance(first, StatusReport) and first is second
    hooks.add("packet_read", lambda packet, client: StatusReport(b'{"msgsInQueue": 9}'))
    report(client, 5)
    assert member_of(broker, "c", "g").waiting == 9


# ---- what is ignored ----

BAD = [
    b"",
    b"\x00",
    b"rubbish",
    b"\xff\xfe",
    b"[]",
    b"3",
    b"null",
    b"{}",
    b'{"msgsInQueue": NaN}',
    b'{"msgsInQueue": Infinity}',
    b'{"msgsInQueue": 1e308}',
    b'{"msgsInQueue": -1}',
    b'{"msgsInQueue": 0.5}',
    b'{"msgsInQueue": "3"}',
    b'{"msgsInQueue": true}',
    b'{"msgsInQueue": ' + b"9" * 4000 + b"}",
    b'{"msgsInQueue": 1, "processingTimePerMsg": NaN}',
    b'{"msgsInQueue": 1, "processingTimePerMsg": -0.1}',
    b'{"msgsInQueue": 1, "processingTimePerMsg": 1e308}',
    b'{"msgsInQueue": 1, "processingTimePerMsg": -Infinity}',
    b'{"msgsInQueue": 1, "processingTimePerMsg": [1]}',
    b"[" * 4000,
    b'{"msgsInQueue": 1}' + b" " * 4096,
    b'{"msgsInQueue": 1}' + b" " * 1_000_000,
]


@pytest.mark.parametrize("payload", BAD, ids=lambda payload: repr(payload[:40]))
def test_a_bad_report_is_ignored_and_counted(payload: bytes) -> None:
    broker = new_broker(shared_dispatcher="adaptive")
    client, other = reporter(broker), broker.client("o")
    join(client, "g")
    join(other, "g")
    report(client, 2, 10)
    broker.later(1.0)
    member = member_of(broker, "c", "g")
    assert raw_report(client, payload) == [Pingresp()]
    assert (member.waiting, member.reported_seconds) == (2, 0.01)
    assert counts(broker) == (2, 1, 0) and not client.socket.shut
    broker.later(1.0)
    report(client, 1, 10)
    assert member.waiting == 1, "and the next good one is taken"


def test_bad_reports_are_logged_once_for_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    broker = new_broker()
    client, other = reporter(broker), reporter(broker, "other")
    with caplog.at_level(logging.DEBUG, "headwater"):
        for payload in BAD:
            broker.later(1.0)
            raw_report(client, payload)
        assert len(caplog.records) == 1 and "'c'" in caplog.text and "not JSON" in caplog.text
        raw_report(other, b"")
        assert len(caplog.records) == 2
    assert counts(broker) == (len(BAD) + 1, len(BAD) + 1, 0)


def test_a_long_report_is_not_even_parsed() -> None:
    """Thousands of User Properties that are malformed at their end: nobody looks."""
    for size, parsed in ((LONGEST_BODY, True), (LONGEST_BODY + 1, False)):
        broker = new_broker()
        client = reporter(broker)
        body = b"\xff\x7f" + (b"\x26\x00\x00\x00\x00" * size)[: size - 2]
        client.feed(b"\xc0" + encode_varint(size) + body)
        [last] = client.packets()
        assert isinstance(last, Disconnect if parsed else Pingresp)
        assert counts(broker) == (1, 0 if parsed else 1, 0)


def test_a_report_larger_than_any_packet_may_be() -> None:
    client = reporter(new_broker(max_packet_size=2048))
    [last] = raw_report(client, b" " * 3000)
    assert isinstance(last, Disconnect) and last.reason == 0x95


def test_a_malformed_report_ends_the_connection() -> None:
    broker = new_broker()
    client = reporter(broker)
    client.feed(b"\xc0\x01\x05")
    [last] = client.packets()
    assert isinstance(last, Disconnect) and last.reason == 0x81
    assert broker.server.stats.protocol_errors == 1


def test_too_many_reports_are_answered_and_not_looked_at() -> None:
    """A flood in one second has no more effect than the granted rate, and nothing of it is parsed."""
    broker = new_broker()
    client = reporter(broker)
    join(client, "g")
    for _ in range(100):
        broker.later(0.01)
        client.feed(encode_status(StatusReport(b'{"msgsInQueue": 1}')) * 99)
        client.feed(b"\xc0\x01\x05")  # would be malformed
    assert client.packets() == [Pingresp()] * 10_000
    received, bad, early = counts(broker)
    assert (received, bad) == (10_000, 0)
    assert received - early == 20 + BURST - 1


def test_reports_in_time_are_all_taken_even_if_the_way_brings_them_together() -> None:
    broker = new_broker()
    client = reporter(broker)
    join(client, "g")
    for _ in range(20):
        broker.later(0.05 * BURST)
        for number in range(BURST):
            report(client, number)
    assert counts(broker) == (20 * BURST, 0, 0)


def test_what_is_counted_is_shown() -> None:
    broker = new_broker()
    topics = SysTopics(broker.server, 0.0)
    watcher = broker.client("w")
    watcher.send(Subscribe(1, [SubscribeRequest("$SYS/broker/reports/#", 0)]))
    client = reporter(broker)
    for payload in (b'{"msgsInQueue": 1}', b"", b"", b"", b""):
        raw_report(client, payload)
    topics.publish(10.0)
    broker.turn()
    shown = {packet.topic.removeprefix("$SYS/broker/reports/"): packet.payload for packet in watcher.messages()}
    assert shown == {"received": b"5", "ignored/bad": b"2", "ignored/early": b"2"}


# ---- lies ----

STATED = 8
"""Times an average share, by docs/status-reports.md."""


class Worker:
    """A member that takes `service` seconds for each message, and reports the truth (or that it is idle) each second
    and, bounded, when its queue changed."""

    def __init__(self, broker: MemoryBroker, client_id: str, service: float, lies: bool) -> None:
        self.client = reporter(broker, client_id)
        join(self.client, "g")
        self.service = service
        self.lies = lies
        self.got = 0
        self.waiting = 0
        self.free_at = 0.0
        self.reported_at = 0.0
        self.longest = 0

    def step(self, now: float) -> None:
        arrived = len(self.client.messages())
        self.got += arrived
        self.waiting += arrived
        self.longest = max(self.longest, self.waiting)
        while self.waiting and self.free_at <= now:
            self.free_at = max(self.free_at, now - 0.001) + self.service
            self.waiting -= 1
        if now >= self.reported_at + 0.1:
            self.reported_at = now
            report(self.client, 0 if self.lies else self.waiting, 0.001 if self.lies else self.service * 1000)


def test_a_liar_gets_at_most_a_stated_multiple_of_an_average_share() -> None:
    """Who always claims to be idle and quick gets at most STATED times what an average member gets, as long as the
    others keep up. The messages come in bursts: a liar that was believed would get most of each."""
    broker = new_broker(shared_dispatcher="adaptive")
    service, burst = 0.02, 100
    honest = [Worker(broker, f"h{number}", service * (0.8 + 0.02 * number), False) for number in range(20)]
    liar = Worker(broker, "liar", service, True)
    publisher = broker.client("p")
    began = broker.server.hot.now
    for millisecond in range(4000):
        if millisecond % 120 == 0:
            publisher.send(*[Publish("t", b"x")] * burst)
        for worker in [*honest, liar]:
            worker.step(broker.server.hot.now)
        broker.later(0.001)
    elapsed = broker.server.hot.now - began
    average = sum(worker.got for worker in honest) / len(honest)
    assert max(worker.longest for worker in honest) < STATED, "the others keep up"
    assert liar.got <= STATED * elapsed / service
    assert liar.got <= STATED * average
    assert liar.longest > burst, "it has earned what it gets"
