"""Hostile streams into a broker without sockets: it never fails, never contradicts itself, and still serves."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.wire import encode
from headwater.wire.packets import Connect, Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe, SubscribeRequest
from headwater_lab.hostile_streams import pieces, stream
from tests.fuzz.invariants import check
from tests.node.memory import Client, MemoryBroker

CONFIGS = {
    "defaults": Config(sys_interval=0),
    "tight": Config(
        sys_interval=0,
        max_inflight=2,
        max_queued_messages=3,
        max_queue_memory=100_000,
        outbound_buffer=4096,
        receive_maximum=2,
        topic_alias_maximum=2,
        max_packet_size=20_000,
        max_subscriptions=4,
        max_retained=3,
        max_connections=5,
    ),
    "dropping the oldest, separate": Config(
        sys_interval=0, max_inflight=1, max_queued_messages=2, queue_full="drop_oldest", overlapping="separate"
    ),
    "disconnecting": Config(
        sys_interval=0, max_inflight=1, max_queued_messages=1, queue_full="disconnect", outbound_buffer=4096
    ),
    "adaptive": Config(sys_interval=0, shared_dispatcher="adaptive", report_min_interval=0.001, max_inflight=2),
    "restricted": Config(
        sys_interval=0,
        max_qos=1,
        retain_available=False,
        wildcard_subscription_available=False,
        shared_subscription_available=False,
        subscription_identifier_available=False,
        max_session_expiry=1,
        max_keep_alive=5,
    ),
}


def assert_serves(broker: MemoryBroker) -> None:
    broker.later(5)  # room for one more connection, should all be in use
    client = broker.client("a normal client")
    client.send(Subscribe(1, [SubscribeRequest("normal", 1)]), Publish("normal", b"hello"), Pingreq())
    assert [type(packet) for packet in client.packets()] == [Suback, Publish, Pingresp]
    client.send(Disconnect())


class Crowd:
    """Some clients of one broker, driven by a seed."""

    def __init__(self, config: Config, seed: int, *, hot: bool) -> None:
        self.random = Random(seed)
        self.broker = MemoryBroker(config, hot=hot)
        self.clients: list[tuple[Client, list[bytes]]] = []

    def step(self) -> None:
        random = self.random
        chance = random.random()
        if len(self.clients) < 4:
            self.clients.append((Client(self.broker), pieces(random, stream(random))))
            return
        number = random.randrange(len(self.clients))
        client, left = self.clients[number]
        if chance < 0.05:
            self.broker.later(random.choice((0.01, 1, 2)))
        elif chance < 0.1:
            client.unblock(random.choice((0, 1, 500, 1 << 60)))
        elif not left or client.channel.fd < 0 or chance < 0.13:
            if random.random() < 0.8:
                client.lose()
            del self.clients[number]
        else:
            client.feed(left.pop(0))

    def leave(self) -> None:
        """Everybody goes; whatever was only theirs has to go, too."""
        for client in list(self.broker.server.channels):
            self.broker.server.lost(client)
        self.broker.turn()
        self.broker.later(3)


@pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])
@pytest.mark.parametrize("name", CONFIGS)
def test_crowds(name: str, hot: bool) -> None:
    for seed in range(int(os.environ.get("FUZZ_SEEDS", "15"))):
        crowd = Crowd(CONFIGS[name], seed, hot=hot)
        for number in range(120):
            crowd.step()
            try:
                check(crowd.broker.server)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {number}: {error}") from error
        crowd.leave()
        check(crowd.broker.server)
        assert not crowd.broker.server.channels
        assert_serves(crowd.broker)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=6), st.sampled_from([0, 4, 5]))
def test_any_bytes(parts: list[bytes], version: int) -> None:
    """As first bytes, or behind a CONNECT."""
    broker = MemoryBroker()
    client = Client(broker)
    if version:
        client.feed(encode(Connect("c", version), version))
    for part in parts:
        client.feed(part)
        check(broker.server)
    assert_serves(broker)
