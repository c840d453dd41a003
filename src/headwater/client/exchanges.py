"""Requests that wait for an answer: packet identifiers in use, and who waits for what to come back under them.

The number of publications under way is bounded by the server's Receive Maximum [MQTT-3.3.4-9]; those beyond it wait
for their turn in the order in which they came, so messages leave in the order of the calls.
An identifier is in use until its answer has come, even when the caller has given up waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from headwater.wire.packets import Packet

HIGHEST_ID: Final = 65535
MOST_PUBLICATIONS: Final = 60_000
"""Leaves identifiers for subscriptions even if the server allows publications for all of them."""


class Exchange:
    """One identifier's use: the packet type that must come next, and the future of the packet that ends it."""

    def __init__(self, expects: int, is_publication: bool, answer: asyncio.Future[Packet]) -> None:
        self.expects = expects
        self.is_publication = is_publication
        self.answer = answer


class Exchanges:
    """After `end`, every wait, current or future, raises its error."""

    def __init__(self, most_publications: int) -> None:
        self._free_turns = min(most_publications, MOST_PUBLICATIONS)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waking = 0
        """Those who have got their turn but have not run since; nobody may overtake them."""
        self._open: dict[int, Exchange] = {}
        self._last_id = 0
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def turn_to_publish(self) -> None:
        """Wait until one more publication is allowed, and count it; `open` must follow without waiting between."""
        self._check()
        if self._free_turns > 0 and not self._waiting and not self._waking:
            self._free_turns -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was our turn, but the caller has gone
                self._free_turns += 1
                self._woke_up()
            raise
        self._woke_up()

    def open(self, expects: int, *, is_publication: bool = False) -> tuple[int, asyncio.Future[Packet]]:
        """A free identifier, and the future of the answer that ends its use."""
        self._check()
        packet_id = self._last_id % HIGHEST_ID + 1
        while packet_id in self._open:
            packet_id = packet_id % HIGHEST_ID + 1
        self._last_id = packet_id
        answer: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._open[packet_id] = Exchange(expects, is_publication, answer)
        return packet_id, answer

    def expects(self, packet_id: int, packet_type: int) -> bool:
        exchange = self._open.get(packet_id)
        return exchange is not None and exchange.expects == packet_type

    def advance(self, packet_id: int, expects: int) -> None:
        """The exchange goes on; another packet must come next."""
        self._open[packet_id].expects = expects

    def close(self, packet_id: int, answer: Packet) -> None:
        """The exchange is over and its identifier free."""
        exchange = self._open.pop(packet_id)
        if not exchange.answer.done():
            exchange.answer.set_result(answer)
        if exchange.is_publication:
            self._free_turns += 1
            self._give_turns()

    def end(self, error: Exception) -> None:
        self._error = error
        waiting: list[asyncio.Future[None] | asyncio.Future[Packet]] = [each.answer for each in self._open.values()]
        for future in [*waiting, *self._waiting]:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever has given up waiting need not look at it
        self._open.clear()
        self._waiting.clear()

    def _give_turns(self) -> None:
        while self._free_turns > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free_turns -= 1
                self._waking += 1
                turn.set_result(None)

    def _woke_up(self) -> None:
        self._waking -= 1
        self._give_turns()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
