"""A broker inside an asyncio program: python examples/embedded.py [port]

Under `asyncio.run` (or uvloop) the broker is a guest in the program's event loop; with
`headwater.node.plane.selector.run` in its place it serves its sockets inside the loop's wait, which is faster.
"""

import asyncio
import contextlib
import sys

from headwater.node.broker import Broker
from headwater.node.config import Config


async def main(port: int) -> None:
    async with Broker(Config(port=port)) as broker:
        print(f"listening on port {broker.port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
