"""Several workers, each message acknowledged when its result is safe: python examples/manual_ack.py [port]

The server sends no more than `receive_maximum` messages that are not acknowledged, so that many are in memory and no
more. A message that fails is not acknowledged here: the exception ends the program, and the server keeps the message.
"""

import asyncio
import contextlib
import sys

from headwater.client import Client, Message

WORKERS = 4


async def store(message: Message) -> None:
    await asyncio.sleep(0.01)
    print(f"stored {message.payload.decode()}", flush=True)


async def work(client: Client) -> None:
    async for message in client.messages:
        await store(message)
        await message.ack()


async def main(port: int) -> None:
    async with Client("localhost", port, acknowledge="manual", receive_maximum=20) as client:
        await client.subscribe("orders/+", qos=2)
        print("subscribed", flush=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work(client))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
