"""Deletions that a home broker is asked for, without any broker (with one: test_retained.py)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.message import Message
from headwater.node.proxy import doubts
from headwater.node.proxy.channel import HomeChannel
from headwater.node.proxy.doubts import AT_ONCE, MOST_TRIES, Doubts


class Readings:
    """In place of `Reader`: what is asked, and who is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        self.calls: list[Callable[[Any, str], None]] = []
        self.later: list[Callable[[], None]] = []
        self.told: list[str] = []
        self.deleted: list[str] = []
        own = SimpleNamespace(client_id="p", version=4, username=None, password=None)
        timers = SimpleNamespace(at=lambda when, call: self.later.append(call))
        server = SimpleNamespace(hot=SimpleNamespace(now=0.0), timers=timers, lost=lambda channel: None)
        self.home = SimpleNamespace(
            connection=SimpleNamespace(connect=own),
            caller=SimpleNamespace(call=self.calls.append),
            server=server,
            tell=lambda what, text: self.told.append(text),
        )
        monkeypatch.setattr(doubts, "Reader", self.read)
        self.doubts = Doubts(cast(Any, self.home), self.deleted.append)

    def read(self, home: object, channel: object, connect: object, asked: list[str], found: Any, done: Any) -> Any:
        self.asked.append(asked)
        self.found, self.done = found, done
        return SimpleNamespace(cancel=lambda: None)

    def connects(self, why: str = "") -> None:
        self.calls.pop()(None if why else cast(HomeChannel, object()), why)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    return Readings(monkeypatch)


def test_what_is_there_is_not_deleted(readings: Readings) -> None:
    for topic in ("a", "b", "c"):
        readings.doubts.add(topic)
    readings.connects()
    assert readings.asked == [["a", "b", "c"]]
    readings.found(Message("b", b"1", 0, True))
    readings.done("")
    assert readings.deleted == ["a", "c"]
    assert not readings.doubts and not readings.calls


def test_one_question_at_a_time_with_so_many_topics(readings: Readings) -> None:
    for number in range(AT_ONCE + 1):
        readings.doubts.add(f"t/{number}")
    assert len(readings.calls) == 1
    readings.connects()
    assert len(readings.asked[0]) == AT_ONCE
    readings.done("")
    readings.connects()
    assert readings.asked[1] == [f"t/{AT_ONCE}"]


def test_without_an_answer_nothing_is_deleted_and_it_is_not_asked_for_ever(readings: Readings) -> None:
    readings.doubts.add("a")
    for number in range(MOST_TRIES):
        if number % 2:
            readings.connects("nobody is there")
        else:
            readings.connects()
            readings.done("refused with 0x87")
        for again in readings.later:
            again()
        readings.later.clear()
    assert not readings.calls and not readings.doubts
    assert readings.deleted == []
    assert len(readings.told) == 1


def test_a_home_broker_that_goes_is_asked_no_more(readings: Readings) -> None:
    readings.doubts.add("a")
    readings.connects()
    readings.doubts.down()
    assert not readings.doubts
    readings.doubts.add("b")
    readings.doubts.down()
    readings.connects()
    readings.doubts.add("c")
    readings.connects()
    readings.done("")
    assert readings.deleted == ["c"]
