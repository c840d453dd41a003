"""A source that reads old messages from object storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipeline.jobs.settings import make_settings
from headwater.pipeline.options import OptionError
from headwater.pipeline.source.settings import read_settings
from headwater.store.chunk import Chunk
from headwater.store.history.tiered import TieredStore
from headwater.store.query import Query
from tests.pipeline.source.some_stores import batch, names, rows, span, stream
from tests.store.history.moving import LATE, Moving
from tests.store.history.test_direct import Node
from tests.store.rest.served import Served, serving
from tests.store.steady import written


class Watched(TieredStore):
    """Remembers what it was asked for."""

    def __init__(self, moving: Moving) -> None:
        super().__init__(moving.store, moving.history, lambda: moving.extent)
        self.asked: list[Query] = []

    def select(self, query: Query) -> Iterator[Chunk]:
        self.asked.append(query)
        return super().select(query)


@pytest.fixture
def tiered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Watched]]:
    """80 messages, of which 60 are in object storage, and 40 of these not on the disk."""
    moving = Moving(tmp_path, (tmp_path / "place").as_uri(), block_messages=20)
    for moves in (True, True, False):
        written(moving.store, 20)
        moving.store.seal(everything=True)
        moving.move()
        if moves:
            moving.drop(LATE)
    written(moving.store, 20)
    store = Watched(moving)
    monkeypatch.setattr("tests.store.rest.served.SomeGate", lambda _: Node(moving))
    with serving(store) as served:
        yield served, store
    moving.close()


def test_a_stream_of_old_messages_does_not_ask_the_node_for_them(tiered: tuple[Served, Watched]) -> None:
    served, store = tiered
    through = stream(served)
    assert names(rows(through, list(through.partitions({"s1": 0}, {"s1": 80})))) == span("s1", 1, 80)
    expected = rows(through, list(through.partitions({"s1": 0}, {"s1": 80})))
    store.asked.clear()
    reader = stream(served, history="direct", rowsPerPartition=20)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert (begin, end) == ({"s1": 0}, {"s1": 80})
    partitions = list(reader.partitions(begin, end))
    assert [str(each) for each in partitions] == ["s1:1..20", "s1:21..40", "s1:41..60", "s1:61..80"]
    assert rows(reader, partitions) == expected
    assert store.asked and all(query.after is not None and query.after >= 60 for query in store.asked)


def test_a_batch_read_pushes_down_to_object_storage(tiered: tuple[Served, Watched]) -> None:
    served, store = tiered
    plain, reader = batch(served, topic="old"), batch(served, topic="old", history="direct")
    assert rows(reader, list(reader.partitions())) == rows(plain, list(plain.partitions()))
    store.asked.clear()
    reader = batch(served, history="direct", startingOffsets='{"s1": 5}', endingOffsets='{"s1": 44}')
    assert names(rows(reader, list(reader.partitions()))) == span("s1", 6, 44)
    assert store.asked == []


def test_a_pipeline_may_read_directly() -> None:
    assert not make_settings({}).source().is_direct
    found = make_settings({"history": "direct", "history_options": {"AWS_REGION": "eu-north-1"}}).source()
    assert (found.is_direct, found.history_options) == (True, {"AWS_REGION": "eu-north-1"})
    with pytest.raises(ValueError, match="is one of node, direct"):
        make_settings({"history": "no"})


@pytest.mark.parametrize(
    ("option", "value"), [("history", "yes"), ("historyOptions", "x"), ("historyOptions", '{"a": 1}')]
)
def test_options_that_make_no_sense(option: str, value: str) -> None:
    with pytest.raises(OptionError, match=option):
        read_settings({"url": "http://localhost", option: value})


def test_credentials_are_not_in_the_text_of_settings() -> None:
    given = {"url": "http://localhost", "history": "direct", "historyOptions": '{"AWS_SECRET_ACCESS_KEY": "hush"}'}
    assert "hush" not in repr(read_settings(given))
