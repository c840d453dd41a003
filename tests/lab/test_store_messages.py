"""The messages that a store is measured with."""

from __future__ import annotations

import pytest

from headwater.store.extract import Extraction
from headwater.store.intake import Taken
from headwater_lab.store_messages import DEVICES, HOUR, PERIOD, PUBLISHERS, publisher_of, readings, topic_of


def test_the_columns_are_what_is_extracted_from_the_payloads() -> None:
    for each in readings(25_000, 3):
        taken = Taken(1)
        taken.payloads, taken.arrivals = each.payload, [0] * len(each.payload)
        times, values = Extraction().columns(taken)
        assert times == each.time.tolist()
        assert values == each.value.tolist()


def test_the_same_seed_makes_the_same_messages_and_another_does_not() -> None:
    first, again, other = ([each.payload for each in readings(300, seed, 100)] for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("messages", [1, 99, 100, 101, 250])
def test_there_are_so_many_messages_in_rounds_of_all_devices(messages: int) -> None:
    rounds = list(readings(messages, 1, 100))
    assert sum(len(each.payload) for each in rounds) == messages
    assert [device for each in rounds for device in each.device.tolist()] == [at % 100 for at in range(messages)]
    assert all(len(column) == len(each.payload) for each in rounds for column in each)


def test_ten_million_messages_are_some_hours_and_a_hundred_bytes_each() -> None:
    first, second = readings(2 * DEVICES, 1)
    assert (second.time - first.time).mean() == pytest.approx(PERIOD * 1000, rel=1e-3)
    assert first.time.max() - first.time.min() < PERIOD * 1000
    assert 2.5 * HOUR < 1000 * PERIOD * 1000 < 3 * HOUR
    assert 100 < sum(map(len, first.payload)) / DEVICES < 115


def test_each_topic_and_publisher_has_its_devices() -> None:
    assert len({topic_of(device) for device in range(DEVICES)}) == DEVICES
    assert len({publisher_of(device) for device in range(DEVICES)}) == PUBLISHERS
