"""The client library: what it reads, how it goes on after a cut, what it says when it cannot, and what it needs."""

from __future__ import annotations

import contextlib
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

from headwater.store import asking as module
from headwater.store.arrow_schema import PLAIN, SCHEMA
from headwater.store.chunk import Chunk
from headwater.store.entry import microseconds
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.reader import Gone, Refused, StoreReader, Unreachable
from headwater.store.retention import Retention
from tests.brokers import free_port
from tests.store.messages import MICROSECONDS, NOON, SECOND, payload
from tests.store.rest.served import EVERYTHING, Served, serving
from tests.store.test_arrow import entries_of


class Flaky(MemoryStore):
    """Its answers break off after so many messages, the first few times."""

    def __init__(self) -> None:
        super().__init__("s1", MICROSECONDS, Retention(age=10 * SECOND))
        self.breaks: list[int] = []

    def select(self, query: Query) -> Iterator[Chunk]:
        chunks = super().select(query)
        return self._broken(chunks, self.breaks.pop(0)) if self.breaks else chunks

    def _broken(self, chunks: Iterator[Chunk], count: int) -> Iterator[Chunk]:
        for chunk in chunks:
            if count:
                yield chunk.slice(0, count)
                break
        from headwater.disk.errors import StorageError

        raise StorageError("broken")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.001)
    with serving(Flaky()) as served:
        yield served


def flaky(served: Served) -> Flaky:
    assert isinstance(served.store, Flaky)
    return served.store


def reader_of(served: Served, **options: Any) -> StoreReader:
    return StoreReader(served.url, token=EVERYTHING, **options)


def filled(served: Served, count: int = 10) -> StoreReader:
    for index in range(count):
        served.writer.take(f"t/{index % 2}", payload(NOON + index * SECOND, index))
    served.writer.sync()
    return reader_of(served)


