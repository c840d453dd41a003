"""Figures of the delivery store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.metric import counter, gauge, read_all

if TYPE_CHECKING:
    from headwater.node.delivery.coordinator import Coordinator

MOST_READERS: Final = 100


@dataclass
class StoreSeen:
    """What is read of the coordinator costs nothing; the rest is the store's, which may wait for who makes blocks."""

    taken: int = counter(
        "Messages that got a position.",
        lambda coordinator: coordinator.taken_messages,
        name="store_messages_taken",
        topics=("store/positions/taken",),
    )
    stored_bytes: int = counter(
        "Bytes of messages that were brought to disk.",
        lambda coordinator: coordinator.bytes_stored,
        name="store_stored_bytes",
    )
    pending: int = gauge(
        "Bytes of messages that are not on disk yet.",
        lambda coordinator: coordinator.pending,
        name="store_pending_bytes",
        topics=("store/pending/bytes",),
        doc="At `store.max_pending`, publishers wait.",
    )
    seconds: float = counter(
        "Time that bringing messages to disk has taken.",
        lambda coordinator: coordinator.seconds,
        name="store_commit_seconds",
    )
    first: int = gauge(
        "The first message that is left.",
        lambda coordinator: coordinator.store.first,
        name="store_first_position",
        topics=("store/positions/first",),
    )
    next: int = gauge(
        "The position behind the last message on disk.",
        lambda coordinator: coordinator.store.next,
        name="store_next_position",
        topics=("store/positions/next",),
    )
    topics: int = gauge("Topics of which a message is left.", name="store_topics")
    size: int = gauge("Bytes on disk.", name="store_size_bytes")
    payload_size: int = gauge("Bytes of payload that publishers sent of that.", name="store_payload_bytes")
    blocks: int = gauge("Blocks of messages.", name="store_blocks")
    unsealed: int = gauge("Messages that are not in a block yet.", name="store_unsealed_messages")
    lags: dict[str, int] = gauge(
        "Messages that a named reader has not committed.",
        default=dict,
        name="store_reader_lag_messages",
        labels=("reader",),
        doc=f"The first {MOST_READERS} readers.",
    )


def see_store(coordinator: Coordinator) -> StoreSeen:
    """In any thread: it may wait for who makes blocks."""
    store = coordinator.store
    now = store.statistics()
    last = store.next - 1
    return StoreSeen(
        topics=now.topics,
        size=now.size,
        payload_size=now.payload_size,
        blocks=now.blocks,
        unsealed=now.unsealed,
        lags={reader.name: max(0, last - reader.position) for reader in store.readers()[:MOST_READERS]},
        **read_all(StoreSeen, coordinator),
    )
