"""`headwater pub`: publish messages with the options of mosquitto_pub."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.connection import ConnectionOptions, Qos, run, with_connection_options
from headwater.cli.failure import complain, fail

if TYPE_CHECKING:
    from headwater.client import Client, Properties

MOST_UNDER_WAY: Final = 1000
"""Messages whose answers are waited for; how many of them are really sent, -M says."""
CHUNK: Final = 65536


@with_connection_options
def pub(
    connection: ConnectionOptions,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Topic to publish to.")] = None,
    message: Annotated[str | None, typer.Option("-m", "--message", help="Payload.")] = None,
    file: Annotated[str | None, typer.Option("-f", "--file", help="Payload: what the file holds.")] = None,
    lines: Annotated[bool, typer.Option("-l", "--stdin-line", help="A message for each line of the input.")] = False,
    null: Annotated[bool, typer.Option("-n", "--null-message", help="An empty payload.")] = False,
    whole: Annotated[bool, typer.Option("-s", "--stdin-file", help="Payload: the whole input.")] = False,
    qos: Qos = 0,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="Retain the message.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Publish it so many times.")] = 1,
    repeat_delay: Annotated[float, typer.Option("--repeat-delay", min=0, help="Seconds between.")] = 0,
    max_inflight: Annotated[int, typer.Option("-M", "--max-inflight", min=1, help="Unanswered messages.")] = 20,
) -> None:
    """Publish messages. The options are those of mosquitto_pub."""
    from headwater.cli.properties import parse_properties

    target = connection.target()
    properties = parse_properties(connection.property_options or [])
    topic = topic or target.topic or None
    if topic is None:
        raise typer.BadParameter("a topic is missing; give -t or a URL (-L) with one.")
    ways = [message is not None, file is not None, lines, null, whole]
    if sum(ways) != 1:
        raise typer.BadParameter("give exactly one of -m, -f, -l, -n and -s, to say what to publish.")
    payload = None if lines else _payload(message, file, whole)
    client = connection.make_client(properties, max_inflight=max_inflight)
    publications = Publications(client, topic, qos, retain, properties.get("publish"), connection.quiet)
    work = _publish(publications, payload, repeat, repeat_delay, properties.get("disconnect"))
    raise typer.Exit(run("pub", work, connection))


def _payload(message: str | None, file: str | None, whole: bool) -> bytes:
    if message is not None:
        return os.fsencode(message)  # the bytes as they were typed
    if whole:
        return sys.stdin.buffer.read()
    if file is None:
        return b""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        fail("pub", f"cannot read {file}: {error.strerror}.")


class Publications:
    """Messages on their way: several at a time, in order. A message that the broker does not take is reported, and
    its reason is the exit status; the others are sent all the same."""

    def __init__(
        self, client: Client, topic: str, qos: int, retain: bool, properties: Properties | None, quiet: bool
    ) -> None:
        self.client = client
        self.status = 0
        self._topic = topic
        self._qos = qos
        self._retain = retain
        self._properties = properties
        self._quiet = quiet
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, payload: bytes) -> None:
        """Send one more; with QoS 1 and 2, do not wait for the broker's answer unless many wait already."""
        if self._qos == 0:
            await self._publish(payload)
            return
        while len(self._under_way) >= MOST_UNDER_WAY:
            await self._wait(asyncio.FIRST_COMPLETED)
        self._under_way.add(asyncio.create_task(self._publish(payload)))

    async def finish(self) -> None:
        while self._under_way:
            await self._wait(asyncio.FIRST_EXCEPTION)

    async def abandon(self) -> None:
        """After a failure that has been told already: nobody wants to hear of the others."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _wait(self, until: str) -> None:
        done, self._under_way = await asyncio.wait(self._under_way, return_when=until)
        for error in [task.exception() for task in done]:
            if error is not None:
                raise error

    async def _publish(self, payload: bytes) -> None:
        from headwater.client import Rejected

        try:
            await self.client.publish(
                self._topic, payload, qos=self._qos, retain=self._retain, properties=self._properties
            )
        except Rejected as error:
            self.status = error.reason or 1
            complain("pub", f"{error}.", quiet=self._quiet)


async def _publish(
    publications: Publications, payload: bytes | None, repeat: int, delay: float, farewell: Properties | None
) -> int:
    async with publications.client as client:
        try:
            if payload is None:
                async for line in _lines_of_input():
                    await publications.send(line)
            else:
                for turn in range(repeat):
                    if turn and delay:
                        await asyncio.sleep(delay)
                    await publications.send(payload)
            await publications.finish()
        finally:
            await publications.abandon()
        await client.disconnect(properties=farewell)
    return publications.status


async def _lines_of_input() -> AsyncIterator[bytes]:
    """The lines of standard input without their ends, as they come.

    A thread reads, because asyncio cannot wait for files. It reads the descriptor itself: it may still be blocked
    there when the program ends, and must then hold no lock of Python's.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[list[bytes] | None] = asyncio.Queue(1)

    def hand_over(lines: list[bytes] | None) -> None:
        asyncio.run_coroutine_threadsafe(chunks.put(lines), loop).result()

    def read() -> None:
        partial = b""
        # Once the program is ending, for whatever reason, nobody takes lines any more.
        with contextlib.suppress(concurrent.futures.CancelledError, RuntimeError):
            while data := os.read(sys.stdin.fileno(), CHUNK):
                *lines, partial = (partial + data).split(b"\n")
                hand_over(lines)
            if partial:
                hand_over([partial])
            hand_over(None)

    threading.Thread(target=read, daemon=True).start()
    while (lines := await chunks.get()) is not None:
        for line in lines:
            yield line
