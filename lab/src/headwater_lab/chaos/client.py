"""A client that comes back: it connects, keeps what a correct client keeps, and notes what it sees."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.wire.packets import V5, V311, Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Properties, Will
from headwater.wire.primitives import FOR_EVER
from headwater.wire.reasons import DISCONNECT_WITH_WILL, SERVER_SHUTTING_DOWN
from headwater_lab.chaos.connection import Connection
from headwater_lab.chaos.history import Connected, Connecting, Disconnected, Event, Leaving, Oddity

if TYPE_CHECKING:
    from headwater_lab.chaos.world import World

RETRY: Final = 0.02


class Client:
    """The base of all clients. `expiry` is the session's, None for ever; `wake` is when it wants to connect again.

    A client that is `calm` does nothing new: it finishes what is under way, and stays connected.
    """

    def __init__(self, world: World, name: str, version: int, expiry: int | None = None) -> None:
        self.world = world
        self.name = name
        self.version = version
        self.expiry = expiry
        self.clean = False
        self.will = 0
        self.random = Random(f"{world.seed} {name}")
        self.connection: Connection | None = None
        self.ready = False
        self.forgot = False
        """Its session has surely expired."""
        self.calm = False
        self.ghost: Connection | None = None
        """An earlier connection, which the broker may think is still there."""
        self.wake = 0.0
        self.pongs = 0
        self.later: deque[tuple[float, Packet]] = deque()
        """What is to be sent when its time comes, in order."""

    # ---- what kinds of clients differ in -----------------------------------------------------------------------

    def connected(self, present: bool) -> None:
        """CONNACK came: go on with what is open."""

    def packet(self, packet: Packet) -> None:
        """Something else came."""

    def act(self, now: float) -> None:
        """Connected: do something, or not."""

    def absence(self, away: float) -> float:
        """How long it stays away, if `away` seconds are what somebody else would."""
        return away

    def finished(self) -> bool:
        """Whether nothing is under way."""
        return self.ready and not self.later

    def state(self) -> str:
        """For a message about it."""
        state = "away" if self.connection is None else "connected" if self.ready else "without an answer to CONNECT"
        return f"{state}, {len(self.later)} packets not sent"

    def new_will(self) -> Will | None:
        return None

    def connect_properties(self) -> Properties:
        return Properties(session_expiry_interval=FOR_EVER if self.expiry is None else self.expiry)

    # ---- connections -------------------------------------------------------------------------------------------

    def connect(self) -> None:
        try:
            self.connection = Connection(self.world.port_of(self), self.version)
        except OSError:
            self.wake = self.world.now + RETRY
            return
        will = self.new_will()
        properties = self.connect_properties() if self.version == V5 else None
        self.world.watch(self)
        expiry = 0 if self.version == V311 and self.clean else self.expiry
        will_message = self.will if will is not None else 0
        self.note(Connecting(self.world.now, self.name, self.clean, expiry, will_message, self.forgot))
        self.connection.send(Connect(self.name, self.version, self.clean, 0, will=will, properties=properties))

    def leave(self, away: float, with_will: bool = False) -> None:
        """Go with DISCONNECT, and come back after `away` seconds."""
        if self.connection is not None:
            self.note(Leaving(self.world.now, self.name, with_will))
            self.connection.send(Disconnect(DISCONNECT_WITH_WILL if with_will else 0))
            self.cut(away)

    def cut(self, away: float) -> None:
        """Go without a word."""
        if self.connection is not None:
            self.world.unwatch(self)
            self.connection.close()
            self.connection = None
            self._over(away)

    def forsake(self) -> None:
        """Connect again, and leave the old connection open: the new one has to take over."""
        if self.connection is not None:
            self.world.unwatch(self)
            self._close_ghost()
            self.ghost, self.connection = self.connection, None
            self._over(0.0)

    def _close_ghost(self) -> None:
        if self.ghost is not None:
            self.ghost.close()
            self.ghost = None

    def go(self) -> None:
        """Go in one way or the other, and be back soon."""
        away = self.random.uniform(0, 0.2)
        luck = self.random.random()
        if luck < 0.2:
            self.forsake()
        elif luck < 0.6:
            self.leave(away)
        else:
            self.cut(away)

    def close(self) -> None:
        """For good, without a note: the episode is over."""
        self._close_ghost()
        if self.connection is not None:
            self.connection.close()

    def _over(self, away: float) -> None:
        self.ready = False
        self.later.clear()
        self.wake = self.world.now + self.absence(away)
        self.note(Disconnected(self.world.now, self.name))

    # ---- turns -------------------------------------------------------------------------------------------------

    def read(self, to_the_end: bool = False) -> None:
        connection = self.connection
        if connection is None:
            return
        packets = connection.receive_all() if to_the_end else connection.receive()
        for packet in packets:
            self._packet(packet)
            if self.connection is not connection:
                return  # it went because of it
        if connection.over:
            self.world.ended(self)
            self.cut(self.random.uniform(0, 0.05))

    def _packet(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if packet.reason:
                self.odd(f"refused with 0x{packet.reason:02x}")
                return
            self.note(Connected(self.world.now, self.name, packet.session_present))
            self.ready = True
            self._close_ghost()
            self.connected(packet.session_present)
        elif isinstance(packet, Pingresp):
            self.pongs += 1
        elif isinstance(packet, Disconnect):
            if packet.reason != SERVER_SHUTTING_DOWN:
                self.odd(f"was disconnected with 0x{packet.reason:02x}")
        elif not self.ready:
            self.odd(f"got {packet!r:.80} before CONNACK")
        else:
            self.packet(packet)

    def turn(self, now: float) -> None:
        connection = self.connection
        if connection is None:
            if now >= self.wake:
                self.connect()
            return
        connection.flush()
        while self.later and (self.calm or self.later[0][0] <= now):
            self.send(self.later.popleft()[1])
        if self.ready:
            self.act(now)

    def ping(self) -> None:
        if self.connection is not None:
            self.connection.send(Pingreq())

    def send(self, packet: Packet) -> None:
        if self.connection is not None:
            self.connection.send(packet)

    def send_later(self, packet: Packet, delay: float) -> None:
        """Not before that, and not before what is to be sent earlier."""
        self.later.append((self.world.now + delay, packet))

    def note(self, event: Event) -> None:
        self.world.note(event)

    def odd(self, text: str) -> None:
        self.note(Oddity(self.world.now, self.name, text))
