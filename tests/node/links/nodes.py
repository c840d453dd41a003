"""Two brokers in one event loop, on both kinds of planes, and a door of the one that the other dials."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.links.contexts import LinkContexts
from headwater.node.links.dialing import Dialer
from headwater.node.links.listening import LinkDoor
from headwater.node.links.resolving import Resolver
from headwater.node.links.settings import ClusterSettings, ClusterTls
from headwater.node.plane import selector
from headwater.node.plane.channel import Channel, Peer
from headwater.node.protocol.server import Server
from tests.node.transports.serving import HOST, PATIENCE, Authority

FOR_NODES: dict[str, Any] = {"name": "test", "host": HOST, "port": 0}


class Recorder(Peer):
    """What was said to one end of a link, and how often it ended."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.got = b""
        self.losses = 0

    def feed(self, data: bytes) -> None:
        self.got += data

    def lost(self) -> None:
        assert self.channel.fd < 0
        self.losses += 1

    def written(self) -> None:
        pass

    def failed(self, why: str) -> None:
        raise AssertionError(why)


class Hall:
    """Who came in by a door."""

    def __init__(self) -> None:
        self.guests: list[Recorder] = []

    def accepted(self, channel: Channel) -> Peer:
        assert not isinstance(channel.peer, Recorder)
        self.guests.append(Recorder(channel))
        return self.guests[-1]


class Call:
    """How dialing ended."""

    def __init__(self, dialer: Dialer, address: str) -> None:
        self.peer: Recorder | None = None
        self.reason: str | None = None
        self.began = time.monotonic()
        dialer.dial(address, self._done)

    def _done(self, channel: Channel | None, reason: str) -> None:
        assert self.reason is None, "told twice"
        self.reason = reason
        self.took = time.monotonic() - self.began
        if channel is not None:
            channel.peer = self.peer = Recorder(channel)

    @property
    def is_over(self) -> bool:
        return self.reason is not None


def run(body: Coroutine[Any, Any, None]) -> None:
    selector.run(asyncio.wait_for(body, 4 * PATIENCE))


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def two_servers() -> AsyncIterator[list[Server]]:
    """The first has the loop's own plane, the second is a guest there."""
    config = Config(host=HOST, port=0, sys_interval=0)
    async with Broker(config) as one, Broker(config) as two:
        yield [one.server, two.server]
        assert one.server.stats.failures == two.server.stats.failures == 0


@contextlib.asynccontextmanager
async def door_of(server: Server, contexts: LinkContexts | None = None, **settings: Any) -> AsyncIterator[LinkDoor]:
    """A door with a `Hall` behind it, which `hall_of` finds."""
    hall = Hall()
    door = LinkDoor(server, ClusterSettings(**{**FOR_NODES, **settings}), contexts, hall.accepted)
    halls[door] = hall
    door.open()
    door.start()
    try:
        yield door
    finally:
        door.close()
        for guest in hall.guests:
            server.lost(guest.channel)
        assert [guest.losses for guest in hall.guests] == [1] * len(hall.guests)
        del halls[door]


halls: dict[LinkDoor, Hall] = {}


async def dialed(server: Server, address: str, contexts: LinkContexts | None = None) -> Call:
    call = Call(Dialer(server, contexts, Resolver()), address)
    await until(lambda: call.is_over)
    return call


async def say(server: Server, channel: Channel, data: bytes) -> None:
    with server.turn():
        channel.write(data)


@contextlib.contextmanager
def uncollected(*kinds: type) -> Iterator[Callable[[], list[object]]]:
    """Without a garbage collector; gives what is left of these kinds that was not there before."""
    gc.collect()
    gc.disable()
    of_others = {id(each) for each in gc.get_objects() if isinstance(each, kinds)}
    try:
        yield lambda: [each for each in gc.get_objects() if isinstance(each, kinds) and id(each) not in of_others]
    finally:
        gc.enable()


def tls(authority: Authority, node: str, **settings: Any) -> LinkContexts:
    """The contexts of a node of this id."""
    return LinkContexts(ClusterTls(**authority.client(node, f"{node}.example.org"), ca=authority.file, **settings))


def written(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)
