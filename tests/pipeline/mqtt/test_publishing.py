"""What a task of the writer sends: rows in order, marked, and not again what the broker has acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.client import Message, SyncClient
from headwater.pipeline.mqtt.ledger import Ledger
from headwater.pipeline.mqtt.options import WriteOptions
from headwater.pipeline.mqtt.publishing import BadRow, NotPublished, Task, publish, rows
from tests.brokers import both_brokers, running

TASK = Task("query", 3, 1, 0)
Received = Any


def options(port: int, **more: str) -> WriteOptions:
    return WriteOptions.of({"broker": f"mqtt://127.0.0.1:{port}", **more})


def batches(**columns: list[Any]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(columns)


def sent_by(port: int, count: int, *work: Any) -> list[Received]:
    """What a subscriber gets while the work is done, up to and with a last message of its own."""
    with SyncClient("127.0.0.1", port) as client:
        client.subscribe("out/#", qos=2)
        for each in work:
            each()
        client.publish("out/end", b"", qos=2)
        found = []
        while (message := client.receive(timeout=10)).topic != "out/end":
            found.append(message)
    assert len(found) == count
    return found


def marks(messages: list[Message]) -> list[str]:
    return [
        value for each in messages for name, value in each.properties.user_properties or [] if name == "headwater-batch"
    ]


@both_brokers
def test_rows_are_messages(broker: int) -> None:
    def work() -> None:
        columns: dict[str, list[Any]] = {
            "topic": ["out/a", "out/b", "out/c", "out/a"],
            "payload": ["text", "", None, "ü"],
            "qos": [0, 1, 2, None],
            "retain": [None, False, None, None],
            "properties": [None, '{"user": [["unit", "K"]], "content_type": "x"}', None, None],
        }
        assert publish(batches(**columns), options(broker), TASK, Ledger(None, "", 0, 0, 0)) == 4

    found = sorted(sent_by(broker, 4, work), key=lambda each: each.qos)  # some brokers let QoS 1 overtake QoS 2
    assert [(each.topic, each.payload, each.qos) for each in found] == [
        ("out/a", b"text", 0),
        ("out/b", b"", 1),
        ("out/a", "ü".encode(), 1),
        ("out/c", b"", 2),
    ]
    assert found[1].properties.content_type == "x"
    assert found[1].properties.user_properties[0] == ("unit", "K")
    assert len(set(marks(found))) == 4
    assert all(mark.startswith("query:3:1:") for mark in marks(found))


def test_a_row_that_is_sent_again_has_the_same_mark_whatever_the_order(broker: int) -> None:
    def work(payloads: list[str]) -> None:
        columns = {"topic": ["out/a"] * len(payloads), "payload": payloads}
        publish(batches(**columns), options(broker, inflight="2"), TASK, Ledger(None, "", 0, 0, 0))

    first = sent_by(broker, 4, lambda: work(["one", "two", "two", "three"]))
    again = sent_by(broker, 4, lambda: work(["two", "three", "one", "two"]))
    assert [each.payload for each in again] == [b"two", b"three", b"one", b"two"]
    assert set(marks(first)) == set(marks(again)) and len(set(marks(again))) == 4


def test_marks_of_a_former_pipeline_are_replaced_and_may_be_left_out(broker: int) -> None:
    former = '{"user":[["headwater-batch","old"],["a","b"]]}'
    columns: dict[str, list[Any]] = {"topic": ["out/a"], "payload": [b"x"], "properties": [former]}

    def work(**more: str) -> None:
        publish(batches(**columns), options(broker, **more), TASK, Ledger(None, "", 0, 0, 0))

    [marked] = sent_by(broker, 1, work)
    assert [name for name, _ in marked.properties.user_properties] == ["a", "headwater-batch"]
    assert marks([marked]) != ["old"]
    [plain] = sent_by(broker, 1, lambda: work(mark="false"))
    assert plain.properties.user_properties == [("headwater-batch", "old"), ("a", "b")]


def test_what_was_acknowledged_is_not_sent_again(broker: int, tmp_path: Path) -> None:
    sent = []

    def work(payloads: list[str], attempt: int) -> None:
        columns = {"topic": ["out/a"] * len(payloads), "payload": payloads}
        with Ledger(tmp_path, "q", 0, 0, attempt) as ledger:
            sent.append(publish(batches(**columns), options(broker), TASK, ledger))

    found = sent_by(broker, 4, lambda: work(["a", "b", "b"], 1), lambda: work(["b", "new", "b", "a"], 2))
    assert [each.payload for each in found] == [b"a", b"b", b"b", b"new"]
    assert sent == [3, 1]


def test_a_task_that_fails_in_the_middle_has_noted_what_was_acknowledged(broker: int, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(topic=["out/a"] * 4, payload=["0", "1", "2", "3"])
        raise RuntimeError("the task is lost")

    def work() -> None:
        with Ledger(tmp_path, "q", 0, 0, 1) as ledger, pytest.raises(RuntimeError):
            publish(failing(), options(broker, inflight="2"), TASK, ledger)
        columns = {"topic": ["out/a"] * 5, "payload": ["0", "1", "2", "3", "4"]}
        with Ledger(tmp_path, "q", 0, 0, 2) as ledger:
            assert publish(batches(**columns), options(broker), TASK, ledger) == 1

    assert [each.payload for each in sent_by(broker, 5, work)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": [None], "payload": ["x"]}, "a row has no topic"),
        ({"topic": ["a/#"], "payload": ["x"]}, "no topic to publish to"),
        ({"topic": ["a"], "payload": ["x"], "qos": [3]}, "QoS of a row for 'a' is 3"),
        ({"topic": ["a"], "payload": ["x"], "properties": ["{"]}, "properties of a row for 'a'"),
        ({"topic": ["a"], "payload": ["x"], "properties": ['{"colour": 1}']}, "unknown property 'colour'"),
    ],
)
def test_a_row_that_can_be_no_message_is_named(columns: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(BadRow, match=said):
        list(rows(batches(**columns), options(1)))


def test_topic_and_more_may_come_from_the_options() -> None:
    [row] = rows(batches(payload=[b"x"]), options(1, topic="out/a", qos="2", retain="true"))
    assert (row.topic, row.payload, row.qos, row.retain) == ("out/a", b"x", 2, True)


def test_a_broker_that_does_not_take_a_row_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic write out/allowed\n")
    with running("mosquitto", tmp_path, f"allow_anonymous true\nacl_file {tmp_path}/acl") as port:
        columns = {"topic": ["out/allowed", "out/forbidden"], "payload": ["x", "y"]}
        with Ledger(tmp_path, "q", 0, 0, 1) as ledger, pytest.raises(NotPublished, match="'out/forbidden'"):
            publish(batches(**columns), options(port), TASK, ledger)


def test_no_rows_need_no_broker() -> None:
    assert publish(iter(()), options(1), TASK, Ledger(None, "", 0, 0, 0)) == 0
