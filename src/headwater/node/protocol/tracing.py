"""The packets of one client as they come and go, for those who look for a fault.

A trace is two hooks, there only while somebody traces: at other times it costs nothing. Meanwhile all packets leave the
hot path (node/hooks.py), so traces end by themselves, by time and by number of packets. What a packet says is shown
without what is secret, and payloads by their size only.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, Final

from headwater.node.hooks import Hooks
from headwater.session.connection import Connection
from headwater.wire.packets import Connect, Packet

log = logging.getLogger("headwater.trace")

MOST_TRACES: Final = 4
MOST_WAITING: Final = 1000
"""Packets that wait for who reads the trace; further ones are counted and left out."""
SECRETS: Final = ("password", "authentication_data")

Record = dict[str, Any]


class TooManyTraces(Exception):
    """As many traces are going on as may."""


def describe(packet: Packet) -> Record:
    """What a packet says, without what is absent, secret or payload."""
    return {"packet": type(packet).__name__.upper(), **_fields(packet)}


def _fields(value: Any) -> Record:
    shown: Record = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if content is not None:
            shown[field.name] = "…" if field.name in SECRETS else _shown(content)
    return shown


def _shown(content: Any) -> Any:
    if isinstance(content, bytes):
        return {"bytes": len(content)}
    if isinstance(content, list | tuple):
        return [_shown(each) for each in content]
    return _fields(content) if dataclasses.is_dataclass(content) else content


class Trace:
    """`async for record in trace` until its end; a last record says why it ended and how many were left out."""

    def __init__(self, client_id: str, packets: int, ended: Callable[[Trace], None]) -> None:
        self.client_id = client_id
        self._left = packets
        self._ended = ended
        self._records: deque[Record] = deque()
        self._wake = asyncio.Event()
        self._left_out = 0
        self._why = ""
        self._is_said = False

    def add(self, direction: str, client: Connection, packet: Packet) -> None:
        # A CONNECT comes before its connection has a name.
        name = packet.client_id if isinstance(packet, Connect) else client.client_id
        if name != self.client_id or self._why:
            return
        if len(self._records) < MOST_WAITING:
            moment = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._records.append({"time": moment, "direction": direction, "client_id": name, **describe(packet)})
        else:
            self._left_out += 1
        self._left -= 1
        self._wake.set()
        if self._left == 0:
            self.end("as many packets as asked for")

    def end(self, why: str) -> None:
        if not self._why:
            self._why = why
            self._ended(self)
            self._wake.set()

    async def taken(self) -> list[Record]:
        """What has come since the last time, one record at least; nothing: it has ended, and that was said."""
        if self._is_said:
            return []
        await self._wake.wait()
        self._wake.clear()
        found = list(self._records)
        self._records.clear()
        if self._why:
            self._is_said = True
            found.append({"ended": self._why, "left_out": self._left_out})
        return found

    async def __aiter__(self) -> AsyncIterator[Record]:
        try:
            while records := await self.taken():
                for record in records:
                    yield record
        finally:
            self.end("nobody reads it")


class Tracing:
    """The traces of one broker."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._traces: dict[Trace, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, client_id: str, seconds: float, packets: int) -> Trace:
        """From now on; raises TooManyTraces. Who starts one must read it, or end it."""
        if len(self._traces) >= MOST_TRACES:
            raise TooManyTraces
        if not self._traces:
            self._hooks.add("packet_read", self._read)
            self._hooks.add("packet_sent", self._sent)
        trace = Trace(client_id, packets, self._ended)
        self._traces[trace] = asyncio.get_running_loop().call_later(seconds, trace.end, "the time is over")
        return trace

    def start_to_log(self, client_id: str, seconds: float, packets: int) -> None:
        """The same, into the log."""
        trace = self.start(client_id, seconds, packets)
        task = asyncio.get_running_loop().create_task(_log(trace))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for trace in list(self._traces):
            trace.end("the broker stops")

    def _ended(self, trace: Trace) -> None:
        self._traces.pop(trace).cancel()
        if not self._traces:
            self._hooks.remove("packet_read", self._read)
            self._hooks.remove("packet_sent", self._sent)

    def _read(self, packet: Packet, client: Connection) -> None:
        for trace in list(self._traces):
            trace.add("in", client, packet)

    def _sent(self, client: Connection, packet: Packet) -> None:
        for trace in list(self._traces):
            trace.add("out", client, packet)


async def _log(trace: Trace) -> None:
    async for record in trace:
        log.info("%s: %s", trace.client_id, {name: value for name, value in record.items() if name != "client_id"})
