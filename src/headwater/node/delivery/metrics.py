"""Figures of the delivery store for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.node.delivery.coordinator import Coordinator

MOST_READERS: Final = 100


class StoreCollector(Collector):
    """Nothing as long as `coordinator` gives None: there is no store."""

    def __init__(self, coordinator: Callable[[], Coordinator | None]) -> None:
        self._coordinator = coordinator

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        coordinator = self._coordinator()
        if coordinator is not None:
            yield from _taken(coordinator)
            yield from _stored(coordinator)
            yield _lags(coordinator)


def _taken(coordinator: Coordinator) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "headwater_store_messages_taken", "Messages that got a position.", value=coordinator.taken_messages
    )
    yield CounterMetricFamily(
        "headwater_store_stored_bytes", "Bytes of messages that were brought to disk.", value=coordinator.bytes_stored
    )
    yield GaugeMetricFamily(
        "headwater_store_pending_bytes", "Bytes of messages that are not on disk yet.", value=coordinator.pending
    )
    yield CounterMetricFamily(
        "headwater_store_commit_seconds", "Time that bringing messages to disk has taken.", value=coordinator.seconds
    )


def _stored(coordinator: Coordinator) -> Iterator[Metric]:
    now = coordinator.store.statistics()
    for name, text, value in (
        ("first_position", "The first message that is left.", now.first),
        ("next_position", "The position behind the last message on disk.", now.next),
        ("topics", "Topics of which a message is left.", now.topics),
        ("size_bytes", "Bytes on disk.", now.size),
        ("payload_bytes", "Bytes of payload that publishers sent of that.", now.payload_size),
        ("blocks", "Blocks of messages.", now.blocks),
        ("unsealed_messages", "Messages that are not in a block yet.", now.unsealed),
    ):
        yield GaugeMetricFamily(f"headwater_store_{name}", text, value=value)


def _lags(coordinator: Coordinator) -> Metric:
    family = GaugeMetricFamily(
        "headwater_store_reader_lag_messages", "Messages that a named reader has not committed.", labels=["reader"]
    )
    store = coordinator.store
    last = store.next - 1
    for reader in store.readers()[:MOST_READERS]:
        family.add_metric([reader.name], max(0, last - reader.position))
    return family
