"""Keep alive on one link: pings when it is quiet, reports when they are due, and the verdict that nobody is there.

Theory. Three times matter. Something must be sent within the keep alive interval [MQTT-3.1.2-20]; a ping also goes out
when nothing was received for so long, since only an answer shows that the server lives. A report, where the server
grants them, is due every `report_every` seconds, or early, but not within `shortest` of the last one. And a ping must
be followed by something, anything, within the keep alive interval, or the server is given up; except while we do not
read ourselves: then its answers wait in front of our door, and its silence means nothing.

One timer serves all three.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headwater.client.link import Link
from headwater.client.ping import PingSender
from headwater.wire.packets import Pingreq
from headwater.wire.status import StatusReport, encode_status

log: Final = logging.getLogger("headwater.client")

FAR: Final = 86_400.0
"""Seconds until the next look when nothing is to be done."""
IN_TIME: Final = 0.95
"""Of the keep alive interval, after which we act: it must not be exceeded, and timers are late."""


def report_interval(sender: PingSender, keep_alive: float) -> float:
    """The longest time between two reports."""
    return min(sender.interval, keep_alive * IN_TIME) if keep_alive else sender.interval


class Heartbeat:
    """`keep_alive` 0 means none. With a `sender`, which the server must have granted, pings are reports."""

    def __init__(
        self,
        link: Link,
        keep_alive: float,
        give_up: Callable[[], None],
        sender: PingSender | None = None,
        shortest: float = 0.0,
    ) -> None:
        self._link = link
        self._patience = keep_alive * IN_TIME
        self._give_up = give_up
        self._sender = sender
        self._shortest = shortest
        self._report_every = FAR if sender is None else max(report_interval(sender, keep_alive), shortest)
        self._loop = asyncio.get_running_loop()
        self._pinged_at = self._loop.time()
        self._unanswered_since = 0.0
        self._is_early = False
        self._timer = self._loop.call_at(self._next_look(), self._look)
        self.load_changed()  # since the last connection

    def stop(self) -> None:
        self._timer.cancel()
        self._sender = None

    def load_changed(self) -> None:
        """The queue or the processing time has changed."""
        if self._sender is not None and not self._is_early and self._sender.is_due():
            self._is_early = True
            self._timer.cancel()
            # Not at once: more may change within this turn of the loop.
            self._timer = self._loop.call_at(self._pinged_at + self._shortest, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self._is_unanswered() and now >= self._unanswered_since + self._patience:
            self._give_up()
            return
        if self._is_early or now >= self._next_ping():
            self._ping(now)
        self._timer = self._loop.call_at(self._next_look(), self._look)

    def _is_unanswered(self) -> bool:
        is_silent = self._link.received_at < self._unanswered_since
        return is_silent and self._patience > 0 and not self._link.is_paused

    def _next_ping(self) -> float:
        due = self._pinged_at + self._report_every
        if self._patience:
            quiet_since = min(self._link.sent_at, max(self._link.received_at, self._pinged_at))
            due = min(due, quiet_since + self._patience)
        return due

    def _next_look(self) -> float:
        due = self._next_ping()
        if self._is_unanswered():
            due = min(due, self._unanswered_since + self._patience)
        return due

    def _ping(self, now: float) -> None:
        self._is_early = False
        self._pinged_at = now
        if self._link.received_at >= self._unanswered_since:
            self._unanswered_since = now
        report = None if self._sender is None else _report_of(self._sender)
        if report is None:
            self._link.send(Pingreq())
        else:
            log.debug("sending %s", report)
            self._link.write(encode_status(report))


def _report_of(sender: PingSender) -> StatusReport | None:
    """A mistake in the application's sender must not cost the connection; the ping then says nothing."""
    try:
        return StatusReport(sender.payload(), sender.user_properties())
    except Exception:
        log.exception("the ping sender failed")
        return None
