"""Power cuts at any moment, with a delivery store: what was acknowledged or delivered is there, once and for ever."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.config import Config
from headwater.store.entry import Entry
from headwater.wire.packets import Properties, Publish, Subscribe, SubscribeRequest
from tests.node.delivery.storing import ASKS, StoringBroker, position_of
from tests.node.persistence.durable import Device
from tests.node.persistence.test_power_cuts import World


class AskingDevice(Device):
    """Asks for positions, and remembers what was said."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.said: list[tuple[str | None, bytes]] = []

    def subscribe(self, name: str, qos: int) -> None:
        self.send(Subscribe(1, [SubscribeRequest(name, qos)], Properties(user_properties=list(ASKS))))

    def _take_message(self, packet: Publish) -> None:
        super()._take_message(packet)
        self.said.append((position_of(packet), packet.payload))


class StoredWorld(World):
    broker: StoringBroker

    def __init__(self, seed: int, config: Config) -> None:
        self.rows_before: list[Entry] = []
        super().__init__(seed, config)

    def new_broker(self, config: Config) -> StoringBroker:
        return StoringBroker(config=config)

    def new_subscriber(self, name: str) -> Device:
        return AskingDevice(name) if name in ("all", "first") else super().new_subscriber(name)

    def crash(self) -> None:
        self.rows_before = self.broker.rows()
        super().crash()
        assert self.broker.rows()[: len(self.rows_before)] == self.rows_before

    def check(self) -> None:
        super().check()
        rows = self.broker.rows()
        assert rows[: len(self.rows_before)] == self.rows_before
        assert [row.position for row in rows] == list(range(1, len(rows) + 1))
        stored = Counter(row.payload for row in rows)
        for device in self.publishers:
            assert device.acknowledged <= stored.keys()
        for payload, (topic, qos) in self.sent.items():
            if qos == 2 and not topic.startswith("r/"):
                assert stored[payload] <= 1, f"{payload!r} is stored twice"
        for device in self.subscribers.values():
            assert set(device.delivered) <= stored.keys(), "seen, and not stored"
            if isinstance(device, AskingDevice):
                self._check_positions(device, rows)

    def _check_positions(self, device: AskingDevice, rows: list[Entry]) -> None:
        for said, payload in device.said:
            if said is None:
                assert device.client_id == "first"  # what was another member's when the power went has none
            else:
                store, _, number = said.partition(":")
                assert store == "s"
                assert rows[int(number) - 1].payload == payload


def run(seed: int, steps: int, config: Config) -> StoredWorld:
    world = StoredWorld(seed, config)
    for _ in range(steps):
        world.happen()
    world.end()
    world.check()
    return world


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(20, 400))
def test_what_was_acknowledged_or_seen_is_stored(seed: int, steps: int) -> None:
    run(seed, steps, Config(sys_interval=0))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_it_is_with_content_on_disk_only(seed: int) -> None:
    run(seed, 300, Config(sys_interval=0, queue_memory=0, max_inflight=2))


@pytest.mark.parametrize("dispatcher", ["round_robin", "sticky", "hash_topic"])
def test_it_is_with_other_dispatchers(dispatcher: str) -> None:
    for seed in range(5):
        run(seed, 300, Config(sys_interval=0, shared_dispatcher=dispatcher))


def test_there_were_crashes_and_positions() -> None:
    worlds = [run(seed, 300, Config(sys_interval=0)) for seed in range(10)]
    assert sum(world.crashes for world in worlds) > 10
    devices = [device for world in worlds for device in world.subscribers.values() if isinstance(device, AskingDevice)]
    assert sum(said is not None for device in devices for said, _ in device.said) > 100
