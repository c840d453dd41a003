"""Answers to CONNECT that come later: who waits for which.

A guard or the access rules may answer with something to wait for (a coroutine, a future). The channel is not read from
meanwhile, other clients are served, and `connect_timeout` bounds the wait. A client that goes is waited for no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headwater.node.hooks import Refusal, give_up
from headwater.node.plane.channel import Channel

log = logging.getLogger("headwater.server")

Answer = Refusal | Awaitable[Refusal | None] | None


async def _value(answer: Answer) -> Refusal | None:
    return answer if answer is None or isinstance(answer, Refusal) else await answer


async def _both(first: Answer, second: Answer) -> Refusal | None:
    try:
        return await _value(first) or await _value(second)
    finally:
        for answer in (first, second):
            if answer is not None and not isinstance(answer, Refusal):
                give_up(answer)


def both(first: Answer, second: Answer) -> Answer:
    """What two say together: both must agree."""
    if isinstance(first, Refusal) or second is None:
        return first
    if isinstance(second, Refusal) and first is None:
        return second
    return _both(first, second) if first is not None else second


class Deciding:
    def __init__(self) -> None:
        self.clock: Callable[[], None] | None = None
        """Called before an answer is told, as it comes between two turns: look at the time."""
        self._answers: dict[Channel, asyncio.Future[Refusal | None]] = {}

    def start(
        self, channel: Channel, answer: Awaitable[Refusal | None], tell: Callable[[Refusal | None], None]
    ) -> None:
        future = asyncio.ensure_future(answer)
        self._answers[channel] = future

        def done(finished: asyncio.Future[Refusal | None]) -> None:
            if self._answers.get(channel) is finished:
                del self._answers[channel]
            if finished.cancelled():
                return
            error = finished.exception()
            if error is not None:
                log.error("finding out who a client is failed", exc_info=error)
            if self.clock is not None:
                self.clock()
            tell(finished.result() if error is None else Refusal(0x83, "the server failed to decide"))

        future.add_done_callback(done)

    def decides(self, channel: Channel) -> bool:
        return channel in self._answers

    def cancel(self, channel: Channel) -> None:
        answer = self._answers.pop(channel, None)
        if isinstance(answer, asyncio.Task):
            answer.get_loop().call_soon(answer.cancel)  # not before it has begun: it knows what else to give up
        elif answer is not None:
            answer.cancel()

    def __len__(self) -> int:
        return len(self._answers)