def positions(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [position for batch in batches for position in batch.column("position").to_pylist()]


# ---- reading -------------------------------------------------------------------------------------------------------


def test_batches_of_what_is_asked_for(served: Served) -> None:
    reader = filled(served)
    [batch] = reader.read()
    assert batch.schema.equals(SCHEMA)
    assert [entry.position for entry in entries_of(batch)] == list(range(1, 11))
    at_noon = datetime.fromtimestamp(NOON // SECOND, UTC)
    assert microseconds(at_noon) == NOON
    for asked, expected in [
        ({"after": 4, "before": 7}, [5, 6]),
        ({"after": "s1:8"}, [9, 10]),
        ({"topic": "t/1", "limit": 2}, [2, 4]),
        ({"start": at_noon, "end": NOON + 2 * SECOND}, [1, 2]),
        ({"low": 3.0, "high": 4.0}, [4, 5]),
        ({"after": 10}, []),
        ({"limit": 3}, [1, 2, 3]),
    ]:
        assert positions(reader.read(**asked)) == expected, asked
        assert [each["position"] for each in reader.messages(**asked)] == expected


def test_plain_strings_for_those_who_know_no_dictionaries(served: Served) -> None:
    reader = filled(served)
    for compression in (None, "zstd"):
        [batch] = reader.read(dictionaries=False, compression=compression)
        assert batch.schema.equals(PLAIN)
        assert batch.column("topic").to_pylist() == ["t/0", "t/1"] * 5


@pytest.mark.parametrize("way", ["read", "messages"])
@pytest.mark.parametrize("after", [None, 2, "s1:2"])
def test_reading_goes_on_after_a_cut(served: Served, way: str, after: Any) -> None:
    reader = filled(served)
    store = flaky(served)
    expected = list(range(1 if after is None else 3, 11))

    def read(**options: Any) -> list[int]:
        if way == "read":
            return positions(reader.read(after, **options))
        return [each["position"] for each in reader.messages(after, **options)]

    store.breaks = [3, 0, 0, 2, 0]
    assert read() == expected
    assert store.breaks == []
    store.breaks = [1] * 7  # more than it would try without progress
    assert read() == expected
    store.breaks = [3]
    assert read(limit=5) == expected[:5]
    store.breaks = [3]
    assert read(limit=3) == expected[:3]
    assert read(before=9) == expected[:-2]


def test_a_cut_in_a_place_where_the_store_has_another_id_is_noticed(served: Served) -> None:
    reader = filled(served)
    store = flaky(served)
    store.breaks = [2]
    batches = reader.read(after="s1:0")
    assert positions(iter([next(batches)])) == [1, 2]
    store.id = "s2"
    with pytest.raises(Refused, match="another store"):
        next(batches)


def test_tries_are_bounded(served: Served) -> None:
    reader = filled(served)
    reader.retries = 3
    flaky(served).breaks = [1, 0, 0, 0, 0, 0]
    with pytest.raises(Unreachable):
        positions(reader.read())
    assert len(flaky(served).breaks) == 2  # it was tried three times more


def test_nobody_is_there() -> None:
    reader = StoreReader(f"http://127.0.0.1:{free_port()}", retries=0)
    for call in (reader.status, reader.readers, lambda: list(reader.read()), lambda: reader.publish("a", b"")):
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            call()


def test_what_retention_removed_is_gone(served: Served) -> None:
    for index in range(6):
        served.writer.take("a", arrival=NOON + index * SECOND)
    served.writer.sync()
    served.store.trim(NOON + 13 * SECOND)
    reader = reader_of(served)
    for call in (
        lambda: list(reader.read(after=0)),
        lambda: list(reader.messages(after=0)),
        lambda: next(reader.tail(after=0)),
        lambda: reader.commit("lake", 0),
    ):
        with pytest.raises(Gone) as gone:
            call()
        assert (gone.value.first, gone.value.next, gone.value.lost) == (4, 7, 3)
    assert positions(reader.read()) == [4, 5, 6]


def test_what_is_refused_is_said(served: Served) -> None:
    with pytest.raises(Refused, match="show a token") as refused:
        StoreReader(served.url).status()
    assert (refused.value.status, refused.value.error) == (401, "unauthorized")
    with pytest.raises(Refused, match="must stand alone"):
        list(reader_of(served).read(topic="a#"))


def test_errors_can_be_pickled() -> None:
    for error in (Gone("gone", 1, 2, 3), Refused(422, "no", "why"), Unreachable("where")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


# ---- everything else -----------------------------------------------------------------------------------------------


def test_topics_latest_and_publishing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(served)
    for topic in ("a/b", "/é?#&"[:3], "$x"):
        assert reader.publish(topic, b"\xff", qos=2, retain=True) == served.store.next - 1
        latest = reader.latest(topic)
        assert latest is not None and (latest["topic"], latest["qos"], latest["retain"]) == (topic, 2, True)
    assert reader.latest("nothing") is None
    assert [each["topic"] for each in reader.topics()] == sorted(["a/b", "/é?", "$x"])
    assert [each["topic"] for each in reader.topics("a/#")] == ["a/b"]


def test_all_pages_of_topics(served: Served) -> None:
    names = sorted(f"t/{index}" for index in range(1200))
    served.writer.write(*names)
    assert [each["topic"] for each in reader_of(served).topics()] == names


def test_readers(served: Served) -> None:
    reader = filled(served)
    assert reader.reader("lake") is None and reader.readers() == []
    assert reader.commit("lake", 4)["lag"] == 6
    assert reader.commit("lake", "s1:5")["position"] == 5
    found = reader.reader("lake")
    assert found is not None and found["position"] == 5 and reader.readers() == [found]
    assert reader.status()["next"] == 11
    assert reader.forget("lake") is True and reader.forget("lake") is False
    with pytest.raises(Refused, match="not been given yet"):
        reader.commit("lake", 11)


def test_a_tail_goes_on_after_a_cut(served: Served) -> None:
    reader = filled(served, 4)
    flaky(served).breaks = [2]
    tail = reader.tail(after=1)
    assert [next(tail)["position"] for _ in range(3)] == [2, 3, 4]
    served.writer.write("a")
    assert next(tail)["position"] == 5
    tail.close()


def test_over_tls(tmp_path: Path) -> None:
    import ssl

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    with serving(MemoryStore("s1"), context=context) as served:
        url = f"https://localhost:{served.server.port}"
        assert StoreReader(url, token=EVERYTHING, ca=str(ca)).status()["id"] == "s1"
        with pytest.raises(Unreachable, match="certificate"):
            StoreReader(url, token=EVERYTHING, retries=0).status()


def test_user_and_password_are_shown(served: Served) -> None:
    with pytest.raises(Refused):
        StoreReader(served.url, user="é", password="p:w").status()
    assert served.gate.approaches[-1].authorization == "Basic w6k6cDp3"


@pytest.mark.parametrize("url", ["ftp://x", "http://", "mqtt://a:1", ""])
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        StoreReader(url)


def test_either_a_token_or_a_user() -> None:
    with pytest.raises(ValueError, match="either"):
        StoreReader("localhost:1", token="t", user="u")


def test_behind_a_path_of_a_proxy_and_without_a_scheme(served: Served) -> None:
    assert StoreReader(f"127.0.0.1:{served.server.port}", token=EVERYTHING).status()["id"] == "s1"
    with pytest.raises(Refused) as refused:
        StoreReader(f"{served.url}/prefix/", token=EVERYTHING).status()
    assert refused.value.status == 404


def test_a_reader_can_be_pickled(served: Served) -> None:
    again = pickle.loads(pickle.dumps(filled(served)))
    assert positions(again.read(limit=2)) == [1, 2]


def test_an_answer_that_is_none() -> None:
    """Something else listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        reader = StoreReader(f"http://127.0.0.1:{listening.getsockname()[1]}", retries=1)
        for call in (lambda: list(reader.read()), reader.status, lambda: list(reader.messages())):
            with pytest.raises(Unreachable):
                call()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(15)


def test_its_import_needs_pyarrow_and_no_more() -> None:
    code = (
        "import sys, headwater.store.reader\n"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'rocksdict', 'pydantic', 'httpx', 'orjson', 'typer', 'rich'}\n"
        "ours = {name for name in sys.modules if name.startswith('headwater')}\n"
        "print(sorted(heavy & sys.modules.keys()), sorted(ours))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = [
        f"headwater.store.{each}" for each in ("arrow_schema", "asking", "columns", "directory", "reader", "vector")
    ]
    others = ["headwater", "headwater.routing", "headwater.routing.topics", "headwater.store"]
    assert said.strip() == f"[] {[*others, *modules]}"


def test_positions_by_time_of_arrival(served: Served) -> None:
    for second in (0, 0, 1, 5, 5, 5, 9):
        served.writer.take("a", arrival=NOON + second * SECOND)
    served.writer.sync()
    reader = StoreReader(served.url, token=EVERYTHING)
    noon = datetime.fromtimestamp(NOON // SECOND, UTC)
    found = [reader.position_at(noon + timedelta(seconds=second)) for second in (-1, 0, 0.5, 1, 5, 6, 9, 10)]
    assert found == [1, 1, 3, 3, 4, 7, 7, 8]


def test_the_clock_of_a_store(served: Served) -> None:
    served.writer.write("a", "b")
    served.gate.clock = NOON
    assert StoreReader(served.url, token=EVERYTHING).clock() == (datetime.fromtimestamp(NOON // SECOND, UTC), 3)
