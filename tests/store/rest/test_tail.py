"""Live tails: messages as they come, resumed where they were cut, bounded, and ended with the server."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headwater.store.memory import MemoryStore
from headwater.store.rest import tail as module
from headwater.store.rest.context import Limits
from headwater.store.retention import Retention
from tests.store.messages import MICROSECONDS, NOON, SECOND, payload
from tests.store.rest.served import EVERYTHING, PATIENCE, Served, serving


class Watching:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()
        self.comments = 0

    def event(self) -> dict[str, str]:
        """The next one, by the names of its fields."""
        found: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif "data" in found:
                return found
            else:
                found = {}
        raise EOFError

    def events(self, count: int) -> list[tuple[str, Any]]:
        return [(each["id"], json.loads(each["data"])) for each in (self.event() for _ in range(count))]

    def topics(self, count: int) -> list[str]:
        return [message["topic"] for _, message in self.events(count)]


@contextlib.contextmanager
def watching(
    served: Served, params: dict[str, Any] | None = None, token: str = EVERYTHING, **headers: str
) -> Iterator[Watching]:
    all_headers = {"Authorization": f"Bearer {token}", **headers}
    with (
        httpx.Client(base_url=served.url, timeout=PATIENCE) as client,
        client.stream("GET", "/v1/tail", params=params, headers=all_headers) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        yield Watching(answer)


def test_what_comes_from_now_on(served: Served) -> None:
    served.writer.write("old")
    with watching(served) as tail:
        assert tail.answer.headers["content-type"].startswith("text/event-stream")
        served.writer.write("a", "b")
        served.writer.take("c", b"line\nbreak \xff")
        served.writer.sync()
        events = tail.events(3)
        assert [id for id, _ in events] == ["s1:2", "s1:3", "s1:4"]
        assert [message["topic"] for _, message in events] == ["a", "b", "c"]
        assert events[2][1]["payload_base64"]


def test_from_behind_a_position_and_with_conditions(served: Served) -> None:
    for index in range(6):
        served.writer.take(f"t/{index % 2}", payload(value=index))
    served.writer.sync()
    with watching(served, {"after": 1, "topic": "t/1", "min": 2}) as tail:
        served.writer.take("t/0", payload(value=9))
        served.writer.take("t/1", payload(value=9))
        served.writer.sync()
        assert [id for id, _ in tail.events(3)] == ["s1:4", "s1:6", "s1:8"]


def test_with_a_condition_on_the_content(served: Served) -> None:
    with watching(served, {"filter": "topic = 'a' and changed(value, 1)"}) as tail:
        for value in (1, 2, 3, 3, 9):
            served.writer.take("a", payload(value=value))
            served.writer.take("b", payload(value=value))
            served.writer.sync()
        assert [message["value"] for _, message in tail.events(3)] == [1, 3, 9]


def test_an_interrupted_tail_goes_on_where_it_was(served: Served) -> None:
    served.writer.write("a", "b", "c")
    with watching(served, {"after": 0}) as tail:
        [(last, _)] = tail.events(1)
    with watching(served, {"after": 0}, **{"Last-Event-ID": last}) as tail:
        assert tail.topics(2) == ["b", "c"]


def test_a_silent_tail_says_that_it_is_alive(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.05)
    with watching(served, {"topic": "wanted"}) as tail:
        for _ in range(3):
            served.writer.write("unwanted")
        while tail.comments < 3:
            line = next(tail._lines)
            tail.comments += line.startswith(":")
        served.writer.write("wanted")
        assert tail.topics(1) == ["wanted"]


def test_tails_are_bounded() -> None:
    with serving(MemoryStore("s1"), Limits(tails=2)) as served:
        with watching(served), watching(served):
            assert served.get("/v1/store")["tails"] == 2
            status, detail = served.refusal("GET", "/v1/tail")
            assert status == 429 and "2 live tails" in detail
        until(lambda: served.get("/v1/store")["tails"] == 0)  # noticed by the server a moment later
        with watching(served):
            pass
    assert not served.store._watchers  # type: ignore[attr-defined]


def until(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("after", ["s2:1", "x", "-1", "9" * 30])
def test_no_position(quick: Served, after: str) -> None:
    assert quick.refusal("GET", "/v1/tail", {"after": after})[0] == 422
    assert quick.refusal("GET", "/v1/tail", headers={"Last-Event-ID": after})[0] == 422


def expiring() -> MemoryStore:
    return MemoryStore("s1", MICROSECONDS, Retention(age=10 * SECOND))


def test_a_tail_from_what_is_gone() -> None:
    store = expiring()
    with serving(store) as served:
        served.writer.write("a", "b")
        store.trim(NOON + 100 * SECOND)
        answer = served.call("GET", "/v1/tail", {"after": 0})
        assert (answer.status_code, answer.json()["first"]) == (410, 3)


def test_a_tail_that_retention_overtakes_is_told_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    store = expiring()
    with serving(store) as served, watching(served, {"after": 0}) as tail:
        hold = threading.Lock()
        select = store.select

        def slow(query: Any) -> Any:
            with hold:
                return select(query)

        monkeypatch.setattr(store, "select", slow)
        with hold:  # it has looked how far it may go, and comes too late
            served.writer.write("a", "b")
            store.trim(NOON + 100 * SECOND)
        served.writer.take("c", arrival=NOON + 100 * SECOND)
        served.writer.sync()
        event = tail.event()
        assert event["event"] == "gone"
        assert json.loads(event["data"])["lost"] == 2
        assert tail.topics(1) == ["c"]


def test_callers_see_what_they_may_read(served: Served) -> None:
    served.add("eve", "mine/#")
    with watching(served, {"after": 0}, "eve") as tail:
        served.writer.write("yours", "mine/1", "yours", "mine/2")
        assert tail.topics(2) == ["mine/1", "mine/2"]


def test_a_tail_ends_with_the_rights_of_its_caller(served: Served) -> None:
    eve = served.add("eve", "#")
    with watching(served, token="eve") as tail:
        served.writer.write("a")
        assert tail.topics(1) == ["a"]
        eve.current = False
        served.writer.write("b")
        with pytest.raises(EOFError):
            tail.topics(1)


def test_a_tail_ends_with_the_server(served: Served) -> None:
    with watching(served) as tail:
        stopping = threading.Thread(target=served.server.stop)
        stopping.start()
        with pytest.raises(EOFError):
            tail.event()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
