"""The relay of a proxy alone: clients to a broker and back, with the tap, and nobody who wants to know what it hears.

`python -m headwater_lab.relay --broker HOST:PORT --listen HOST:PORT` shows what passing bytes on costs and changes,
without a cluster behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.guest import GuestPlane
from headwater.node.plane.loop import EpollPlane
from headwater.node.plane.selector import HotEventLoop, run
from headwater.node.protocol.server import Server
from headwater.node.proxy.front import Front
from headwater.node.proxy.tap import TappedClient, Watcher
from headwater.node.transports.listener import Listener
from headwater.node.transports.settings import ListenerSettings
from headwater.peering.membership.seeds import Seed, parse_seed


class Nobody(Watcher):
    """Does nothing with what it is told."""

    def opened(self, client: TappedClient) -> None:
        pass

    def subscribing(
        self, client: TappedClient, packet_id: int, filters: list[tuple[str, int]], release: Callable[[], None]
    ) -> bool:
        return False

    def unsubscribed(self, client: TappedClient, filters: list[str]) -> None:
        pass

    def retained(self, client: TappedClient, topic: str, payload: bytes | None, qos: int) -> None:
        pass

    def closed(self, client: TappedClient, session_ended: bool) -> None:
        pass


async def serve(broker: Seed, place: Seed) -> None:
    """Until a signal says to end."""
    server = Server(Config(), Hooks())
    loop = asyncio.get_running_loop()
    if isinstance(loop, HotEventLoop):
        plane = loop.hot_selector.plane = EpollPlane(server.hot, server.timers, loop.hot_selector.epoll)
        server.plane = plane
    else:
        server.plane = GuestPlane(server.hot, server.timers, loop)
    listener = Listener(ListenerSettings(host=place.host, port=place.port))
    listener.open()
    front = Front(server, [listener], broker, Nobody())
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)
    await front.start()
    await ended.wait()
    front.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="headwater_lab.relay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", type=lambda text: parse_seed(text, 1883), required=True)
    parser.add_argument("--listen", type=lambda text: parse_seed(text, 1883), required=True)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    run(serve(options.broker, options.listen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
