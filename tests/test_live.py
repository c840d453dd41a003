from __future__ import annotations

import io
import logging
import sys

import pytest
from rich.console import Console

from headwater.live import LiveView
from headwater.node.protocol.statistics import Statistics


def shown(view: LiveView, numbers: Statistics) -> str:
    console = Console(file=io.StringIO(), width=160)
    with console.capture() as captured:
        console.print(view.render(numbers))
    return captured.get()


def row(text: str, name: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return line.split()


def test_it_shows_what_the_broker_holds() -> None:
    held = {"connections": 12_345, "sessions": 2, "subscriptions": 3, "retained": 4, "queued": 5, "dropped": 6}
    text = shown(LiveView(), Statistics(uptime=3725, **held))
    first = " ".join(text.splitlines()[0].split())
    assert first.startswith("up 1:02:05 ")
    for name, number in held.items():
        assert f" {name} {number:,}" in first


def test_rates_are_differences_over_the_brokers_own_time() -> None:
    view = LiveView()
    shown(view, Statistics(uptime=10.0, messages_received=1000, bytes_received=5000))
    text = shown(view, Statistics(uptime=12.0, messages_received=5000, bytes_received=25_000, messages_sent=8))
    assert row(text, "in")[1:7] == ["2,000", "10.0", "kB", "5,000", "25.0", "kB"]
    assert row(text, "out")[1:4] == ["4", "0", "B"]


def test_the_last_minute_as_bars() -> None:
    view = LiveView()
    for second in range(1, 4):
        text = shown(view, Statistics(uptime=float(second), messages_received=[0, 70, 100, 100][second]))
    assert row(text, "in")[-1].endswith("▁█▄▁")


def test_without_a_terminal_it_is_a_line_now_and_then() -> None:
    output = io.StringIO()
    with LiveView(Console(file=output, width=200)) as view:
        for second in range(25):
            view.update(Statistics(uptime=float(second), connections=7, messages_received=100 * second))
    assert output.getvalue().splitlines() == [
        "up 0:00:10  connections 7  in 100/s  out 0/s  queued 0  dropped 0",
        "up 0:00:20  connections 7  in 100/s  out 0/s  queued 0  dropped 0",
    ]


def test_log_lines_appear_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    try:
        with LiveView(Console(file=terminal, force_terminal=True, width=120)) as view:
            view.update(Statistics(uptime=1.0))
            assert handler.stream is not terminal
            logging.getLogger("headwater").warning("something happened")
        assert handler.stream is terminal
    finally:
        logging.getLogger().removeHandler(handler)
    assert "something happened" in terminal.getvalue()
    assert "connections" in terminal.getvalue().split("something happened")[1]
