"""Figures of the store for Prometheus and in `$SYS`."""

from __future__ import annotations

from headwater.node.delivery.figures import MOST_READERS, HistorySeen, StoreSeen, see_store
from headwater.node.operations.metrics import families
from headwater.node.protocol.sys_topics import SysTopics
from tests.node.delivery.storing import StoringBroker, connected, publish


def figures(broker: StoringBroker) -> dict[str, float]:
    coordinator = broker.server.coordinator
    assert coordinator is not None
    return {
        ".".join([sample.name.removeprefix("headwater_store_"), *sample.labels.values()]): sample.value
        for family in families(StoreSeen, [see_store(coordinator)])
        for sample in family.samples
    }


def test_what_is_taken_and_what_is_on_disk() -> None:
    broker = StoringBroker()
    publisher = connected(broker, "p")
    publish(publisher, "a", b"12345")
    broker.settle()
    publish(publisher, "b", b"12345")
    broker.memory_store.commit("r", 0)
    found = figures(broker)
    assert found["messages_taken_total"] == 2
    assert found["first_position"] == 1
    assert found["next_position"] == 2
    assert found["pending_bytes"] > 5
    assert found["stored_bytes_total"] > 5
    assert found["topics"] == 1
    assert found["payload_bytes"] == 5
    assert found["reader_lag_messages.r"] == 1
    assert {"size_bytes", "blocks", "unsealed_messages", "commit_seconds_total"} <= found.keys()
    broker.settle()
    assert figures(broker)["pending_bytes"] == 0


def test_readers_are_bounded() -> None:
    broker = StoringBroker()
    for number in range(MOST_READERS + 5):
        broker.memory_store.commit(f"r{number}", 0)
    assert len([name for name in figures(broker) if name.startswith("reader_lag")]) == MOST_READERS


def test_without_a_store_there_are_none() -> None:
    assert list(families(StoreSeen, [None])) == []


def test_sys() -> None:
    broker = StoringBroker()
    publish(connected(broker, "p"), "a")
    broker.settle()
    SysTopics(broker.server, 0.0).publish(broker.server.hot.now)
    shown = {}
    for name in ("positions/first", "positions/next", "positions/taken", "pending/bytes"):
        message = broker.server.router.retained.get(f"$SYS/broker/store/{name}")
        assert message is not None
        shown[name] = message.payload
    assert shown == {"positions/first": b"1", "positions/next": b"2", "positions/taken": b"1", "pending/bytes": b"0"}


def test_what_has_gone_to_object_storage() -> None:
    broker = StoringBroker()
    coordinator = broker.server.coordinator
    assert coordinator is not None
    seen = HistorySeen("s3://bucket", 1, 41, 4, 40, 1000, 2, 3, "no answer")
    found = {
        sample.name: sample.value
        for family in families(StoreSeen, [see_store(coordinator, seen)])
        for sample in family.samples
        if "history" in sample.name
    }
    assert found == {
        "headwater_store_history_end_position": 41,
        "headwater_store_history_objects": 4,
        "headwater_store_history_bytes": 1000,
        "headwater_store_history_waiting_blocks": 2,
        "headwater_store_history_failures_total": 3,
        "headwater_store_history_away": 1,
    }
