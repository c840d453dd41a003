"""Who reads from object storage gets what the node would have sent, without asking it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headwater.store.arrow import record_batch
from headwater.store.chunk import Chunk
from headwater.store.direct import Direct
from headwater.store.entry import Entry
from headwater.store.history.manifest import Entry as ManifestEntry
from headwater.store.history.rows import Wanted, rows_of
from headwater.store.history.writing import packed
from headwater.store.reader import Gone, StoreReader
from tests.store.history.moving import Moving
from tests.store.messages import NOON, SECOND, Writer
from tests.store.rest.served import EVERYTHING, SomeGate, serving

QUESTIONS: list[dict[str, Any]] = [
    {},
    {"topic": "plant/+/temperature"},
    {"topic": "plant/3/temperature"},
    {"topic": "$SYS/#"},
    {"topic": "none/#"},
    {"after": 37},
    {"after": "s1:37", "before": "s1:61"},
    {"before": 20, "limit": 7},
    {"limit": 75},
    {"start": datetime.fromtimestamp(NOON / 1e6 + 30, UTC), "end": NOON // SECOND + 70},
    {"low": 10.0, "high": 30.0, "topic": "#"},
    {"columns": ["topic", "value"], "after": 5},
]


def fill(moving: Moving) -> None:
    writer = Writer(moving.store)
    for number in range(1, 91):
        topic = "$SYS/load" if number % 11 == 0 else f"plant/{number % 7}/{'temperature' if number % 3 else 'état'}"
        body = b"\xff\x00" if number % 13 == 0 else b'{"ts": %d, "value": %d}' % (NOON + number * SECOND, number)
        properties = b'{"user":[["a","b"]]}' if number % 17 == 0 else b""
        writer.take(
            topic, body, qos=number % 3, retain=number % 5 == 0, publisher=f"device-{number % 9}",
            arrival=NOON + number * SECOND, properties=properties,
        )  # fmt: skip
        if number % 10 == 0:
            writer.sync()
            moving.store.seal()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=20)
    fill(moving)
    yield moving
    moving.close()


class Node(SomeGate):
    """REST of a store with history."""

    def __init__(self, moving: Moving) -> None:
        super().__init__(moving.store)
        self._moving = moving

    async def history(self) -> dict[str, Any]:
        first, end = self._moving.extent
        counts = dict.fromkeys(("objects", "rows", "size", "waiting", "failures"), 0)
        url = self._moving.catalog.place.url
        return {"url": url, "first": first, "end": end, "failure": "", "failed_since": None, "moved_at": None, **counts}


@pytest.fixture
def url(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("tests.store.rest.served.SomeGate", lambda store: Node(moving))
    with serving(moving.tiered) as served:
        yield served.url


def table(reader: StoreReader, question: dict[str, Any]) -> pa.Table:
    """With plain strings: in which order a dictionary has them says nothing."""
    batches = list(reader.read(**question, dictionaries=False))
    return pa.Table.from_batches(batches).combine_chunks() if batches else None


def raw(url: str, **asked: Any) -> bytes:
    answer = httpx.get(f"{url}/v1/messages", params=asked, headers={"Authorization": f"Bearer {EVERYTHING}"})
    assert answer.status_code == 200
    return answer.content


def test_what_rest_says_is_the_same_to_the_byte_wherever_messages_are(moving: Moving, url: str) -> None:
    asking: list[dict[str, Any]] = [
        {"format": form, **question}
        for form in ("json", "ndjson", "csv")
        for question in (
            {}, {"topic": "plant/#"}, {"topic": "plant/3/temperature", "min": 20}, {"after": 30, "limit": 40},
            {"filter": "value > 40"},
        )
    ]  # fmt: skip
    before = [raw(url, **each) for each in asking]
    tables = [table(StoreReader(url, token=EVERYTHING), each) for each in QUESTIONS]
    moving.move(NOON + 75 * SECOND, seal=False)  # three blocks of four, the rest is in the tail
    assert moving.manifest.end == 61
    for after in (moving.drop, moving.move, moving.drop):
        after()
        assert [raw(url, **each) for each in asking] == before
        assert [table(StoreReader(url, token=EVERYTHING), each) for each in QUESTIONS] == tables
    assert moving.store.first == 91


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_direct_reader_gets_what_the_node_would_have_sent(question: dict[str, Any], moving: Moving, url: str) -> None:
    moving.move(NOON + 75 * SECOND, seal=False)
    through = StoreReader(url, token=EVERYTHING)
    direct = StoreReader(url, token=EVERYTHING, direct=Direct())
    expected = table(through, question)
    assert table(direct, question) == expected
    assert table(pickle.loads(pickle.dumps(direct)), question) == expected
    moving.drop()
    assert table(direct, question) == expected


def test_what_is_in_history_is_read_without_the_node(moving: Moving, url: str) -> None:
    moving.move()
    reader = StoreReader(url, token=EVERYTHING, direct=Direct(), retries=0)
    assert table(reader, {"before": 50}).num_rows == 49
    reader._port = 1  # nobody is there
    assert table(reader, {"after": 3, "before": 91}).column("position").to_pylist() == list(range(4, 91))
    with pytest.raises(Exception, match="refused"):
        table(reader, {"after": 3})


def test_what_is_gone_from_history_is_said_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), keep=50 * SECOND, block_messages=20)
    fill(moving)
    monkeypatch.setattr("tests.store.rest.served.SomeGate", lambda store: Node(moving))
    with serving(moving.tiered) as served:
        moving.move(NOON + 91 * SECOND)
        for direct in (None, Direct()):  # the node has it yet
            assert table(StoreReader(served.url, token=EVERYTHING, direct=direct), {"after": 3}).num_rows == 87
        moving.drop()
        for direct in (None, Direct()):
            with pytest.raises(Gone) as gone:
                table(StoreReader(served.url, token=EVERYTHING, direct=direct), {"after": 3})
            assert (gone.value.first, gone.value.lost) == (41, 37)
    moving.close()


def test_an_object_from_before_a_column_has_nothing_in_it() -> None:
    rows = record_batch(Chunk.of([Entry(1, "a", b"x", 0, False, "device", 1, 2, None)]))
    old = packed(rows.drop_columns(["properties"]))
    found = rows_of(pa.py_buffer(old), ManifestEntry("", 1, 2, 1, 0, "", 1, 1, 2), Wanted())
    assert found.select(["position", "properties"]).to_pylist() == [{"position": 1, "properties": None}]
    assert found.schema.equals(rows.schema)
