"""Every event is seen, with the arguments that it promises; whatever a hook does, the broker goes on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.message import Delivery, Message, Subscription
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import EVENTS, FILTER, GUARD, WATCHER, Challenge, Event, Hooks, Refusal
from headwater.node.plane.channel import Channel
from headwater.node.protocol.housekeeping import HOUSEKEEPING
from headwater.node.protocol.statistics import Statistics, statistics_of
from headwater.session.outbound import MAX_PACKET_ID, Flight
from headwater.session.session import Session
from headwater.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from headwater.wire.status import StatusReport, consent, encode_status
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed

ROOT = Path(__file__).parent.parent.parent

TYPES: dict[str, type | tuple[type, ...]] = {
    "broker": Broker,
    "chosen": list,
    "client": (Channel, Session),
    "client_id": str,
    "connect": Connect,
    "data": (bytes, type(None)),
    "filter": str,
    "filters": list,
    "group": str,
    "message": Message,
    "method": str,
    "packet": (Packet, StatusReport),
    "packet_id": int,
    "reason": int,
    "reauthenticate": bool,
    "requests": list,
    "seconds_per_message": float,
    "session_present": bool,
    "statistics": Statistics,
    "subscription": Subscription,
    "topic": str,
    "waiting": int,
    "write": bool,
}


class Recorder:
    """Listens to all events and checks the arguments of each."""

    def __init__(self, hooks: Hooks) -> None:
        self.seen: list[str] = []
        self.arguments: dict[str, list[tuple[Any, ...]]] = {}
        for name, event in EVENTS.items():
            hooks.add(name, self.listener(name, event))

    def listener(self, name: str, event: Event) -> Callable[..., Any]:
        def hook(*arguments: object) -> Any:
            promised = event.arguments.split(", ")
            assert len(arguments) == len(promised)
            for value, word in zip(arguments, promised, strict=True):
                assert isinstance(value, TYPES[word]), f"{name}: {word} is {value!r}"
            self.seen.append(name)
            self.arguments.setdefault(name, []).append(arguments)
            return Challenge(b"ok", done=True) if name == "auth_packet" else None

        return hook


def everything_happens(hooks: Hooks) -> None:
    """A broker's life in a nutshell."""
    broker = MemoryBroker(Config(sys_interval=0, max_inflight=MAX_PACKET_ID), hooks)
    reader = subscribed(broker, "r", "#", 2, properties=Properties(session_expiry_interval=5))
    publisher = Client(broker)
    publisher.connect(Connect("p", 5, will=Will("w"), properties=Properties(authentication_method="m")))
    publisher.send(
        Publish("t", b"1", 1, True, False, 1, Properties(message_expiry_interval=60)),
        Publish("t", b"2", 2, False, False, 2),
        Publish("t", b"3", 2, False, False, 3),
    )
    answers: list[Packet] = []
    for message in reader.messages():
        refused = message.payload == b"3"
        answers.append(
            Puback(message.packet_id) if message.qos == 1 else Pubrec(message.packet_id, 0x80 if refused else 0)
        )
    reader.send(*answers, Pubcomp(2))
    reader.send(Subscribe(2, [SubscribeRequest("t", 1)]), Unsubscribe(3, ["t"]))
    flights = broker.server.sessions["r"].outbound.flights
    flights.update((number, Flight(1, None, b"", b"", 5, 0)) for number in range(1, MAX_PACKET_ID + 1))
    broker.server.sessions["r"].outbound.quota = 0
    publisher.send(Publish("t", b"4", 1, False, False, 4))
    flights.clear()
    reader.lose()
    publisher.lose()
    broker.later(10)
    broker.client("small", properties=Properties(maximum_packet_size=30)).send(Subscribe(1, [SubscribeRequest("b")]))
    broker.client("big").send(Publish("b", bytes(100)))
    member = broker.client("member", properties=Properties(user_properties=[consent(1000)]))
    member.send(Subscribe(1, [SubscribeRequest("$share/g/b")]))
    member.feed(encode_status(StatusReport(b'{"msgsInQueue": 1, "processingTimePerMsg": 2.5}')))
    broker.client("big").send(Publish("b"))


