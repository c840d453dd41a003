"""Take messages as they come, for ever: python examples/subscribe.py [port]

A message with QoS 1 or 2 is acknowledged after the loop's body. If the connection is lost the loop simply goes on once
there is another; if the program dies, the server still has what it was not done with.
"""

import asyncio
import contextlib
import sys

from headwater.client import Client


async def main(port: int) -> None:
    async with Client("localhost", port, client_id="garden-log", clean_start=False, session_expiry=3600) as client:
        await client.subscribe("garden/#", qos=1)
        print("subscribed", flush=True)
        async for message in client.messages:
            print(f"{message.topic}: {message.payload.decode()}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
