"""AvailableNow takes a backlog of any size and ends, whatever comes meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.mqtt import available
from headwater.pipeline.mqtt.available import Available


class Broker:
    """Sends at most a window; asking takes the time that it waits, in which further messages are published: `burst` of
    them every `period` seconds."""

    def __init__(self, backlog: int, window: int, burst: int = 0, period: float = 1.0) -> None:
        self.backlog = backlog
        self.window = window
        self.burst = burst
        self.period = period
        self.released = 0
        self.now = 0.0
        self.next = 0
        self.took_at = 0.0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 5000, "it does not end"
        published = self.backlog + self.burst * int(self.now / self.period)
        reach = min(published, self.released + self.window)
        if reach > self.next:
            self.next, self.took_at = reach, self.now

    def ask(
        self, released: dict[str, Any] | None = None, beyond: int | None = None, wait: float = 0.0
    ) -> dict[str, Any]:
        self.released = self.released if released is None else released["next"]
        began = self.now
        self.pass_time(0.001 if released is None else 0.0)
        while beyond is not None and self.next <= beyond and self.now - began < wait:
            self.pass_time(0.01)
        return {"next": self.next, "released": self.released, "is_full": False, "quiet": self.now - self.took_at}


def run(broker: Broker, batch_rows: int = 10**9, batch_seconds: float = 0.2) -> int:
    """Messages that were taken, as Spark does it."""
    found = Available(broker.ask, 1.0, lambda: broker.now)
    done = 0
    while True:
        if done >= found.target:
            found.committed({"next": done})
        else:
            broker.ask(released={"next": done})
        end = min(max(done, found.target), done + batch_rows)
        if end == done:
            return done
        broker.pass_time(batch_seconds)
        done = end


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.integers(60, 700), st.integers(30, 1000))
def test_a_backlog_is_taken_whole(backlog: int, window: int, batch_rows: int) -> None:
    assert run(Broker(backlog, window), batch_rows) == backlog


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.integers(50, 200), st.integers(1, 40), st.floats(0.05, 3), st.floats(0.1, 2))
def test_it_ends_though_messages_go_on_to_come(
    backlog: int, window: int, burst: int, period: float, batch_seconds: float
) -> None:
    """Unless they fill the window faster than it is emptied: then it is a backlog."""
    if burst / period * (batch_seconds + 1.0) > window / 2:
        return
    broker = Broker(backlog, window, burst, period)
    assert run(broker, batch_seconds=batch_seconds) >= backlog
    assert broker.now < 25 + 8 * (batch_seconds + 1.0) * (backlog / window + 3)


def test_messages_that_come_faster_than_they_are_taken_do_not_hold_it_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "LONGEST_RUN", 60.0)
    broker = Broker(1000, 10, 100, 0.1)
    run(broker)
    assert 60 < broker.now < 100
