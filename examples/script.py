"""Without an event loop: python examples/script.py [port]

The same arguments, methods and exceptions; calls wait, or raise TimeoutError.
"""

import contextlib
import sys

from headwater.client import SyncClient


def main(port: int) -> None:
    with SyncClient("localhost", port) as client:
        client.subscribe("echo", qos=1)
        client.publish("echo", "hello", qos=1, timeout=5)
        print(client.receive(timeout=5).payload.decode())
        client.publish("echo", "world", qos=1)
        for message in client.messages:
            print(message.payload.decode())
            break


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1883)
