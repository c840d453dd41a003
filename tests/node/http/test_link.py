"""Node and HTTP process, as far as they ask and answer each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.disk.errors import StorageError
from headwater.node.http.failures import NodeFailed
from headwater.node.http.link import Asked, Link, LinkLost
from headwater.node.protocol.tracing import TooManyTraces
from headwater.store.rest.gate import Refused, Unauthorized
from headwater.store.store import PositionGone, UnknownReader

PATIENCE = 10.0


class Ends:
    """Both of them in one loop."""

    def __init__(self, questions: dict[str, Asked], largest: int = 1000) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.node = Link(questions, lambda name, said: self.told.append((name, said)), self.lost.set_result, largest)
        self.http = Link({}, lambda name, said: None, lambda why: None, 1 << 20)
        self.raw, self._theirs = socket.socketpair()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.http, sock=self.raw)
        await loop.create_unix_connection(lambda: self.node, sock=self._theirs)


def with_ends(questions: dict[str, Asked], work: Callable[[Ends], Awaitable[None]], opened: bool = True) -> None:
    async def running() -> None:
        ends = Ends(questions)
        if opened:
            await ends.open()
        else:
            await asyncio.get_running_loop().create_unix_connection(lambda: ends.node, sock=ends._theirs)
        async with asyncio.timeout(PATIENCE):
            await work(ends)
        ends.http.close()
        ends.node.close()
        ends.raw.close()

    asyncio.run(running())


def test_answers_come_in_any_order() -> None:
    may_go = asyncio.Event()

    async def slow(number: int) -> int:
        await may_go.wait()
        return number

    def quick(number: int, body: bytes = b"") -> Any:
        may_go.set()
        return [number, len(body)]

    async def work(ends: Ends) -> None:
        first = asyncio.ensure_future(ends.http.ask("slow", number=1))
        await asyncio.sleep(0)
        assert await ends.http.ask("quick", b"xyz", number=2) == [2, 3]
        assert await first == 1
        assert await ends.http.ask("bytes") == b"\xff\0"
        ends.http.tell("something", value=[1, None])
        await ends.http.ask("quick", number=3)
        assert ends.told == [("something", {"value": [1, None]})]

    with_ends({"slow": slow, "quick": quick, "bytes": lambda: b"\xff\0"}, work)


@pytest.mark.parametrize(
    "error",
    [
        Refused(507, "full", "no room", lost=3),
        Unauthorized("who"),
        PositionGone(3, 9),
        StorageError("the disk"),
        ValueError("what"),
        UnknownReader("r"),
        TooManyTraces(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_raised_is_raised_on_the_other_side(error: Exception) -> None:
    def fails() -> None:
        raise error

    async def fails_later() -> None:
        await asyncio.sleep(0)
        raise error

    async def work(ends: Ends) -> None:
        for name in ("now", "later"):
            with pytest.raises(type(error)) as found:
                await ends.http.ask(name)
            assert type(found.value) is type(error)
            assert str(found.value) == str(error)
            assert vars(found.value) == vars(error)

    with_ends({"now": fails, "later": fails_later}, work)


def test_a_bug_is_logged_and_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise KeyError("secret")

    async def work(ends: Ends) -> None:
        with pytest.raises(NodeFailed) as found:
            await ends.http.ask("fails")
        assert "secret" not in str(found.value)
        with pytest.raises(NodeFailed):
            await ends.http.ask("fails", strange=1)

    with_ends({"fails": fails}, work)
    assert "secret" in caplog.text


def frame(head: bytes, body: int = 0) -> bytes:
    return len(head).to_bytes(4, "little") + body.to_bytes(4, "little") + head


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff" * 100, "a frame of"),
        (frame(b"[]"), "no object"),
        (frame(b"{x"), "no JSON"),
        (frame(b'{"do":"xyz"}'), "nobody knows"),
        (frame(b'{"do":"ask","with":[1,2]}'), "no object"),
        (frame(b"{}", 1001), "a frame of"),
    ],
)
def test_garbage_ends_it(data: bytes, why: str) -> None:
    async def work(ends: Ends) -> None:
        ends.raw.sendall(data)
        assert why in await ends.lost

    with_ends({"ask": lambda: None}, work, opened=False)


def test_who_asks_when_the_other_goes_is_told() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def work(ends: Ends) -> None:
        asked = asyncio.ensure_future(ends.http.ask("never"))
        await asyncio.sleep(0.01)
        ends.node.close()
        with pytest.raises(LinkLost):
            await asked
        with pytest.raises(LinkLost):
            await ends.http.ask("never")

    with_ends({"never": never}, work)


def test_who_does_not_read_is_not_answered_for_ever() -> None:
    """What waits for it is bounded: its questions are not read until it has taken its answers."""
    answered = 0

    def large() -> bytes:
        nonlocal answered
        answered += 1
        return bytes(100_000)

    async def work(ends: Ends) -> None:
        question = frame(b'{"id":1,"do":"large"}')
        ends.raw.setblocking(False)
        sent = 0
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                sent += ends.raw.send(question * 200)
            await asyncio.sleep(0)
        assert 0 < answered < sent // len(question) // 2
        assert answered <= 32_768 // len(question) + 20

    with_ends({"large": large}, work, opened=False)
