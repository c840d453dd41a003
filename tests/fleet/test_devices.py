"""The simulated fleet: the same for the same seed, in the stated order, and published when it is due."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from headwater.client import Client
from headwater.fleet.devices import Fleet, FleetError, Publisher, Reading
from headwater.node import Broker, Config

PATIENCE = 20.0


def first(fleet: Fleet, count: int) -> list[Reading]:
    return list(islice(fleet.readings(), count))


def test_the_order_of_topics_is_that_of_rooms() -> None:
    fleet = Fleet(("temperature/room{n}", "humidity/room{n}"), devices=3, rate=20.0)
    topics = [reading.topic for reading in first(fleet, 7)]
    assert topics == [
        *("temperature/room0", "humidity/room0", "temperature/room1", "humidity/room1"),
        *("temperature/room2", "humidity/room2", "temperature/room0"),
    ]
    assert [reading.due for reading in first(fleet, 3)] == [0.0, 0.05, 0.1]


def test_the_same_seed_gives_the_same_readings_and_another_one_others() -> None:
    fleet = Fleet(devices=5, silent=0.2, late=0.2)
    assert first(fleet, 100) == first(replace(fleet), 100)
    assert first(fleet, 100) != first(replace(fleet, seed=2), 100)


def test_values_wander() -> None:
    values = [reading.value for reading in first(Fleet(("t",), devices=1), 500)]
    steps = [abs(after - before) for before, after in pairwise(values)]
    assert 0.02 < sum(steps) / len(steps) < 0.2
    assert max(steps) < 0.6


def test_a_payload_is_json_of_about_100_bytes() -> None:
    reading = first(Fleet(rate=20.0), 3)[2]
    payload = reading.payload(1_700_000_000_000_000)
    assert 90 <= len(payload) <= 110
    assert json.loads(payload) == {
        "ts": "2023-11-14T22:13:20.100000Z",
        "value": reading.value,
        "device": "device-00001",
        "number": 2,
        "status": "ok",
    }


def test_silent_devices_let_their_turns_pass() -> None:
    fleet = Fleet(("t/{n}",), devices=4, rate=4.0, silent=0.5)
    silent = fleet.silent_devices()
    readings = first(fleet, 4)
    assert len(silent) == 2
    assert {reading.device for reading in readings} == set(range(4)) - silent
    assert readings[2].made == readings[0].made + 1.0
    assert [reading.number for reading in readings] == [0, 1, 2, 3]
    assert first(replace(fleet, silent=1.0), 1) == []


def test_late_devices_send_later_what_they_measured_in_their_turn() -> None:
    fleet = Fleet(("t/{n}",), devices=4, rate=4.0, late=0.5, lateness=1.3)
    readings = first(fleet, 40)
    late = [reading for reading in readings if reading.device in fleet.late_devices()]
    assert late
    assert all(reading.due == pytest.approx(reading.made + 1.3) for reading in late)
    assert all(reading.due == reading.made for reading in readings if reading not in late)
    assert [reading.due for reading in readings] == sorted(reading.due for reading in readings)
    assert fleet.late_devices().isdisjoint(replace(fleet, silent=0.5).silent_devices())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"devices": 0}, "needs a device"),
        ({"patterns": ()}, "needs a device"),
        ({"rate": 0.0}, "a rate above 0"),
        ({"silent": 0.6, "late": 0.6}, "at most 1"),
        ({"lateness": -1.0}, "below 0"),
        ({"patterns": ("a/#",)}, "'a/#' is no pattern of topics"),
        ({"patterns": ("",)}, "is empty"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(FleetError, match=words):
        Fleet(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_everything_arrives_in_its_order(qos: int) -> None:
    async def scenario() -> None:
        fleet = Fleet(devices=3, rate=2000.0)
        async with Broker(Config(port=0)) as broker, Client("127.0.0.1", broker.port) as subscriber:
            await subscriber.subscribe("#", qos=qos)
            seen: list[Reading] = []
            async with Client("127.0.0.1", broker.port) as client:
                done = await Publisher(client, qos).publish(fleet, most=300, watch=seen.append)
            assert (done.messages, done.refused) == (300, 0)
            got = [await anext(subscriber.messages) for _ in range(300)]
        assert seen == first(fleet, 300)
        numbers = [json.loads(message.payload)["number"] for message in got]
        assert numbers == list(range(300))
        assert [message.topic for message in got] == [reading.topic for reading in seen]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_so_many_seconds() -> None:
    async def scenario() -> None:
        fleet = Fleet(devices=3, rate=100.0)
        async with Broker(Config(port=0)) as broker, Client("127.0.0.1", broker.port) as client:
            done = await Publisher(client).publish(fleet, seconds=0.2)
        assert done.messages == 20
        assert done.seconds >= 0.19

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