async def a_broker_lives(hooks: Hooks) -> None:
    broker = Broker(Config(port=0, host="127.0.0.1"), hooks)
    async with broker:
        broker.publish(Message("t", b"m", 0, True, expires_at=broker.server.hot.now + 1))
        broker.server.hot.now += HOUSEKEEPING + 1
        broker.server.timers.run(broker.server.hot.now)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    hooks = Hooks()
    recorder = Recorder(hooks)
    everything_happens(hooks)
    asyncio.run(a_broker_lives(hooks))
    assert hooks.failures == {}
    return recorder


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_is_seen(name: str, recorder: Recorder) -> None:
    assert name in recorder.seen


def in_order(seen: list[str], *names: str) -> bool:
    rest = iter(seen)
    return all(name in rest for name in names)


def test_events_come_in_their_order(recorder: Recorder) -> None:
    connecting = (
        "packet_read",
        "connect",
        "connect_authenticate",
        "session_establish",
        "packet_sent",
        "session_established",
    )
    assert in_order(recorder.seen, *connecting, "packet_processed")
    publishing = (
        "acl_check",
        "publish",
        "retain_message",
        "select_subscribers",
        "packet_encode",
        "packet_sent",
        "qos_publish",
    )
    assert in_order(recorder.seen, "packet_read", *publishing, "published", "packet_processed", "qos_complete")
    assert in_order(
        recorder.seen,
        "subscribe",
        "acl_check",
        "subscribed",
        "packet_sent",
        "retain_published",
        "unsubscribe",
        "unsubscribed",
    )
    assert in_order(recorder.seen, "connect", "auth_packet", "session_establish")
    assert in_order(recorder.seen, "disconnect", "will", "published", "will_sent", "client_expired")
    assert in_order(recorder.seen, "started", "retained_expired", "stopped")


def test_events_tell_what_happened(recorder: Recorder) -> None:
    told = recorder.arguments
    assert [(client, packet_id) for client, packet_id in told["qos_complete"]] == [("r", 1), ("r", 2)]
    assert told["qos_dropped"] == [("r", 3)]
    assert told["packet_id_exhausted"] == [("r",)]
    assert told["client_expired"] == [("r",)]
    assert [(name, reason) for _, name, reason in [(c, s.name, r) for c, s, r in told["subscribed"]]][:2] == [
        ("#", 2),
        ("t", 1),
    ]
    assert [filter for _, filter in told["unsubscribed"]] == ["t"]
    assert ("small", 100) in [(client, len(message.payload)) for client, message in told["publish_dropped"]]
    assert [message.topic for message, _ in told["will_sent"]] == ["w"]
    assert {write for _, _, write in told["acl_check"]} == {True, False}


# ---- guards ----


def refuse(*arguments: object) -> bool:
    return False


def broken(*arguments: object) -> None:
    raise ZeroDivisionError("on purpose")


def redirect(*arguments: object) -> None:
    raise Refusal(0x9C, "go there", "there:1883")


@pytest.mark.parametrize("event", ["connect", "connect_authenticate"])
@pytest.mark.parametrize(("guard", "reason"), [(refuse, 0x87), (redirect, 0x9C), (broken, 0x83)])
def test_a_guard_may_refuse_a_connect(event: str, guard: Callable[..., Any], reason: int) -> None:
    """One that raises has refused: guards fail closed."""
    hooks = Hooks()
    hooks.add(event, lambda *arguments: True)
    hooks.add(event, guard)
    broker = MemoryBroker(hooks=hooks)
    client = Client(broker)
    answer = client.connect(Connect("c", 5))
    assert answer.reason == reason and client.socket.shut and broker.server.sessions == {}
    assert hooks.failures == ({event: 1} if guard is broken else {})
    if guard is redirect:
        assert answer.properties == Properties(reason_string="go there", server_reference="there:1883")
    old = Client(broker)
    old.send(Connect("c", 4))  # for whom a guard's failure has no code: silence
    assert old.socket.shut and broker.server.sessions == {}
    assert old.packets() == ([] if guard is broken else [Connack(False, 5 if guard is refuse else 3)])


def test_a_guard_replaces_the_rule_for_anonymous_clients() -> None:
    hooks = Hooks()
    hooks.add("connect_authenticate", lambda client, connect: connect.password == b"secret")
    broker = MemoryBroker(Config(sys_interval=0, allow_anonymous=False), hooks)
    assert Client(broker).connect(Connect("c", 5, username="u", password=b"secret")).reason == 0
    assert Client(broker).connect(Connect("d", 5, username="u", password=b"wrong")).reason == 0x87


