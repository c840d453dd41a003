"""Scripts of what a few clients do to a broker, as bytes that can be kept and damaged, and a broker in memory for them.

A script is a byte that chooses the settings, and then steps. A step is a byte (two bits say which client, two what it
does, four how much of it) and, if the client sends, a length of two bytes and the data. Any bytes are a script: what is
too short is padded by nothing, so that damage always means something.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.node.plane.loop import Plane
from headwater.node.protocol.server import Server
from headwater.session.connection import CONNECTED

CLIENTS: Final = 4
SEND: Final = 0
WAIT: Final = 1
STALL: Final = 2
GO: Final = 3
TIMES: Final = (0.01, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 10_000.0)
LONGEST: Final = 30_000
"""Bytes of a script: longer ones are slow, and find no more."""

CONFIGS: Final = (
    Config(sys_interval=0),
    Config(
        sys_interval=0,
        max_inflight=2,
        max_queued_messages=3,
        max_queue_memory=100_000,
        outbound_buffer=4096,
        receive_maximum=2,
        topic_alias_maximum=2,
        max_packet_size=20_000,
        max_subscriptions=4,
        max_retained=3,
        max_connections=3,
    ),
    Config(sys_interval=0, max_inflight=1, max_queued_messages=2, queue_full="drop_oldest", overlapping="separate"),
    Config(sys_interval=0, max_inflight=1, max_queued_messages=1, queue_full="disconnect", outbound_buffer=4096),
)


class ScriptError(Exception):
    """A broker that did what it must not."""


class Step(NamedTuple):
    client: int
    kind: int
    amount: int
    data: bytes = b""


@dataclass
class Script:
    settings: int
    steps: list[Step]

    @classmethod
    def from_bytes(cls, data: bytes) -> Script:
        steps: list[Step] = []
        at = 1
        while at < len(data):
            head = data[at]
            at += 1
            sent = b""
            if head >> 2 & 3 == SEND:
                size = int.from_bytes(data[at : at + 2], "little")
                sent = data[at + 2 : at + 2 + size]
                at += 2 + len(sent)
            steps.append(Step(head & 3, head >> 2 & 3, head >> 4, sent))
        return cls(data[0] if data else 0, steps)

    def to_bytes(self) -> bytes:
        parts = [bytes((self.settings,))]
        for step in self.steps:
            parts.append(bytes((step.client | step.kind << 2 | step.amount << 4,)))
            if step.kind == SEND:
                parts.append(len(step.data).to_bytes(2, "little") + step.data)
        return b"".join(parts)


class _Socket:
    """Takes `room` bytes and then blocks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.room = 1 << 60

    def fileno(self) -> int:
        return self.descriptor

    def recv(self, size: int) -> bytes:
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        taken = min(self.room, len(data))
        if taken == 0:
            raise BlockingIOError
        self.room -= taken
        return taken

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Plane(Plane):
    def add(self, channel: Channel) -> None:
        self.newest = channel

    def watch(self, channel: Channel, readable: bool, writable: bool) -> None:
        if channel.fd < 0:
            raise ScriptError("a descriptor that was closed is waited for")

    def remove(self, channel: Channel) -> None:
        pass


class Stage:
    """A broker in memory on which a script is played."""

    def __init__(self, settings: int) -> None:
        hooks = Hooks()
        self.server = Server(CONFIGS[settings >> 1 & 3], hooks)
        self.server.plane = self._plane = _Plane(self.server.hot, self.server.timers)
        self.server.hot.now = 1000.0
        self.server.hot.enabled = settings & 1 == 0
        self._clients: list[tuple[Channel, _Socket] | None] = [None] * CLIENTS
        self._descriptors = 10

    def play(self, step: Step) -> None:
        if step.kind == WAIT:
            self.server.hot.now += TIMES[step.amount & 7]
            self._turn()
            return
        channel, connection = self._client(step.client)
        if step.kind == SEND:
            if step.data:
                self.server.hot.feed(channel, step.data)
        elif step.kind == GO:
            self.server.lost(channel)
        else:
            connection.room = 0 if step.amount == 0 else 1 << 2 * step.amount
            while channel.fd >= 0 and channel.backlog_size and connection.room:
                self._plane._write(channel)
        self._turn()

    def _client(self, number: int) -> tuple[Channel, _Socket]:
        """The client, or a new one if it has gone."""
        client = self._clients[number]
        if client is None or client[0].fd < 0:
            self._descriptors += 1
            connection = _Socket(self._descriptors)
            self.server.accept(cast(socket.socket, connection), "fuzz", True)
            client = self._clients[number] = (self._plane.newest, connection)
        return client

    def _turn(self) -> None:
        hot = self.server.hot
        if self.server.timers.soonest <= hot.now:
            self.server.timers.run(hot.now)
        hot.background.finish()
        while hot.open or hot.dirty or hot.changed:
            hot.flush()
        self._check()

    def _check(self) -> None:
        server = self.server
        if server.stats.failures or server.timers.failures:
            raise ScriptError("dealing with a packet or timer raised")
        if server.budget.used < 0:
            raise ScriptError(f"{server.budget.used} bytes are in use")
        if server.attaching.connected != sum(channel.state == CONNECTED for channel in server.channels):
            raise ScriptError("connections are counted wrongly")


def play(data: bytes, after_each: Callable[[Server], None] | None = None) -> None:
    """Play a script; raises ScriptError, or whatever else the broker let through."""
    script = Script.from_bytes(data[:LONGEST])
    stage = Stage(script.settings)
    for step in script.steps:
        stage.play(step)
        if after_each is not None:
            after_each(stage.server)
