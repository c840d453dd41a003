"""A pytest plugin (`-p tests.processor_time`): which tests, and which files of them, take the most processor time.

CI is bound by the processor, and on a machine that does other things too, seconds on the clock say little. Counted are
this process and all its descendants, those that have ended and were waited for as well, so that a broker or a Java
counts for the test that it worked for; what starts or ends a Java of the whole process counts for the first or last.
With xdist each worker writes to the file of HEADWATER_TIMES, a line for each test: seconds, seconds on the clock, name.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
MOST = 40


class ProcessorTime:
    def __init__(self, lines: Path | None) -> None:
        self._lines = lines
        self._tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin, clock = used(), time.monotonic()
        result = yield
        seconds = used() - begin
        self._tests[item.nodeid] += seconds  # type: ignore[assignment] # a Counter counts fractions as well
        if self._lines is not None:
            with self._lines.open("a") as file:
                file.write(f"{seconds:.2f}\t{time.monotonic() - clock:.2f}\t{item.nodeid}\n")
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: Counter[str] = Counter()
        for name, seconds in self._tests.items():
            files[name.partition("::")[0]] += seconds
        for title, counted in (("files", files), ("tests", self._tests)):
            terminalreporter.section(f"seconds of the processor, by {title}")
            for name, seconds in counted.most_common(MOST):
                terminalreporter.write_line(f"{seconds:8.2f} {name}")


def used() -> float:
    """Seconds so far, of this process and its descendants."""
    total = sum(os.times()[:4])
    waiting = _children(os.getpid())
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / TICKS
            waiting += _children(pid)
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def pytest_configure(config: pytest.Config) -> None:
    lines = os.environ.get("HEADWATER_TIMES")
    config.pluginmanager.register(ProcessorTime(Path(lines) if lines else None), "processor_time_counted")