@pytest.mark.parametrize(("guard", "reason"), [(refuse, 0x87), (broken, 0x83)])
def test_a_guard_may_refuse_topics(guard: Callable[..., Any], reason: int) -> None:
    """Writing and subscribing; whom it refuses is told, a will that it refuses is not published."""
    hooks = Hooks()
    broker = MemoryBroker(hooks=hooks)
    reader = subscribed(broker, "r", "#", 1)
    client = broker.client("c", will=Will("no"))

    def only_no(asking: object, topic: str, write: bool) -> bool | None:
        return guard() if topic == "no" else True

    hooks.add("acl_check", only_no)
    client.send(Publish("no", b"1", 1, False, False, 1), Publish("yes", b"2", 1, False, False, 2))
    client.send(Subscribe(3, [SubscribeRequest("no"), SubscribeRequest("yes")]))
    assert client.packets() == [Puback(1, reason), Puback(2), Suback(3, [reason, 0])]
    client.lose()
    assert payloads(reader) == [b"2"]


# ---- filters ----


def test_filters_run_one_after_the_other() -> None:
    hooks = Hooks()

    def shout(message: Message, client: Channel) -> Message:
        return Message(message.topic, message.payload.upper(), message.qos)

    hooks.add("publish", shout)
    hooks.add("publish", lambda message, client: None)
    hooks.add("publish", broken)
    hooks.add("publish", lambda message, client: Message("to/" + message.topic, message.payload + b"!"))
    broker = MemoryBroker(hooks=hooks)
    reader = subscribed(broker, "r", "#")
    broker.client("p").send(Publish("t", b"hello"))
    assert [(message.topic, message.payload) for message in reader.messages()] == [("to/t", b"HELLO!")]
    assert hooks.failures == {"publish": 1}


def test_filters_of_subscriptions_wills_and_recipients() -> None:
    hooks = Hooks()
    hooks.add("subscribe", lambda requests, client: [SubscribeRequest("own/" + r.filter, r.qos) for r in requests])
    hooks.add("unsubscribe", lambda filters, client: ["own/" + filter for filter in filters])
    hooks.add("will", lambda message, client_id: Message("own/t", client_id.encode()))
    broker = MemoryBroker(hooks=hooks)
    one, two = subscribed(broker, "one"), subscribed(broker, "two")
    broker.client("w", will=Will("elsewhere")).lose()
    assert payloads(one) == payloads(two) == [b"w"]

    def not_one(chosen: list[tuple[Session, Delivery]], message: Message) -> list[tuple[Session, Delivery]]:
        return [pair for pair in chosen if pair[0].client_id != "one"]

    hooks.add("select_subscribers", not_one)
    broker.client("p").send(Publish("own/t", b"m"))
    assert (payloads(one), payloads(two)) == ([], [b"m"])
    two.send(Unsubscribe(1, ["t"]))
    two.packets()
    assert broker.server.sessions["two"].subscriptions == {}


def test_filters_of_packets() -> None:
    hooks = Hooks()

    def read(packet: Packet, client: Channel) -> Packet | None:
        return Publish(packet.topic, packet.payload + b"r") if isinstance(packet, Publish) else None

    def encode(packet: Packet, client: Channel) -> Packet | None:
        return Publish(packet.topic, packet.payload + b"e") if isinstance(packet, Publish) else None

    hooks.add("packet_read", read)
    hooks.add("packet_encode", encode)
    broker = MemoryBroker(hooks=hooks)
    reader = subscribed(broker, "r")
    broker.client("p").send(Publish("t", b"m"))
    assert payloads(reader) == [b"mre"]


# ---- contained ----


