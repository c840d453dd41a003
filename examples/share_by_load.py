"""A member of a shared subscription that tells how it is doing: python examples/share_by_load.py [port]

It reports how many messages wait and how long one takes, once a second and early when that changes, if the server
grants it; Headwater then gives each member what it can do. The work runs in a thread: in the event loop itself a body
that computes would keep back the reports, the pings and everything else.
"""

import asyncio
import contextlib
import sys
import time

from headwater.client import Client, StatusPingSender


def compute(payload: bytes) -> None:
    time.sleep(0.02)  # stands for work that keeps a processor busy
    print(f"done {payload.decode()}", flush=True)


async def main(port: int) -> None:
    async with Client("localhost", port, ping_sender=StatusPingSender(interval=1.0)) as client:
        await client.subscribe("$share/workers/jobs/#", qos=1)
        print("subscribed", flush=True)
        async for message in client.messages:
            await asyncio.to_thread(compute, message.payload)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
