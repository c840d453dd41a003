"""Long answers: in steps, at the caller's pace, and ended when somebody goes or something is gone."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.disk.errors import StorageError
from headwater.store.chunk import Chunk
from headwater.store.entry import Entry
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.store import PositionGone
from tests.store.messages import NOON
from tests.store.rest.served import EVERYTHING, PATIENCE, serving

FORMS = ["ndjson", "csv", "arrow"]


class Endless(MemoryStore):
    """Chunks without end, counted; `broken` comes after so many."""

    def __init__(self, size: int = 1000, broken: Exception | None = None, after: int = 3) -> None:
        super().__init__("s1")
        self.size = size
        self.broken = broken
        self.after = after
        self.made = 0
        self.closed = threading.Event()

    def select(self, query: Query) -> Iterator[Chunk]:
        return self._chunks()

    def _chunks(self) -> Iterator[Chunk]:
        try:
            while self.broken is None or self.made < self.after:
                self.made += 1
                first = self.made * 100
                rows = [(first + row, "a", b"x" * self.size) for row in range(100)]
                yield Chunk.of([Entry(*row, 0, False, "device", NOON, NOON, None) for row in rows])
            raise self.broken
        finally:
            self.closed.set()


def opened(port: int, form: str) -> socket.socket:
    """A request was sent; nothing of its answer has been read."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(
        f"GET /v1/messages?format={form} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {EVERYTHING}\r\n\r\n".encode()
    )
    return connection


@pytest.mark.parametrize("form", FORMS)
def test_a_caller_that_does_not_read_costs_no_more_than_a_few_steps(form: str) -> None:
    store = Endless()
    with serving(store) as served, opened(served.server.port, form):
        made = -1
        while made != store.made or not made:  # until nothing moves any more
            made = store.made
            time.sleep(0.2)
        assert made * 100 * store.size < 30_000_000  # what the system buffers for both sides, most of it
        assert served.call("GET", "/health").status_code == 200


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_made_for_a_caller_that_has_gone(form: str) -> None:
    store = Endless()
    with serving(store) as served:
        connection = opened(served.server.port, form)
        assert connection.recv(100_000)
        connection.close()
        assert store.closed.wait(PATIENCE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("error", [PositionGone(5, 10), StorageError("the disk has failed")], ids=["gone", "failed"])
def test_an_answer_that_cannot_go_on_lacks_its_end(
    form: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with serving(Endless(10, error)) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE)
        connection.request("GET", f"/v1/messages?format={form}", headers={"Authorization": f"Bearer {EVERYTHING}"})
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        connection.close()
    said = [(record.name, record.levelname, record.getMessage()) for record in caplog.records if record.name != "httpx"]
    assert said == [("headwater.rest", "INFO", f"an answer was cut off: {error}")]


@pytest.mark.parametrize("form", [*FORMS, "json"])
def test_what_fails_at_once_is_an_answer(form: str) -> None:
    with serving(Endless(10, StorageError("the disk has failed"), after=0)) as served:
        status, detail = served.refusal("GET", "/v1/messages", {"format": form})
        assert status == 503 and "the disk has failed" in detail


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_ends_with_the_rights_of_its_caller(form: str) -> None:
    store = Endless()
    with serving(store) as served:
        eve = served.add("eve", "#")
        connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE)
        connection.request("GET", f"/v1/messages?format={form}", headers={"Authorization": "Bearer eve"})
        answer = connection.getresponse()
        assert answer.read(1000)
        eve.current = False
        with pytest.raises(http.client.IncompleteRead):
            for _ in range(200):
                answer.read(1 << 20)
        connection.close()
        assert store.closed.wait(PATIENCE)


def test_others_are_served_while_long_answers_are_made() -> None:
    with serving(Endless()) as served:
        readers = [opened(served.server.port, "ndjson") for _ in range(10)]
        stop = threading.Event()

        def drain(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while not stop.is_set() and connection.recv(1 << 16):
                    pass

        threads = [threading.Thread(target=drain, args=(each,)) for each in readers]
        for each in threads:
            each.start()
        try:
            for _ in range(5):
                assert served.call("GET", "/v1/readers").status_code == 200
        finally:
            stop.set()
            for reader in readers:
                reader.close()
            for thread in threads:
                thread.join(PATIENCE)


def test_a_server_stops_while_answers_are_under_way() -> None:
    served: Any
    with serving(Endless()) as served:
        connections = [opened(served.server.port, form) for form in FORMS]
        for each in connections:
            assert each.recv(1000)
    for each in connections:
        while each.recv(1 << 16):
            pass
        each.close()