def test_hooks_that_raise_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """All filters and watchers raise at once, over all of a broker's life: each is counted and logged, and clients
    see the same bytes as without them."""

    def bytes_seen(hooks: Hooks) -> list[bytes]:
        clients: list[Client] = []
        original = Client.__init__

        def remembering(self: Client, broker: MemoryBroker) -> None:
            original(self, broker)
            clients.append(self)

        hooks.add("auth_packet", lambda *arguments: Challenge(b"ok", done=True))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Client, "__init__", remembering)
            everything_happens(hooks)
        return [bytes(client.socket.sent) for client in clients]

    bad = Hooks()
    events = [name for name, event in EVENTS.items() if event.kind != GUARD]
    for name in events:
        bad.add(name, broken)
    with caplog.at_level(logging.CRITICAL, "headwater.hooks"):
        assert bytes_seen(bad) == bytes_seen(Hooks())
        asyncio.run(a_broker_lives(bad))
    assert set(bad.failures) == set(events)
    caplog.clear()
    bad.tell("connect", 1)
    bad.tell("started", 1)
    assert "a hook for 'started' raised" in caplog.text and "ZeroDivisionError" in caplog.text


def test_failures_are_in_the_statistics() -> None:
    hooks = Hooks()
    hooks.add("session_established", broken)
    broker = MemoryBroker(hooks=hooks)
    broker.client("c").send(Pingreq())
    assert statistics_of(broker.server, 0.0).hook_failures == 1


# ---- the hot path ----


@pytest.mark.parametrize("name", EVENTS)
def test_slow_hooks_switch_the_hot_path_off_and_on(name: str) -> None:
    hooks = Hooks()
    broker = MemoryBroker(hooks=hooks)
    hot = broker.server.hot
    assert hot.enabled
    hooks.add(name, broken)
    assert hot.enabled is not EVENTS[name].slow
    hooks.add(name, refuse)
    hooks.remove(name, broken)
    assert hot.enabled is not EVENTS[name].slow
    hooks.remove(name, refuse)
    assert hot.enabled and not hooks.listens(name)


def test_a_hook_that_comes_later_misses_nothing_after_it() -> None:
    """Also between two packets of one connection whose topic the hot path knows already."""
    hooks = Hooks()
    broker = MemoryBroker(hooks=hooks)
    reader, publisher = subscribed(broker, "r"), broker.client("p")
    publisher.send(Publish("t", b"1"))
    heard: list[bytes] = []
    listener = hooks.on("published")(lambda message: heard.append(message.payload))
    publisher.send(Publish("t", b"2"))
    hooks.remove("published", listener)
    publisher.send(Publish("t", b"3"))
    assert heard == [b"2"] and payloads(reader) == [b"1", b"2", b"3"]


def test_an_event_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"unknown event 'publised'; did you mean 'published'\?"):
        Hooks().add("publised", broken)


def test_a_watcher_cannot_refuse() -> None:
    hooks = Hooks()
    hooks.add("session_establish", refuse)
    hooks.add("session_established", redirect)
    answer = Client(MemoryBroker(hooks=hooks)).connect(Connect("c", 5))
    assert isinstance(answer, Connack) and answer.reason == 0


# ---- documentation ----


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_is_documented(name: str) -> None:
    event = EVENTS[name]
    assert event.doc.endswith((".", "?")) and event.kind in (GUARD, FILTER, WATCHER)
    assert set(event.arguments.split(", ")) <= TYPES.keys()
    assert f"| `{name}` | `{event.arguments}` |" in (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_the_page_of_events_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "hooks_page.py"))["page"]()
    assert (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8") == page, "run scripts/hooks_page.py"


def test_no_event_is_told_that_is_not_in_the_table() -> None:
    """What the sources give to `allow`, `ask`, `transform` and `tell` are all events, and of that kind."""
    folder = Path(inspect.getfile(Broker)).parent
    given = {}
    for path in (*folder.glob("*.py"), *(folder / "protocol").glob("*.py")):
        for call, name in re.findall(
            r"\.(allow|ask|transform|tell|_failed)\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")
        ):
            given[name] = {"transform": FILTER, "tell": WATCHER}.get(call, GUARD)
    assert given == {name: event.kind for name, event in EVENTS.items()}


def test_disconnect_is_told_with_its_reason() -> None:
    hooks = Hooks()
    reasons: list[int] = []
    hooks.add("disconnect", lambda client, reason: reasons.append(reason))
    broker = MemoryBroker(hooks=hooks)
    broker.client("a").send(Disconnect(0x04))
    broker.client("b").lose()
    broker.client("c").send(Auth())
    assert reasons == [0x04, 0, 0x82]
