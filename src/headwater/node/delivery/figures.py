"""Figures of the delivery store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.metric import counter, gauge, read_all

if TYPE_CHECKING:
    from headwater.node.delivery.coordinator import Coordinator

MOST_READERS: Final = 100


@dataclass(frozen=True)
class HistorySeen:
    """What is known of the history: positions [first, end), `end` is 0 as long as nothing is known. `waiting` are
    blocks that are old enough and are not there. `failure` is what object storage said last, empty if all is well;
    times are seconds since 1970."""

    url: str
    first: int = 0
    end: int = 0
    objects: int = 0
    rows: int = 0
    size: int = 0
    waiting: int = 0
    failures: int = 0
    failure: str = ""
    failed_since: float | None = None
    moved_at: float | None = None


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
    history_end: int = gauge(
        "The position behind the last message in object storage.",
        name="store_history_end_position",
        doc="0 without `store.history`, and until the history has been read.",
    )
    history_objects: int = gauge("Objects in object storage.", name="store_history_objects")
    history_size: int = gauge("Bytes in object storage.", name="store_history_bytes")
    history_waiting: int = gauge(
        "Blocks of messages that are old enough for object storage and are not there.",
        name="store_history_waiting_blocks",
    )
    history_failures: int = counter(
        "Tries to reach object storage that failed.",
        name="store_history_failures",
    )
    history_away: int = gauge("1 while object storage is away, and blocks stay on the disk.", name="store_history_away")


def see_store(coordinator: Coordinator, history: HistorySeen | None = None) -> StoreSeen:
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
        **(_seen(history) if history is not None else {}),
        **read_all(StoreSeen, coordinator),
    )


def _seen(history: HistorySeen) -> dict[str, int]:
    return {
        "history_end": history.end,
        "history_objects": history.objects,
        "history_size": history.size,
        "history_waiting": history.waiting,
        "history_failures": history.failures,
        "history_away": int(bool(history.failure)),
    }
