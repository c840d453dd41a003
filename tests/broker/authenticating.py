"""`python -m tests.broker.authenticating PORT`: a broker with enhanced authentication, for the scenarios of AUTH.

Its method "words" accepts the data `password` at once, asks `question` when it gets `hello` (or nothing), accepts the
answer `answer`, and refuses everything else. Clients without a method are let in as they are, unless they call
themselves `nobody`.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Challenge, Refusal
from headwater.node.plane.selector import run
from headwater.wire.packets import Connect


def words(client: object, method: str, data: bytes | None, reauthenticate: bool) -> Challenge | None:
    """The guard: one step of the exchange, the same at the start and later."""
    if method != "words":
        return None
    if data in (None, b"hello"):
        return Challenge(b"question")
    if data in (b"password", b"answer"):
        return Challenge(b"welcome back" if reauthenticate else b"welcome", done=True)
    raise Refusal(0x87, "these are not the words")


def somebody(client: object, connect: Connect) -> None:
    """The guard of client identifiers."""
    if connect.client_id == "nobody":
        raise Refusal(0x85, "that is no name")


async def serve(port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    broker = Broker(Config(host="127.0.0.1", port=port))
    broker.hooks.add("auth_packet", words)
    broker.hooks.add("connect", somebody)
    async with broker:
        await stop.wait()


if __name__ == "__main__":
    run(serve(int(sys.argv[1])))
