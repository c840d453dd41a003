"""The client for programs without an event loop: the same arguments, plain calls, `for message in client.messages`.

    with Client("localhost") as client:
        client.subscribe("garden/#", qos=1)
        client.publish("garden/door", "open", qos=2)
        for message in client.messages:
            print(message.topic, message.payload)

An event loop in a thread of its own does the work: pings and reconnects go on while the program computes. A call hands
its work to that thread and waits. Calls may come from several threads. Ctrl-C interrupts a call as it does any other;
what was under way is then given up.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headwater.client.client import Client as AsyncClient
from headwater.client.errors import Disconnected
from headwater.client.message import Message as AsyncMessage
from headwater.client.message import ReceivedMessage
from headwater.client.messages import MessageIterator
from headwater.wire.packets import Properties, Publish, SubscribeRequest
from headwater.wire.reasons import SUCCESS

P = ParamSpec("P")
Result = TypeVar("Result")


class Message(ReceivedMessage):
    """A message with an `ack` that is called, not awaited."""

    __slots__ = ("_client", "_original")

    def __init__(self, original: AsyncMessage, client: Client) -> None:
        super().__init__(
            Publish(
                *(original.topic, original.payload, original.qos, original.retain),
                *(original.duplicate, original.packet_id, original.properties),
            )
        )
        self._original = original
        self._client = client

    @property
    def is_done(self) -> bool:
        return self._original.is_done

    def ack(self) -> None:
        """See `headwater.client.Message.ack`."""
        self._client._call(self._original.ack())


class Cursor(threading.local):
    """One thread's way through the messages. A take that timed out or was interrupted goes on, and the next call gets
    what it takes, so that no message is lost in between."""

    iterator: MessageIterator | None = None
    under_way: concurrent.futures.Future[AsyncMessage | None] | None = None


class Messages:
    """An iterator over what arrives; it ends when the client has been left. Each message goes to one thread. In
    automatic mode, whoever asks for the next message is done with the last."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cursor = Cursor()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        message = self.take(None)
        if message is None:
            raise StopIteration
        return message

    def __len__(self) -> int:
        """How many wait."""
        return len(self._client._client.messages)

    def take(self, timeout: float | None) -> Message | None:
        """The next message; None at the end."""
        cursor = self._cursor
        if cursor.iterator is None:
            cursor.iterator = aiter(self._client._client.messages)
        if cursor.under_way is None:
            if self._client._loop is None:
                return None
            cursor.under_way = asyncio.run_coroutine_threadsafe(_next(cursor.iterator), self._client._loop)
        message = cursor.under_way.result(timeout)
        cursor.under_way = None
        return None if message is None else Message(message, self._client)


async def _next(iterator: MessageIterator) -> AsyncMessage | None:
    return await anext(iterator, None)  # StopAsyncIteration does not travel through futures


def _same_arguments(
    original: Callable[Concatenate[AsyncClient, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    def decorate(constructor: Callable[..., None]) -> Callable[Concatenate[Client, P], None]:
        return functools.wraps(original)(constructor)

    return decorate


class Client:
    """The arguments, attributes and exceptions of `headwater.client.Client`."""

    @_same_arguments(AsyncClient.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = AsyncClient(*arguments, **options)
        self.messages = Messages(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._leave(self._client.__aexit__(kind, error, trace))

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def server(self) -> Properties:
        return self._client.server

    @property
    def session_present(self) -> bool:
        return self._client.session_present

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def connect(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headwater client", daemon=True)
        self._thread.start()
        try:
            self._call(self._client.connect())
        except BaseException:
            self._stop()
            raise

    def disconnect(self, reason: int = SUCCESS, properties: Properties | None = None) -> None:
        if self._loop is not None:
            self._leave(self._client.disconnect(reason, properties))

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        timeout: float | None = None,
    ) -> int:
        """See `headwater.client.Client.publish`. TimeoutError after `timeout` seconds; the message may arrive still."""
        work = self._client.publish(topic, payload, qos=qos, retain=retain, properties=properties)
        return self._call(work, timeout)

    def subscribe(
        self,
        filters: str | Iterable[str | SubscribeRequest],
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Properties | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """See `headwater.client.Client.subscribe`; TimeoutError after `timeout` seconds."""
        work = self._client.subscribe(
            filters,
            qos=qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
            properties=properties,
        )
        return self._call(work, timeout)

    def unsubscribe(
        self, filters: str | Iterable[str], *, properties: Properties | None = None, timeout: float | None = None
    ) -> list[int]:
        return self._call(self._client.unsubscribe(filters, properties=properties), timeout)

    def receive(self, timeout: float | None = None) -> Message:
        """The next message, as from `messages`; TimeoutError if none came within so many seconds."""
        message = self.messages.take(timeout)
        if message is None:
            raise Disconnected("the client has disconnected")
        return message

    def wait_connected(self, timeout: float | None = None) -> None:
        self._call(self._client.wait_connected(), timeout)

    def _call(self, work: Coroutine[Any, Any, Result], timeout: float | None = None) -> Result:
        if self._loop is None:
            work.close()
            raise Disconnected("not connected")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()  # on a time-out or Ctrl-C; nothing happens if it is done
            raise

    def _leave(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._call(work)
        finally:
            self._stop()

    def _stop(self) -> None:
        """End the thread, and what else may still run in its loop."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
