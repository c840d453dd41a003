"""Publish one message after another, then many at a time: python examples/publish.py [port]

`publish` with QoS 1 or 2 returns when the server has the message. To have many under way, call it in several tasks;
they leave in the order of the calls, and no more are in flight than the server takes.
"""

import asyncio
import contextlib
import sys

from headwater.client import Client, Properties, Rejected, Will


async def main(port: int) -> None:
    will = Will("garden/status", b"gone", qos=1, retain=True)
    async with Client("localhost", port, will=will) as client:
        await client.publish("garden/status", "here", qos=1, retain=True)
        async with asyncio.TaskGroup() as group:
            for number in range(1000):
                group.create_task(client.publish("garden/rain", str(number), qos=1))
        try:
            text = Properties(content_type="text/plain", user_properties=[("unit", "°C")])
            await client.publish("garden/temperature", "21.5", qos=2, properties=text)
        except Rejected as error:
            print(f"the server did not want it: {error}")
    print("1002 messages are with the server")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883))
