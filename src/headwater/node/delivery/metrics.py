"""Figures of the delivery store for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.node.operations.seen import StoreSeen


class StoreCollector(Collector):
    """Nothing as long as `seen` gives None: there is no store."""

    def __init__(self, seen: Callable[[], StoreSeen | None]) -> None:
        self._seen = seen

    def describe(self) -> list[Metric]:
        return []  # so that registering does not ask for figures

    def collect(self) -> Iterator[Metric]:
        seen = self._seen()
        if seen is not None:
            yield from _taken(seen)
            yield from _stored(seen)
            yield _lags(seen)


def _taken(seen: StoreSeen) -> Iterator[Metric]:
    yield CounterMetricFamily("headwater_store_messages_taken", "Messages that got a position.", value=seen.taken)
    yield CounterMetricFamily(
        "headwater_store_stored_bytes", "Bytes of messages that were brought to disk.", value=seen.stored_bytes
    )
    yield GaugeMetricFamily(
        "headwater_store_pending_bytes", "Bytes of messages that are not on disk yet.", value=seen.pending
    )
    yield CounterMetricFamily(
        "headwater_store_commit_seconds", "Time that bringing messages to disk has taken.", value=seen.seconds
    )


def _stored(seen: StoreSeen) -> Iterator[Metric]:
    for name, text, value in (
        ("first_position", "The first message that is left.", seen.first),
        ("next_position", "The position behind the last message on disk.", seen.next),
        ("topics", "Topics of which a message is left.", seen.topics),
        ("size_bytes", "Bytes on disk.", seen.size),
        ("payload_bytes", "Bytes of payload that publishers sent of that.", seen.payload_size),
        ("blocks", "Blocks of messages.", seen.blocks),
        ("unsealed_messages", "Messages that are not in a block yet.", seen.unsealed),
    ):
        yield GaugeMetricFamily(f"headwater_store_{name}", text, value=value)


def _lags(seen: StoreSeen) -> Metric:
    family = GaugeMetricFamily(
        "headwater_store_reader_lag_messages", "Messages that a named reader has not committed.", labels=["reader"]
    )
    for reader, lag in seen.lags.items():
        family.add_metric([reader], lag)
    return family
