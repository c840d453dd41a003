"""Retention is looked after again and again, by a thread, whatever happens."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from headwater.disk.errors import StorageError
from headwater.node.delivery.trimming import Trimming
from headwater.store.intake import Intake
from headwater.store.memory import MemoryStore
from headwater.store.retention import Retention
from headwater.store.store import Trimmed

PATIENCE = 20.0


class WatchedStore(MemoryStore):
    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("s", retention=Retention(age=1_000_000))
        self.error = error
        self.calls = threading.Semaphore(0)
        self.threads: set[str] = set()

    def trim(self, now: int) -> Trimmed:
        self.threads.add(threading.current_thread().name)
        try:
            if self.error is not None:
                raise self.error
            return super().trim(now)
        finally:
            self.calls.release()


def stored(store: MemoryStore, arrival: int) -> None:
    intake = Intake(store.next)
    intake.take(b"a", b"x", 0, "", arrival)
    taken = intake.hand_over()
    assert taken is not None
    store.append(taken)
    store.sync()


def test_old_messages_are_removed_and_that_is_told() -> None:
    store = WatchedStore()
    stored(store, time.time_ns() // 1000 - 2_000_000)
    stored(store, time.time_ns() // 1000 + 60_000_000)
    told = threading.Event()
    trimming = Trimming(store, told.set, every=60)
    trimming.start()
    assert told.wait(PATIENCE)
    trimming.stop()
    assert store.first == 2
    assert store.threads == {"headwater-trim"}


def test_it_is_done_again_and_again() -> None:
    store = WatchedStore()
    trimming = Trimming(store, lambda: pytest.fail("nothing was removed"), every=0.001)
    trimming.start()
    for _ in range(3):
        assert store.calls.acquire(timeout=PATIENCE)
    trimming.stop()


@pytest.mark.parametrize("error", [StorageError("cannot write"), RuntimeError("a bug")])
def test_a_failure_is_logged_and_not_the_end(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    store = WatchedStore(error)
    trimming = Trimming(store, lambda: None, every=0.001)
    with caplog.at_level(logging.ERROR, "headwater.store"):
        trimming.start()
        for _ in range(3):
            assert store.calls.acquire(timeout=PATIENCE)
        trimming.stop()
    assert len(caplog.records) >= 2


def test_one_that_was_never_started_can_be_stopped() -> None:
    Trimming(WatchedStore(), lambda: None).stop()


def test_with_too_little_room_it_is_done_at_once_and_given_back() -> None:
    store = WatchedStore()
    given_back = threading.Semaphore(0)
    store.give_back = given_back.release  # type: ignore[method-assign]
    low = False
    trimming = Trimming(store, lambda: None, every=3600, is_low=lambda: low)
    trimming.start()
    assert store.calls.acquire(timeout=PATIENCE)
    assert not given_back.acquire(blocking=False)
    low = True
    trimming.hurry()
    assert store.calls.acquire(timeout=PATIENCE)
    assert given_back.acquire(timeout=PATIENCE)
    trimming.stop()
