"""A report of one's own with each ping: python examples/own_report.py [port]

What it says is between the application and its server; a server that cannot read it ignores it.
"""

import asyncio
import contextlib
import os
import sys

from headwater.client import Client, PingSender


class LoadSender(PingSender):
    """The load of the machine beside the messages that wait; early when ten more wait than a moment ago."""

    told = 0

    def payload(self) -> bytes:
        self.told = self.waiting
        return f'{{"msgsInQueue": {self.waiting}, "load": {os.getloadavg()[0]:.2f}}}'.encode()

    def user_properties(self) -> list[tuple[str, str]]:
        return [("content-type", "application/json")]

    def is_due(self) -> bool:
        return self.waiting >= self.told + 10


async def main(port: int) -> None:
    async with Client("localhost", port, ping_sender=LoadSender(interval=5.0)) as client:
        await client.subscribe("jobs/#", qos=1)
        print("subscribed", flush=True)
        async for message in client.messages:
            print(f"{message.topic}: {message.payload.decode()}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
