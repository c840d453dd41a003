"""`client.messages`: what `async for` goes over, and when a message counts as dealt with.

Theory. In automatic mode, whoever asks for the next message is done with the last one. Who that is: each `async for` is
an iterator of its own, so that several tasks may share the work; `anext(client.messages)` is one more, whatever task it
runs in. A loop that was left (`break`, `return`) asks no more; its last message is done when the same task takes
another one by a new loop, or when the client is left without an exception. So a message whose processing raised is not
acknowledged if the exception leaves the client too; if it is caught before, the message counts as dealt with.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Final

from headwater.client.inbox import Inbox
from headwater.client.message import Message

log: Final = logging.getLogger("headwater.client")


class Hand:
    """What one iterator took last, and the task that it did so for."""

    def __init__(self) -> None:
        self.message: Message | None = None
        self.task: asyncio.Task[object] | None = None
        self.owner: weakref.ref[object] | None = None

    @property
    def is_dropped(self) -> bool:
        return self.owner is not None and self.owner() is None


class Messages:
    """An asynchronous iterable over what arrives; each message goes to one taker. It ends when the client has
    disconnected, and raises Disconnected when the connection was lost for good. What arrived before can be taken in
    both cases. `len` is the number of messages that wait."""

    def __init__(self, inbox: Inbox, is_automatic: bool) -> None:
        self._inbox = inbox
        self._is_automatic = is_automatic
        self._own = Hand()
        self._hands = [self._own]

    def __aiter__(self) -> MessageIterator:
        hand = Hand()
        self._hands.append(hand)
        iterator = MessageIterator(self, hand)
        hand.owner = weakref.ref(iterator)
        return iterator

    async def __anext__(self) -> Message:
        return await self.take(self._own)

    def __len__(self) -> int:
        return len(self._inbox)

    async def take(self, hand: Hand) -> Message:
        self._done_with(hand)
        for other in [each for each in self._hands if each.is_dropped and _has_asked_enough(each.task)]:
            self._hands.remove(other)
            if not _has_failed(other.task):
                self._done_with(other)
        hand.message = await self._inbox.take()
        hand.task = asyncio.current_task()
        return hand.message

    def left(self) -> None:
        """The client is left without an exception, by the present task: what it took is dealt with, and so is what
        was taken by tasks that have ended well."""
        for hand in self._hands:
            if _has_asked_enough(hand.task) and not _has_failed(hand.task):
                self._done_with(hand)

    def _done_with(self, hand: Hand) -> None:
        message, hand.message = hand.message, None
        if message is not None and (self._is_automatic or message.qos == 0):
            self._inbox.done(message)


class MessageIterator:
    """One loop over the messages."""

    def __init__(self, messages: Messages, hand: Hand) -> None:
        self._messages = messages
        self._hand = hand

    def __aiter__(self) -> MessageIterator:
        return self

    async def __anext__(self) -> Message:
        return await self._messages.take(self._hand)


def _has_asked_enough(task: asyncio.Task[object] | None) -> bool:
    """Whether a task that took a message is done with it, one way or the other: it asks again, or has ended."""
    return task is None or task is asyncio.current_task() or task.done()


def _has_failed(task: asyncio.Task[object] | None) -> bool:
    if task is None or not task.done():
        return False
    if task.cancelled():
        return True
    error = task.exception()
    if error is not None:
        log.warning("a task that took messages failed; its last message is not acknowledged", exc_info=error)
    return error is not None
