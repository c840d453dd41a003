"""What a pipeline does, on the terminal: how fast, how far, what is left; or a line every few seconds elsewhere.

It looks at the logs of the tables and asks the stores (`headwater.pipeline.jobs.status`), so it shows a pipeline of
another process as well as one of this.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.cli.fitted import Column, Fitted, Kind, number, printable
from headwater.live import Flow
from headwater.pipeline.jobs.status import Status, last_windows, look, totals

if TYPE_CHECKING:
    from headwater.pipeline.lake.folder import Lake
    from headwater.pipeline.source.settings import Settings as Source

EVERY: Final = 1.0
PLAIN_EVERY: Final = 5.0
"""Seconds between looks, and between lines when the output is not a terminal."""
OPEN_EVERY: Final = 5.0
"""Seconds between looks at windows that are not final yet."""
MOST_STORES: Final = 12
MOST_WINDOWS: Final = 8
log = logging.getLogger(__name__)


class PipelineView:
    """`look()` once a second and `render()`; or `with view.watching():` does both in a thread."""

    def __init__(self, lake: Lake, source: Source, console: Console | None = None) -> None:
        self.console = console or Console()
        self.note = ""
        """A last line, such as that it is about to stop."""
        self._lake = lake
        self._source = source
        self._flow = Flow()
        self._began: float | None = None
        self._first = 0
        self.status: Status | None = None
        self._totals: dict[str, int] = {}
        self._windows: list[dict[str, Any]] = []
        self._versions: tuple[int, int] = (-1, -1)
        self._is_open = False
        """Whether these windows are not final yet."""
        self._looked_at_silver = (-1, 0.0)

    def look(self) -> Status:
        """As it is now."""
        self.status = status = look(self._lake, self._source)
        now = time.monotonic()
        if self._began is None:  # what was there before is no flow
            self._began, self._first = now, status.rows
        self._flow.update(status.rows - self._first, now - self._began)
        versions = (_version(status, "completeness"), _version(status, "gold"))
        if versions != self._versions:
            self._totals, self._windows = totals(self._lake), last_windows(self._lake, MOST_WINDOWS)
            self._versions = versions
            self._is_open = False
        if not status.windows:
            self._look_at_open_windows(_version(status, "silver"))
        return status

    def _look_at_open_windows(self, version: int) -> None:
        """While gold has nothing, what is known of the windows that are not final yet, now and then."""
        seen, at = self._looked_at_silver
        if version == seen or time.monotonic() - at < OPEN_EVERY:
            return
        with contextlib.suppress(ImportError):  # DuckDB
            from headwater.pipeline.provisional import provisional, remembered

            rows = provisional(self._lake, remembered(self._lake)).to_pylist()
            newest = max((row["window_start"] for row in rows), default=None)
            self._windows = [row for row in rows if row["window_start"] == newest][:MOST_WINDOWS]
            self._is_open = True
        self._looked_at_silver = (version, time.monotonic())

    def render(self) -> RenderableType:
        status = self.status
        if status is None:
            return Text("the tables are being opened …", style="dim")
        parts: list[RenderableType] = [self._figures(status), Text(self._flow.bars(), style="cyan")]
        if status.stores or status.silent:
            parts.append(_stores(status))
        if self._totals:
            parts.append(_pairs([(name, f"{count:,}") for name, count in self._totals.items()], "completeness"))
        if self._windows:
            parts.append(_windows(self._windows, "not final yet" if self._is_open else "gold"))
        if self.note:
            parts.append(Text(self.note, style="yellow"))
        return Group(*parts)

    def _figures(self, status: Status) -> Text:
        return _pairs(
            [
                ("rows/s", f"{self._flow.rates[-1]:,.0f}"),
                ("landed", f"{status.rows:,}"),
                ("lag", _lag(status)),
                ("silver behind", f"{status.behind:,}"),
                ("final until", _clock(status.final_until)),
                ("windows", f"{status.windows:,}"),
            ]
        )

    def line(self) -> str:
        """The same for a file."""
        status = self.status
        if status is None:
            return "the tables are being opened"
        words = [
            f"landed {status.rows:,} ({self._flow.rates[-1]:,.0f}/s)",
            f"lag {_lag(status)}",
            f"silver behind {status.behind:,}",
            f"final until {_clock(status.final_until)} ({status.windows:,} windows)",
        ]
        if self._totals:
            words.append("completeness " + " ".join(f"{name} {count:,}" for name, count in self._totals.items()))
        words += [f"no answer from {url}" for url in status.silent]
        return ", ".join(words)

    def watching(self) -> _Watching:
        return _Watching(self)


class _Watching:
    """A thread that looks and shows, until it is left."""

    def __init__(self, view: PipelineView) -> None:
        self._view = view
        self._ended = threading.Event()
        self._live = Live(console=view.console, auto_refresh=False) if view.console.is_terminal else None
        self._thread = threading.Thread(target=self._watch, name="pipeline-view", daemon=True)

    def __enter__(self) -> _Watching:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    def _watch(self) -> None:
        said = time.monotonic()
        while not self._ended.wait(EVERY):
            if self._live is None and time.monotonic() - said < PLAIN_EVERY:
                continue
            said = time.monotonic()
            try:
                self._view.look()
            except Exception as error:  # such as a file that has just been replaced: no reason to show nothing any more
                log.debug("the tables could not be looked at: %s", error)
            if self._live is not None:
                self._live.update(self._view.render(), refresh=True)
            else:
                print(self._view.line(), flush=True)


def _version(status: Status, table: str) -> int:
    return status.tables[table].version if table in status.tables else -1


def _lag(status: Status) -> str:
    """Of all stores that are known: messages, and seconds of the slowest."""
    known = [each.lag for each in status.stores if each.lag is not None]
    if not known:
        return "unknown"
    seconds = [each.lag_seconds for each in status.stores if each.lag_seconds is not None]
    return f"{sum(known):,}" + (f" ({max(seconds):,.1f} s)" if seconds else "")


def _clock(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment:%H:%M:%S}Z"


def _pairs(pairs: list[tuple[str, str]], head: str = "") -> Text:
    text = Text(f"{head}   " if head else "", style="dim")
    for name, value in pairs:
        text.append(f"{name} ", style="dim")
        is_bad = name == "lost" and value != "0"
        text.append(f"{value}   ", style="bold red" if is_bad else "bold not dim")
    return text


def _stores(status: Status) -> Fitted:
    table = Fitted([Column("store"), *map(number, ("position", "lag", "seconds", "silver behind"))])
    for each in status.stores[:MOST_STORES]:
        lag = "does not answer" if each.lag is None else f"{each.lag:,}"
        seconds = "" if each.lag_seconds is None else f"{each.lag_seconds:,.1f}"
        table.add(each.store, f"{each.landed:,}", lag, seconds, f"{each.behind:,}")
    for url in status.silent:
        table.add(Text(f"no answer from {url}", style="red"))
    return table


def _windows(rows: list[dict[str, Any]], what: str) -> Fitted:
    start, end = rows[0]["window_start"], rows[0]["window_end"]
    heading = Column(f"{what}, {start:%H:%M:%S} to {end:%H:%M:%S}Z", Kind.TAIL)
    table = Fitted([heading, *map(number, ("count", "mean", "min", "max")), Column("flags")])
    for row in rows:
        figures = ["" if row[name] is None else f"{row[name]:.2f}" for name in ("mean", "min", "max")]
        table.add(printable(row["topic"]), str(row["count"]), *figures, Text(row["flags"], style="yellow"))
    return table
