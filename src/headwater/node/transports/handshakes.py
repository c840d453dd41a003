"""Steps of TLS handshakes, done by a thread beside the broker's loop (openssl.c), where this installation has one.

A client whose handshake is under way is not read from (`SHAKING`). Steps are done in the order in which they came. They
are bounded: when there are too many, nobody is accepted where TLS is spoken until half of them are done, and those who
come wait in the system's own queue, where they cost us nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from headwater.node.plane.background import SLICE
from headwater.node.plane.channel import SHAKING
from headwater.node.transports.direct import handshakes

if TYPE_CHECKING:
    from headwater.node.protocol.core import Core
    from headwater.node.transports.openssl import Handshakes
    from headwater.node.transports.tls import Tls


MOST: Final = 64
"""Steps under way."""


class Handshaking:
    def __init__(self, core: Core, thread: Handshakes) -> None:
        self._core = core
        self._thread = thread
        self._under_way = 0
        self._waiting: list[Callable[[], None]] = []
        core.plane.listen(thread.fileno(), self.collect)

    @classmethod
    def start(cls, core: Core) -> Handshaking | None:
        """None: each step is done where its bytes are read."""
        thread = handshakes()
        return None if thread is None else cls(core, thread)

    def begin(self, tls: Tls) -> bool:
        """Have a step done, with what has come; False: it cannot be done there."""
        channel, connection, incoming, outgoing = tls.parts()
        try:
            self._thread.begin(getattr(connection, "_sslobj", None), connection.context, incoming, outgoing, tls)
        except ValueError:
            return False
        self._under_way += 1
        self._core.pause(channel, SHAKING)
        return True

    @property
    def is_full(self) -> bool:
        return self._under_way >= MOST

    def when_free(self, call: Callable[[], None]) -> None:
        """Call this when there is room for others again."""
        self._waiting.append(call)

    def collect(self) -> None:
        """Go on with those whose step is done, one at least, and others if there is time; the rest in later turns."""
        began = time.monotonic()
        while (done := self._thread.next()) is not None:
            self._under_way -= 1
            token, kind, why, code = done
            self._go_on(cast("Tls", token), kind, why, code)
            if time.monotonic() - began > SLICE:
                break
        if self._waiting and self._under_way <= MOST // 2:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
        self._core.plane.wake()

    def _go_on(self, tls: Tls, kind: int, why: str | None, code: int) -> None:
        channel = tls.parts()[0]
        core = self._core
        if channel.fd < 0:
            return  # it has gone, or took too long
        try:
            core.resume(channel, SHAKING)
            if tls.step_done(kind, why, code):
                core.plane._read(channel)
        except OSError:
            core.lost(channel)
        except Exception:  # one connection's end must never be the broker's
            core.crashed(channel)

    def stop(self) -> None:
        self._core.plane.unlisten(self._thread.fileno())
