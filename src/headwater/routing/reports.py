"""Reading a member's status report: only what is certainly meant and certainly possible is believed.

A report is JSON: `{"msgsInQueue": x, "processingTimePerMsg": y}`, also with the keys spelt `numberOfMsgsInQueue` and
`processingTimerPerMsg`. x is the number of messages that wait at the client; y the mean time in milliseconds that it
took for a message since its last report, 0 (or absent, or null) if it has done none. Other keys are ignored.
"""

from __future__ import annotations

import json
from typing import Final

LONGEST_REPORT: Final = 4_096  # bytes
MOST_WAITING: Final = 10_000_000
LONGEST_TIME: Final = 3_600_000.0  # milliseconds per message

WAITING_KEYS: Final = ("msgsInQueue", "numberOfMsgsInQueue")
TIME_KEYS: Final = ("processingTimePerMsg", "processingTimerPerMsg")


class Report:
    """A valid report, or the reason why it is none: `problem` is "" for a valid one."""

    def __init__(self, waiting: int, seconds_per_message: float | None, problem: str = "") -> None:
        self.waiting = waiting
        self.seconds_per_message = seconds_per_message
        self.problem = problem

    def __repr__(self) -> str:
        if self.problem:
            return f"Report({self.problem!r})"
        return f"Report({self.waiting} waiting, {self.seconds_per_message} s per message)"


def read_report(payload: bytes) -> Report:
    """The report in an extended PINGREQ's payload. Never raises, and takes a time that is bounded."""
    if len(payload) > LONGEST_REPORT:
        return _bad(f"longer than {LONGEST_REPORT} bytes")
    try:
        content: object = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number of thousands of digits, nested too deeply
        return _bad("not JSON")
    if not isinstance(content, dict):
        return _bad("not a JSON object")
    waiting = _number(content, WAITING_KEYS)
    if not 0.0 <= waiting <= MOST_WAITING or waiting != int(waiting):  # NaN is not between anything
        return _bad(f"the messages waiting are no whole number from 0 to {MOST_WAITING}")
    time = _number(content, TIME_KEYS, 0.0)
    if not 0.0 <= time <= LONGEST_TIME:
        return _bad(f"the time per message is not from 0 to {LONGEST_TIME:.0f} ms")
    return Report(int(waiting), time / 1000.0 if time > 0.0 else None)


def _bad(problem: str) -> Report:
    return Report(0, None, problem)


def _number(content: dict[object, object], keys: tuple[str, str], absent: float = -1.0) -> float:
    """The number under one of the keys; -1.0, which is valid for none of them, if it is not one that we can hold."""
    value = content.get(keys[0], content.get(keys[1]))
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int | float):
        return -1.0
    try:
        return float(value)
    except OverflowError:
        return -1.0
