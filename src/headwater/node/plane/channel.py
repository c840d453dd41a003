"""A connection with its socket, and what the fast path asks of the ordinary one."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from headwater.message import Delivery, Message
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.timers import Timer
from headwater.routing.dispatcher import Member
from headwater.routing.router import Recipient
from headwater.routing.shared import Group
from headwater.session.connection import Connection
from headwater.session.rights import Rights
from headwater.session.session import Session
from headwater.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from headwater.node.destinations.destination import Batch
    from headwater.node.plane.turn import Turn

BUSY: Final = 1
METERED: Final = 2
STORING: Final = 4
SHAKING: Final = 8
RESTING: Final = 16
FIRST_READ: Final = 960
"""Bytes asked for at first: room for a few packets, in a block that the allocator has at hand. A read that fills its
buffer doubles the connection's next one, up to `loop.LARGEST_READ`."""


class Channel(Connection):
    """A connection with its socket: what came in and is not whole, what goes out and is not sent.

    `held` sends everything by the ordinary way: the session's queue is not empty, or the reader is far behind.
    """

    def __init__(self, turn: Turn, fd: int, recv: Callable[[int], bytes], send: Callable[[bytes], int]) -> None:
        super().__init__()
        self.turn = turn
        self.fd = fd
        self.recv = recv
        self.send_bytes = send
        self.read_size = FIRST_READ
        self.address = ""
        self.loopback = False
        self.transport: Transport | None = None
        self.peer: Peer | None = None
        self.entrance: Entrance | None = None
        self.allow_anonymous: bool | None = None
        self.use_passwords = True
        self.use_rules = True
        self.max_qos = 2
        """Highest QoS that the client may publish with."""
        self.certificate: dict[str, object] | None = None
        """The client's certificate as ssl.SSLSocket.getpeercert has it, checked."""
        self.identity: str | None = None
        """The name in the certificate, which is the client's user name whatever its CONNECT says."""
        self.rights: Rights | None = None
        """What may be published here; None: everything."""
        self.meter: object | None = None
        """How fast the client may send; None: as fast as it likes."""
        self.busy = False
        """What came last takes longer (finding out who this is, say); what comes behind it is kept until then."""
        self.postponed = False
        """There was no time for its other packets: a background task goes on with them."""
        self.waits: BackgroundTask | None = None
        """Goes on when the client has read what was sent."""
        self.heavy = False
        """Dealing with what was read last took long."""
        self.draining = False
        """A background task sends what waits in the session."""
        self.departed = False
        """The client has hung up, which is still to be dealt with."""
        self.paused = 0
        """Not read from, by our own will: some of `BUSY`, `METERED`, `STORING`, `SHAKING`, `RESTING`."""
        self.opened_at = turn.now
        self.last_seen = turn.now
        self.max_in = turn.max_connect_size
        self.max_unseen = self.max_in
        """Of a packet that may go the fast way; of a larger one, the payload may be too large."""
        self.alias_bytes = 0
        """Of topic aliases, in both directions."""
        self.known = False
        """Not a stranger (strangers.py): it is, or was, connected."""
        self.charge = 0
        """Bytes that it counts with as long as it is one."""
        self.crowd = ""
        self.parts: list[bytes] | None = None
        self.counted = 0
        """Of these, bytes that count in the budget, or in the one for strangers."""
        self.have = 0
        self.need = 0
        self.fast = False
        self.out: list[bytes] = []
        self.out_size = 0
        """Of what was written to `out` by `write`; the hot path's own bytes are bounded by what it read."""
        self.dirty = False
        self.held = False
        self.awaited = False
        """A shared group waits for room here."""
        self.pending: Batch | None = None
        self.backlog: deque[bytes] | None = None
        self.backlog_size = 0
        self.barrier = 0
        """The commit that has to be on disk before anything more goes out."""
        self.withheld: deque[tuple[int, bytes]] | None = None
        self.withheld_size = 0
        self.shares = False
        """In a shared group, so that `cut` is kept count of: the bytes that are left of a packet sent in part."""
        self.cut = 0
        self.progress_at = 0.0
        self.way = 0.0  # seconds to the client, as last looked up; 0.0: not known
        self.way_until = 0.0
        self.congested = False
        self.finishing = False
        self.socket: socket.socket | None = None
        self.over_tcp = False
        self.timer: Timer | None = None

    def write(self, data: bytes) -> None:
        turn = self.turn
        if turn.open:
            turn.settle_all()
        if self.fd < 0 or self.finishing:
            return
        self.out.append(data)
        self.out_size += len(data)
        if not self.dirty:
            self.dirty = True
            turn.dirty.append(self)

    @property
    def is_known_by_user(self) -> bool:
        """Whether the user name is the client id here, whatever the client says."""
        return self.entrance is not None and self.entrance.username_as_client_id

    def has_hung_up(self) -> bool:
        """Whether the peer has closed its end and nothing of it is left to read: for those who are not read from."""
        if self.fd < 0:
            return True
        if not isinstance(self.socket, socket.socket):
            return False
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def keep_alias(self, size: int, forced: bool) -> bool:
        return self.turn.slow.keeps_alias(self, size, forced)

    def has_room_for_alias(self, topic: str) -> bool:
        return self.turn.slow.has_room_for_alias(self, topic)

    def end_of_input(self) -> None:
        """The peer has said that nothing more comes: reading ends behind what was read."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RD)


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport:
    """What lies between a channel and its socket, where that is not plain: TLS, WebSocket."""

    def recv(self, size: int) -> bytes:
        """All that there is, as `socket.recv` says it; `size` is only a hint."""
        raise NotImplementedError

    def send(self, blob: bytes) -> int:
        """How many bytes have gone for good; the others are given again, in front of new ones."""
        raise NotImplementedError

    def writable(self) -> None:
        """The socket takes bytes, and the channel has none: those of the transport itself may go."""
        raise NotImplementedError

    def end(self) -> None:
        """Say that nothing more comes, if the socket takes it; more than once is fine."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """Another node at the other end of a channel, where there is no MQTT client. Of such a channel nobody else is told
    anything: it has no session, and is not among the server's channels."""

    def feed(self, data: bytes) -> None:
        """Bytes came."""
        raise NotImplementedError

    def packet(self, first_byte: int, body: bytes) -> None:
        """One packet of a run that it sent, which has to go the ordinary way."""
        raise NotImplementedError

    def postponed(self) -> None:
        """There is no time left for the other packets of the run."""
        raise NotImplementedError

    def failed(self, why: str) -> None:
        """What it sent makes no sense: end the connection."""
        raise NotImplementedError

    def written(self) -> None:
        """No bytes wait for its socket any more."""
        raise NotImplementedError

    def lost(self) -> None:
        """The socket is gone; told once."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Entrance:
    """Where channels come in: what holds for those of one listener."""

    def __init__(self) -> None:
        self.connections = 0
        self.topic_alias_maximum: int | None = None  # None, here and below: as for all
        self.auto_id_prefix: str | None = None
        self.allow_empty_client_id: bool | None = None
        self.username_as_client_id = False
        self.weight = 0
        """Bytes that layers (TLS, WebSocket) take for a connection before it is known who it is."""
        self.behind_proxy = False
        """Addresses are those of a proxy until it has told."""

    def admit(self, channel: Channel) -> bool:
        """Prepare a new channel, before anything is read; False: it may not come in."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Slow:
    """The ordinary way, as the hot path and the loop see it."""

    def packet(self, channel: Channel, first_byte: int, body: bytes) -> None:
        """Deal with one whole packet."""
        raise NotImplementedError

    def failed(self, channel: Channel, error: RemoteProtocolError) -> None:
        """The peer broke the protocol."""
        raise NotImplementedError

    def postponed(self, channel: Channel) -> None:
        """There is no time left for the channel's other packets: go on with them later."""
        raise NotImplementedError

    def crashed(self, channel: Channel) -> None:
        """Dealing with a packet raised something that it should not."""
        raise NotImplementedError

    def lost(self, channel: Channel) -> None:
        """The socket is gone."""
        raise NotImplementedError

    def written(self, channel: Channel) -> None:
        """No bytes wait for this socket any more."""
        raise NotImplementedError

    def relieved(self, channel: Channel) -> None:
        """Fewer bytes wait for an overfull socket: it may be read from again."""
        raise NotImplementedError

    def writable_wanted(self, channel: Channel) -> None:
        """Bytes wait for this socket: call `Turn.writable` when it takes some."""
        raise NotImplementedError

    def keeps(self, channel: Channel, size: int) -> bool:
        """So many bytes more (or fewer) are kept for one who is not connected. False: it has been cut off."""
        raise NotImplementedError

    def keeps_alias(self, channel: Channel, size: int, forced: bool) -> bool:
        """So many bytes more of topic aliases. False: there is no room for them; `forced`: they are kept anyway."""
        raise NotImplementedError

    def has_room_for_alias(self, channel: Channel, topic: str) -> bool:
        """Whether an alias for this topic could be kept."""
        raise NotImplementedError

    def exhausted(self, channel: Channel) -> None:
        """Bytes would have to wait for this socket, and there is no memory left for them: end it."""
        raise NotImplementedError

    def metered(self, channel: Channel, size: int, messages: int) -> None:
        """So many bytes of packets, so many of them PUBLISH, were dealt with for a channel that has a meter."""
        raise NotImplementedError

    def outruns_store(self, channel: Channel) -> None:
        """The channel publishes what is stored, and too much of that is not on disk yet, or the disk has too little
        room: stop reading from it."""
        raise NotImplementedError

    def overfull(self, channel: Channel) -> None:
        """More bytes wait for this socket than allowed: stop reading from it."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Deliver:
    """The ordinary way of a delivery, as the hot path sees it."""

    def deliver(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        """Give a message to one recipient."""
        raise NotImplementedError

    def deliver_alike(self, recipients: list[Recipient], message: Message, publisher: Session | None) -> None:
        """Give a message to recipients without wishes of their own."""
        raise NotImplementedError

    def offer(self, session: Session, delivery: Delivery) -> None:
        """Send or queue one delivery."""
        raise NotImplementedError

    def ended(self, session: Session, group: object, count: int) -> None:
        """QoS 1 or 2 deliveries of a group (None: of none) have been acknowledged to their end, or refused."""
        raise NotImplementedError

    def hasten(self, channel: Channel) -> None:
        """More acknowledgements are to come, and others depend on them."""
        raise NotImplementedError

    def drain(self, channel: Channel) -> None:
        """The send quota has room again: send what waits."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Share:
    """The ordinary way to a shared group, as the hot path sees it."""

    def choose(self, group: Group, topic: str, publisher: str) -> Member | None:
        """The member that gets a message now; None: nobody has room."""
        raise NotImplementedError

    def give(self, group: Group, member: Member | None, message: Message) -> None:
        """To the member that was chosen; None: the message waits in the group."""
        raise NotImplementedError

    def deliver(self, group: Group, message: Message) -> None:
        """Give a message to one member, or let it wait in the group."""
        raise NotImplementedError

    def select(self, group: Group, message: Message, chosen: list[tuple[Session, Delivery]]) -> None:
        """Choose a member, and add what it would get to `chosen`; if nobody has room, the message waits."""
        raise NotImplementedError

    def is_full(self, group: Group) -> bool:
        """Whether what is for the group is refused now."""
        raise NotImplementedError
