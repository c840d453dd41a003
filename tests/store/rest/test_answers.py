"""Long answers: how many, how much memory, and who is cut off for others."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.store.chunk import Chunk
from headwater.store.memory import MemoryStore
from headwater.store.query import Query
from headwater.store.rest import answers as module
from headwater.store.rest.answers import Answers
from headwater.store.rest.context import PAGES, Limits
from headwater.store.rest.gate import Refused
from headwater.web.admission import Bounds
from headwater.web.connection import ABORT
from tests.store.rest.served import EVERYTHING, PATIENCE, Served, serving
from tests.store.rest.test_streaming import FORMS, Endless, opened

MIB = 1 << 20


def scope(address: str, aborted: list[str] | None = None) -> dict[str, Any]:
    end = None if aborted is None else lambda: aborted.append(address)
    return {"client": (address, 1), ABORT: end}


def test_streams_are_bounded_for_an_address_and_in_all() -> None:
    answers = Answers(3, 2, MIB)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(answers.stream(scope("192.0.2.1")))
        with pytest.raises(Refused, match="2 streams and tails for your address"):
            stack.enter_context(answers.stream(scope("192.0.2.1")))
        stack.enter_context(answers.stream(scope("192.0.2.2")))
        with pytest.raises(Refused, match="3 streams and tails already"):
            stack.enter_context(answers.stream(scope("192.0.2.3")))
    assert len(answers) == 0
    with answers.stream(scope("192.0.2.1")):
        pass


def test_who_has_moved_least_is_cut_off_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[str] = []
    answers = Answers(9, 9, 100)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(answers.whole(scope(f"{number}", aborted))) for number in range(3)]
        for each in held:
            each.hold(50)
        now = time.monotonic()
        for each, ago in zip(held, (2.5, 3.5, 0.5), strict=True):
            each.moved_at = now - ago
        for _ in range(5):
            answers.press()
        assert aborted == ["1", "0"]
        assert answers.used == 150
    assert answers.used == 0


@pytest.mark.parametrize("form", FORMS)
def test_callers_that_do_not_read_take_bounded_memory_and_give_way(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMPATIENT", 0.2)
    monkeypatch.setattr(module, "LOOK", 0.01)
    store = Endless(size=5000)
    limits = Limits(memory=4 * MIB)
    with serving(store, limits, bounds=Bounds(write=PATIENCE)) as served, contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(opened(served.server.port, form))
        assert _read(served, form, 20 * MIB)
        most = (
            3 * 8 * MIB
        )  # a step of text has 1 MB here, one of Arrow 4 MiB; it may have begun before there was too much
        assert served.context.answers.used <= most


def _read(served: Served, form: str, size: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        path = f"/v1/messages?format={form}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {EVERYTHING}"})
        answer = connection.getresponse()
        return answer.status == 200 and len(answer.read(size)) == size


def test_too_many_streams_are_refused() -> None:
    with serving(Endless(), Limits(streams=5, streams_per_address=1)) as served:
        with opened(served.server.port, "arrow") as first:
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            assert served.refusal("GET", "/v1/messages", {"format": "csv"})[0] == 429
            assert served.refusal("GET", "/v1/tail")[0] == 429
            assert len(served.context.tails) == 0
        deadline = time.monotonic() + PATIENCE
        while len(served.context.answers):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_page_that_nobody_reads_is_counted() -> None:
    store = Endless(size=50_000)
    patient = Bounds(first_byte=PATIENCE, head=PATIENCE, write=2 * PATIENCE)  # on a busy machine nothing may be quick
    with serving(store, bounds=patient) as served, contextlib.ExitStack() as stack:
        head = f"GET /v1/messages?limit=150 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {EVERYTHING}\r\n\r\n".encode()
        stalled = stack.enter_context(socket.socket())
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", served.server.port))
        stalled.sendall(head)
        deadline = time.monotonic() + PATIENCE
        while served.context.answers.used < 5 * MIB:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stalled.close()
        deadline = time.monotonic() + PATIENCE
        while served.context.answers.used:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_pages_are_made_a_few_at_a_time() -> None:
    store = Held()
    with serving(store) as served, contextlib.ExitStack() as stack:
        for _ in range(PAGES + 3):
            caller = stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port), PATIENCE))
            caller.sendall(f"GET /v1/messages HTTP/1.0\r\nAuthorization: Bearer {EVERYTHING}\r\n\r\n".encode())
        deadline = time.monotonic() + PATIENCE
        while len(served.context.answers) < PAGES + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert served.call("GET", "/health").status_code == 200
        assert store.asked <= PAGES
        store.may_go_on.set()


class Held(MemoryStore):
    """Answers nothing before it may."""

    def __init__(self) -> None:
        super().__init__("s1")
        self.asked = 0
        self.may_go_on = threading.Event()

    def select(self, query: Query) -> Iterator[Chunk]:
        self.asked += 1
        assert self.may_go_on.wait(PATIENCE)
        return super().select(query)
