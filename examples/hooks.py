"""A guard, a filter and a watcher: python examples/hooks.py [port]

Only alice may connect, with the password "wonderland", and only below her own topic may she publish; every message is
stamped with its publisher's name; what goes through is printed. All events are in docs/hooks.md.
"""

import asyncio
import contextlib
import sys

from headwater.message import Message
from headwater.node.broker import Broker
from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.channel import Channel
from headwater.wire.packets import Connect

PASSWORDS = {"alice": b"wonderland"}

hooks = Hooks()


@hooks.on("connect_authenticate")
def password(client: Channel, connect: Connect) -> bool:
    """A guard: False refuses."""
    return connect.username in PASSWORDS and connect.password == PASSWORDS[connect.username]


@hooks.on("acl_check")
def own_topics(client: Channel, topic: str, write: bool) -> bool:
    """A guard: everybody may read everything, and write below their name."""
    return not write or topic.startswith(f"{client.username}/")


@hooks.on("publish")
def stamp(message: Message, client: Channel) -> Message:
    """A filter: what it returns is published instead."""
    message.user_properties = [*(message.user_properties or []), ("from", client.username or "")]
    return message


@hooks.on("published")
def show(message: Message) -> None:
    """A watcher: it sees, and cannot affect anything."""
    print(f"{message.topic}: {message.payload.decode(errors='replace')}", flush=True)


async def main(port: int) -> None:
    async with Broker(Config(port=port, sys_interval=0), hooks) as broker:
        print(f"listening on port {broker.port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
