"""Tables of operations with Spark, and the whole way round: what members do, what is advised, what they get then."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.client import PingSender, SyncClient
from headwater.node.advice.settings import AdviceSettings
from headwater.node.config import Config
from headwater.node.delivery.rest_settings import RestSettings
from headwater.node.delivery.settings import StoreSettings
from headwater.pipeline.operations.advice import Basis
from headwater.pipeline.operations.members import members
from headwater.pipeline.operations.sender import Sender
from headwater.pipeline.operations.settings import Settings
from headwater.pipeline.operations.splits import split_advice
from headwater.pipeline.operations.trees import tree_advice
from headwater.pipeline.operations.weights import weights_advice
from headwater.pipeline.tables import ADVICE, BRONZE, MEMBERS, TRAFFIC
from headwater.store.reader import StoreReader
from tests.node.delivery.node import PATIENCE, Node
from tests.pipeline.derive.rows import NOON, Row, found, frame

PLACE = "$SYS/broker/shared/g/t%2F%23"
GROUP = "$share/g/t/#"
TOKEN = "0123456789abcdef-operator"


# ---- members -----------------------------------------------------------------------------------------------------


def message(position: int, seconds: float, topic: str, payload: bytes, store: str = "one") -> Row:
    at = NOON + timedelta(seconds=seconds)
    return {"store": store, "position": position, "topic": topic, "payload": payload, "arrival": at, "time": at}


def said(sent: int, **more: Any) -> bytes:
    member = {"client_id": "c", "online": True, "sent": sent, "in_flight": 0, "waiting": None, "weight": 1}
    return json.dumps(member | more).encode()


def test_members_by_minute(spark: SparkSession) -> None:
    a, b = f"{PLACE}/member/a", f"{PLACE}/member/b%2B%20%2F"
    rows = [
        message(1, -30, a, said(100)),  # before: only to count from
        message(2, 10, a, said(130, in_flight=4, seconds_per_message=0.02)),
        message(3, 20, a, said(150, in_flight=1, waiting=8, reported_seconds=0.04, seconds_per_message=9.0)),
        message(4, 21, f"{PLACE}/messages/sent", b"150"),
        message(5, 22, f"{PLACE}/dispatcher", b"adaptive"),
        message(6, 25, b, said(7)),  # the first that is known of it
        message(7, 70, b, said(9, seconds_per_message=float("nan"))),
        message(8, 71, b, b"rubbish"),
        message(9, 75, a, b""),  # it has gone
        message(10, 80, a, said(5, reported_seconds=0.04)),  # and is back
        message(11, 90, a, said(3)),  # the broker was started anew
        message(12, 119.9, a, said(4)),
        message(13, 120, a, said(1000)),  # of the minute behind
        message(2, 15, a, said(1, in_flight=2), store="two"),
        message(9, 30, a, said(11, in_flight=2), store="two"),
        message(14, 30, "t/1", b'{"sent": 5}'),
    ]
    made = members(frame(spark, BRONZE, rows), NOON, NOON + timedelta(minutes=2))
    assert made.columns == list(MEMBERS.names)
    one, two = NOON, NOON + timedelta(minutes=1)
    day = NOON.date()
    expected = [
        # 30 + 20 at one, 10 at two; mean of 4, 8, 2, 2; mean of 0.02 and 0.04
        {"minute": one, "member": "a", "dispatched": 60, "backlog": 4.0, "processing": 0.03},
        {"minute": one, "member": "b+ /", "dispatched": None, "backlog": 0.0, "processing": None},
        {"minute": two, "member": "a", "dispatched": 5 + 3 + 1, "backlog": 0.0, "processing": 0.04},
        {"minute": two, "member": "b+ /", "dispatched": 2, "backlog": 0.0, "processing": None},
    ]
    got = [{**row, "minute": row["minute"].astimezone(UTC)} for row in found(made, *MEMBERS.keys)]
    assert got == [{**row, "group": GROUP, "day": day} for row in expected]


# ---- advice ------------------------------------------------------------------------------------------------------


def figures(minutes: int, **processing: float) -> list[Row]:
    return [
        {"minute": NOON + timedelta(minutes=minute), "group": GROUP, "member": name}
        | {"dispatched": 100, "backlog": float(minute), "processing": seconds, "day": NOON.date()}
        for minute in range(minutes)
        for name, seconds in processing.items()
    ]


def basis(number: int = 50, minutes: float = 10) -> Basis:
    return Basis({"one": number}, NOON + timedelta(minutes=minutes))


def weights_of(advice: DataFrame) -> dict[str, float]:
    [row] = found(advice, *ADVICE.keys)
    made: dict[str, float] = json.loads(row["advice"])["weights"]
    return made


def test_weights_from_members(spark: SparkSession) -> None:
    settings = Settings()
    table = frame(spark, MEMBERS, [*figures(6, a=0.02, b=0.04), *figures(3, young=0.001)])
    first = weights_advice(table, settings, basis()).cache()
    assert first.columns == list(ADVICE.names)
    made = weights_of(first)
    assert set(made) == {"a", "b"}, "of others too little is known"
    assert made["a"] == pytest.approx(2 * made["b"], rel=0.01)
    assert weights_advice(table, settings, basis(51, 11), first).isEmpty()
    other = frame(spark, MEMBERS, figures(6, a=0.02, b=0.02))
    assert weights_of(weights_advice(other, settings, basis(51, 11), first)) == {"a": 1.0, "b": 1.0}


def carried(topic: str, messages: int, publishers: int = 1, store: str = "one") -> Row:
    return {"minute": NOON, "topic": topic, "store": store, "messages": messages} | {
        "bytes": 10 * messages,
        "publishers": publishers,
        "day": NOON.date(),
    }


def test_splits_and_trees_from_traffic(spark: SparkSession) -> None:
    settings = Settings(parts=2)
    rows = [carried(f"plant/{number}/heat", 10) for number in range(8)] + [carried("busy", 100, 2, "two")]
    table = frame(spark, TRAFFIC, rows)
    stores = {"one": ["plant/#"], "two": ["busy"], "three": ["#"]}
    first = split_advice(table, stores, settings, basis()).cache()
    [row] = found(first, *ADVICE.keys)
    assert (row["kind"], row["subject"]) == ("split", "one")
    parts = json.loads(row["advice"])["parts"]
    assert len(parts) == 2 and "plant/#" in parts[0] + parts[1]
    more = frame(spark, TRAFFIC, [*rows, carried("plant/0/heat", 5)])
    [again] = found(split_advice(more, stores, settings, basis(52, 18), first), *ADVICE.keys)
    assert json.loads(again["advice"])["parts"] == parts, "renewed, nothing moves"
    heavy = frame(spark, TRAFFIC, [*rows, *(carried(f"plant/{number}/heat", 90) for number in (0, 2, 4, 6))])
    [moved] = found(split_advice(heavy, stores, settings, basis(51, 11), first), *ADVICE.keys)
    assert json.loads(moved["advice"])["parts"] != parts

    crowd = frame(spark, MEMBERS, [dict(row, group="$share/g/#") for row in figures(3, a=0.1, b=0.1)])
    [tree] = found(tree_advice(table, crowd, settings, basis()), *ADVICE.keys)
    assert (tree["kind"], tree["subject"]) == ("tree", "busy")
    assert json.loads(tree["advice"])["tree"] == {"messages_per_minute": 100.0, "members": 4, "churn": 0.0}


# ---- the whole way round -----------------------------------------------------------------------------------------


class Says(PingSender):
    """A member that takes so many milliseconds for a message."""

    def __init__(self, milliseconds: float) -> None:
        super().__init__(0.1)
        self._milliseconds = milliseconds

    def payload(self) -> bytes:
        return json.dumps({"msgsInQueue": 0, "processingTimePerMsg": self._milliseconds}).encode()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def node_with_advice() -> Iterator[Node]:
    config = Config(
        host="127.0.0.1",
        port=0,
        sys_interval=0.2,
        shared_dispatcher="weighted_round_robin",
        store=StoreSettings(filters=["#", "$SYS/broker/shared/#"]),
        rest=RestSettings(host="127.0.0.1", port=0, token=TOKEN),  # type: ignore[arg-type]
        advice=AdviceSettings(enabled=True),
    )
    node = Node(config)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def sent_by(node: Node) -> dict[str, int]:
    [group] = node.do(node.broker.shared_groups)
    return {member.client_id: member.sent for member in group.members}


def shares(node: Node, publisher: SyncClient, count: int = 300) -> dict[str, float]:
    before = sent_by(node)
    for _ in range(count):
        publisher.publish("t/1", b"x", qos=1, timeout=PATIENCE)
    after = sent_by(node)
    return {name: (after[name] - before[name]) / count for name in after}


def stored(spark: SparkSession, reader: StoreReader) -> tuple[DataFrame, Basis]:
    """What the store has of `$SYS`, as bronze would, and what that is made from."""
    rows = [
        {**row, "store": "s1", "payload": row["payload"].encode(), "time": None}
        | {"arrival": datetime.fromisoformat(row["arrival"])}
        for row in reader.messages(topic="$SYS/broker/shared/#")
    ]
    return frame(spark, BRONZE, rows), Basis({"s1": rows[-1]["position"]}, rows[-1]["arrival"])


def test_the_whole_way_round(spark: SparkSession) -> None:
    """Members report, the broker says so in `$SYS`, the store keeps it, tables are made of it, advice of these, and the
    members get what they can do."""
    with node_with_advice() as node, ExitStack() as stack:

        def connect(name: str, **more: Any) -> SyncClient:
            return stack.enter_context(node.client(client_id=name, **more))

        for name, milliseconds in (("quick", 10.0), ("slow", 40.0)):
            connect(name, ping_sender=Says(milliseconds)).subscribe("$share/g/t/#")
        publisher = connect("publisher")
        reader = StoreReader(node.url, token=TOKEN)
        assert shares(node, publisher) == {"quick": 0.5, "slow": 0.5}

        def told(name: str) -> bool:
            last = reader.latest(f"$SYS/broker/shared/g/t%2F%23/member/{name}")
            return last is not None and json.loads(last["payload"])["reported_seconds"] is not None

        until(lambda: told("quick") and told("slow"))
        bronze, basis = stored(spark, reader)
        table = members(bronze, basis.made - timedelta(hours=1), basis.made + timedelta(minutes=1))
        rows = found(weights_advice(table, Settings(least_minutes=1), basis), *ADVICE.keys)
        sender = Sender.by_rest(reader)
        assert sender.send(rows) == 1
        [advice] = node.do(node.broker.advice)
        assert (advice.subject, advice.number, advice.weights) == (GROUP, basis.number, {"quick": 2.0, "slow": 0.5})
        assert "slow takes 40 ms for a message" in advice.why
        assert shares(node, publisher) == pytest.approx({"quick": 0.8, "slow": 0.2}, abs=0.01)

        again = found(weights_advice(table, Settings(least_minutes=1), basis), *ADVICE.keys)
        assert again == rows
        assert sender.send(again) == 1
        advising = node.broker.server.advising
        assert advising is not None
        assert advising.counts == {"used": 1, "bad": 0, "old": 1, "expired": 0}

        reader.publish("$headwater/advice/weights/%24share%2Fg%2Ft%2F%23", b"", retain=True)
        assert shares(node, publisher) == pytest.approx({"quick": 0.5, "slow": 0.5}, abs=0.01)
