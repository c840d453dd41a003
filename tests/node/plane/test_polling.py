"""Waiting on epoll by events.c is as waiting by select.epoll."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwater.node.plane import polling
from tests.node.extension import built

Poll = Callable[[float, int], list[tuple[int, int]]]
SOURCE = Path(polling.__file__).with_name("events.c")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built(SOURCE, tmp_path_factory.mktemp("extension"))


@pytest.fixture
def epoll() -> Iterator[select.epoll]:
    with select.epoll() as made:
        yield made


@pytest.fixture(params=["select", "events"])
def poll(request: pytest.FixtureRequest, epoll: select.epoll, events: ModuleType) -> Iterator[Poll]:
    before = polling.events
    polling.events = events if request.param == "events" else None
    try:
        yield polling.poll_of(epoll)
    finally:
        polling.events = before


@contextlib.contextmanager
def pipes(count: int) -> Iterator[list[tuple[int, int]]]:
    made = [os.pipe() for _ in range(count)]
    try:
        yield made
    finally:
        for end in (each for pair in made for each in pair):
            with contextlib.suppress(OSError):
                os.close(end)


@contextlib.contextmanager
def on_alarm(handler: Callable[..., None], seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_descriptors_and_masks(poll: Poll, epoll: select.epoll) -> None:
    with pipes(3) as [(first, into), (second, into_second), (third, into_third)]:
        for each in (first, second, third):
            epoll.register(each, select.EPOLLIN)
        epoll.register(into_third, select.EPOLLOUT)
        os.write(into, b"x")
        os.close(into_second)
        expected = [(first, select.EPOLLIN), (second, select.EPOLLHUP), (into_third, select.EPOLLOUT)]
        assert sorted(poll(-1.0, 64)) == sorted(expected)
        assert len(poll(-1.0, 2)) == 2


def test_more_than_there_is_room_for_come_in_turns(poll: Poll, epoll: select.epoll) -> None:
    with pipes(300) as made:
        for _, into in made:
            epoll.register(into, select.EPOLLOUT | select.EPOLLET)
        found = poll(0.0, 1000) + poll(0.0, 1000)
        assert {fd for fd, _ in found} == {into for _, into in made}


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.0021, 0.03])
def test_nothing_comes_and_nobody_is_woken_too_early(poll: Poll, seconds: float) -> None:
    began = time.monotonic()
    assert poll(seconds, 64) == []
    assert time.monotonic() - began >= seconds


def test_others_run_while_it_waits(poll: Poll, epoll: select.epoll) -> None:
    with pipes(1) as [(out, into)]:
        epoll.register(out, select.EPOLLIN)
        writer = threading.Thread(target=os.write, args=(into, b"x"))
        timer = threading.Timer(0.01, writer.start)
        timer.start()
        assert poll(15.0, 64) == [(out, select.EPOLLIN)]
        timer.join()
        writer.join()


def test_a_signal_is_dealt_with_and_it_waits_on(poll: Poll) -> None:
    came: list[float] = []
    began = time.monotonic()
    with on_alarm(lambda *_: came.append(time.monotonic() - began), 0.01):
        assert poll(0.05, 64) == []
    assert came and came[0] < 0.05 <= time.monotonic() - began


def test_what_a_signal_raises_ends_it(poll: Poll) -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    with on_alarm(stop, 0.01), pytest.raises(Stop):
        poll(-1.0, 64)


def test_what_is_no_epoll_any_more_is_an_error(poll: Poll, epoll: select.epoll) -> None:
    epoll.close()
    with pytest.raises((OSError, ValueError)):
        poll(0.0, 64)


def test_what_makes_no_sense_is_refused(events: ModuleType, epoll: select.epoll) -> None:
    with pytest.raises(TypeError):
        events.Events("no epoll")
    made = events.Events(epoll)
    for wrong in ((), (0.0,), ("soon", 1), (0.0, "many")):
        with pytest.raises(TypeError):
            made.poll(*wrong)
    with pytest.raises(ValueError):
        made.poll(0.0, 0)
