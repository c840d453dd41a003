"""TLS with a certificate of one's own, and patience: python examples/tls_and_reconnect.py host port ca cert key

It waits for the server even at the start, from a tenth of a second up to ten seconds between attempts.
"""

import asyncio
import contextlib
import logging
import ssl
import sys

from headwater.client import Client, Disconnected, Reconnect


async def main(host: str, port: int, trusted: str, cert: str, key: str) -> None:
    context = ssl.create_default_context(cafile=trusted)
    context.load_cert_chain(cert, key)
    patience = Reconnect(first=0.1, longest=10.0, from_start=True)
    try:
        async with Client(host, port, tls=context, reconnect=patience) as client:
            await client.subscribe("garden/#", qos=1)
            print("subscribed", flush=True)
            async for message in client.messages:
                print(f"{message.topic}: {message.payload.decode()}", flush=True)
    except Disconnected as error:  # for good: a certificate that was revoked, an account that was closed …
        print(f"it is over: {error}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)  # says when the connection is lost, and when it is there again
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]))
