"""Rules do not switch the hot path off, and it refuses the same as the ordinary way: random traffic, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.access.settings import AccessSettings
from headwater.node.config import Config
from headwater.node.plane.channel import Channel, Slow
from headwater.node.protocol.server import Server
from headwater.wire.packets import Connect, Publish, Subscribe, SubscribeRequest
from tests.node.access.arriving import broker_with, rules_file
from tests.node.memory import Client, MemoryBroker
from tests.node.protocol.test_hotpath import FILTERS, Run, Step, beginnings, compare, steps_with

RULES = [
    "user u0\ntopic readwrite #\nuser u1\ntopic read a/#\ntopic write b/#\nuser u2\ntopic readwrite a\n"
    "topic deny a/b\ntopic readwrite a/+\ntopic read $x/#\npattern write b/#\n",
    "user u0\ntopic read #\ntopic write a/b\nuser u1\ntopic readwrite +\ntopic deny b\nuser u2\ntopic write #\n"
    "user u3\ntopic readwrite #\ntopic readwrite $x/#\ntopic deny a/c\n",
]


class RuledRun(Run):
    files: list[str] = []  # noqa: RUF012 - set once for all tests here

    def __init__(self, hot: bool, dispatcher: str) -> None:
        super().__init__(hot, dispatcher)
        given = self.broker.server.config.model_dump()
        access = AccessSettings(acl_file=self.files[0], acl_subscribe="always", message_rate=1e9)
        self.broker = MemoryBroker(Config(**{**given, "allow_anonymous": True, "access": access}), hot=hot)

    def user(self, number: int) -> str | None:
        return f"u{number}"


def reloading(which: int) -> Step:
    def step(run: Run) -> None:
        assert isinstance(run, RuledRun)
        run.broker.server.access.reload(AccessSettings(acl_file=run.files[which], acl_subscribe="always"))

    return step


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> None:
    RuledRun.files = [rules_file(tmp_path_factory.mktemp("rules"), text) for text in RULES]


@settings(max_examples=400, deadline=None)
@given(
    beginnings,
    st.lists(st.one_of(*[steps_with(FILTERS)] * 6, st.builds(reloading, st.integers(0, 1))), min_size=5, max_size=60),
)
def test_same_bytes_with_and_without(beginning: tuple[Step, ...], rest: list[Step]) -> None:
    compare("round_robin", [*beginning, *rest], RuledRun)


class Counting(Slow):
    """The ordinary way, with what goes by it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: list[int] = []

    def packet(self, channel: Channel, first_byte: int, body: bytes) -> None:
        self.seen.append(first_byte)
        self.server.packet(channel, first_byte, body)


def test_the_hot_path_is_really_used(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, "user u\ntopic readwrite a/#\n")
    broker = broker_with(acl_file=rules, others={"allow_anonymous": True})
    listener, client = Client(broker), Client(broker)
    listener.connect(Connect("l", 5, username="u"))
    listener.send(Subscribe(1, [SubscribeRequest("#", 1)]))
    client.connect(Connect("c", 5, username="u"))
    slow = broker.server.hot.slow = Counting(broker.server)
    client.send(*[Publish("a/b", b"x")] * 3, Publish("a/c", b"y", 1, packet_id=1))
    assert slow.seen == [] and len(listener.messages()) == 4
    client.send(Publish("b", b"x"))
    assert slow.seen == [0x30] and listener.messages() == [], "what is refused goes the ordinary way"


def test_subscribers_of_one_filter_may_differ_in_what_they_receive(tmp_path: Path) -> None:
    rules = rules_file(tmp_path, "user u\ntopic read a\nuser v\ntopic read b\nuser w\ntopic write #\n")
    broker = broker_with(acl_file=rules, others={"allow_anonymous": True})
    clients = [broker.client(name, username=name) for name in "uvw"]
    for client in clients[:2]:
        client.send(Subscribe(1, [SubscribeRequest("+", 0)]))
        client.packets()
    for _ in range(2):
        with broker.one_turn():
            clients[2].send(Publish("a", b"1"), Publish("b", b"2"), Publish("a", b"3"), Publish("c", b"4"))
        assert [message.payload for message in clients[0].messages()] == [b"1", b"3"]
        assert [message.payload for message in clients[1].messages()] == [b"2"]
