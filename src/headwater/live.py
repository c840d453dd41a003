"""The live view of a broker: what it holds, and how fast messages flow, once a second.

It knows the broker only by the numbers it is given. Rates are differences of totals over the broker's own uptime, so
a late update does not show as a jump.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.metric import metrics_of
from headwater.node.protocol.statistics import Statistics

BARS: Final = "▁▂▃▄▅▆▇█"
REMEMBERED: Final = 60
UNKNOWN: Final = "–"
PLAIN_EVERY: Final = 10.0
"""Seconds between lines when the output is not a terminal."""
HELD: Final = tuple(name for name, metric in metrics_of(Statistics).items() if metric.in_top)
FLOWS: Final = {metric.flow: name for name, metric in metrics_of(Statistics).items() if metric.flow is not None}
"""By row and column; a row has both messages and bytes."""


class Flow:
    """One direction's rate, and what it was in the last minute."""

    def __init__(self) -> None:
        self._total = 0
        self._at = 0.0
        self.is_known = True
        """A rate needs two samples. The first of a flow that began before we looked says none."""
        self.rates: deque[float] = deque([0.0] * REMEMBERED, REMEMBERED)

    def begin(self, total: int, at: float) -> None:
        """The first sample of a flow that others have watched before."""
        self._total, self._at, self.is_known = total, at, False

    def update(self, total: int, at: float) -> float:
        if at > self._at:
            self.is_known = True
            self.rates.append((total - self._total) / (at - self._at))
            self._total, self._at = total, at
        return self.rates[-1]

    def rate(self) -> str:
        """For people."""
        return f"{self.rates[-1]:,.0f}" if self.is_known else UNKNOWN

    def bars(self) -> str:
        highest = max(self.rates) or 1.0
        return "".join(BARS[int(rate / highest * (len(BARS) - 1))] for rate in self.rates)


class LiveView:
    """`with view:` shows it; `view.update(statistics)` once a second keeps it true. Lines that others print to
    standard output and error appear above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._flows = {name: Flow() for name in FLOWS.values()}
        self._last_line_at = 0.0
        self._redirected: list[tuple[logging.StreamHandler[Any], Any]] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            before = sys.stderr
            self._live.start()
            # Rich has put itself in the place of standard error, but a log handler remembers the old one.
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                    self._redirected.append((handler, handler.setStream(sys.stderr)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handler, stream in self._redirected:
            handler.setStream(stream)
        self._redirected.clear()
        if self._live is not None:
            self._live.stop()

    def begin(self, statistics: Statistics) -> None:
        """Take the first sample of a broker that has been running for a while: its rates are known from the next on."""
        for name, flow in self._flows.items():
            flow.begin(getattr(statistics, name), statistics.uptime)

    @property
    def has_rates(self) -> bool:
        return all(flow.is_known for flow in self._flows.values())

    def update(self, statistics: Statistics) -> None:
        view = self.render(statistics)
        if self._live is not None:
            self._live.update(view, refresh=True)
        elif statistics.uptime - self._last_line_at >= PLAIN_EVERY:
            self._last_line_at = statistics.uptime
            self._console.print(self._line(statistics), highlight=False, soft_wrap=True)

    def render(self, statistics: Statistics) -> RenderableType:
        """What is on the screen; the rates are those since the last call."""
        for name, flow in self._flows.items():
            flow.update(getattr(statistics, name), statistics.uptime)
        return Group(self._holdings(statistics), self._table(statistics))

    def _holdings(self, statistics: Statistics) -> Text:
        text = Text(f"up {_duration(statistics.uptime)}", style="dim")
        for name in HELD:
            number = getattr(statistics, name)
            text.append(f"   {name} ", style="dim")
            text.append(f"{number:,}", style="bold red" if name == "dropped" and number else "bold")
        return text

    def _table(self, statistics: Statistics) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("", style="dim")
        for heading in ("messages/s", "bytes/s", "messages", "bytes"):
            table.add_column(heading, justify="right", header_style="dim", no_wrap=True, min_width=len(heading))
        # Where there is little room, this column gives way.
        table.add_column("messages/s in the last minute", header_style="dim", style="cyan", overflow="crop", ratio=1)
        for row in dict.fromkeys(row for row, _ in FLOWS):
            messages, amount = FLOWS[row, "messages"], FLOWS[row, "bytes"]
            flow, bytes_flow = self._flows[messages], self._flows[amount]
            rates = (flow.rate(), size(bytes_flow.rates[-1]) if bytes_flow.is_known else UNKNOWN)
            totals = (f"{getattr(statistics, messages):,}", size(getattr(statistics, amount)))
            table.add_row(row, *rates, *totals, flow.bars())
        return table

    def _line(self, statistics: Statistics) -> str:
        came, went = (self._flows[FLOWS[row, "messages"]].rates[-1] for row in ("in", "out"))
        return (
            f"up {_duration(statistics.uptime)}  connections {statistics.connections}  "
            f"in {came:,.0f}/s  out {went:,.0f}/s  queued {statistics.queued}  dropped {statistics.dropped}"
        )


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"


def size(amount: float) -> str:
    """Of so many bytes, for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
