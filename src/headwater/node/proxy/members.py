"""Members of shared groups that the proxy keeps itself: each has a leg, a connection to the proxy's own broker.

    client <--- Mixer (mixing.py) <--- home broker
                  ^------ leg: a pair of sockets <--- this node: groups, dispatchers, other nodes

Theory. Inside, a member is a client like any other: the node chooses members, counts what they have room for, and
gives what they had not acknowledged to others when they go; all that is made already. So the leg is a real connection,
in this process, and the client's bytes from both sides are mixed. It is opened when the home broker has accepted the
client and the client subscribes to a group; its session lasts as long as the client's, with which it goes on.

The home broker has authenticated the client, so the leg's user name is the client's, for rules that this node may have.
The home broker's own rules are not asked for messages of groups: what the own client may read, a member gets.

A SUBACK waits until the own client has subscribed at the home broker to what the group wants.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from headwater.node.plane.channel import Channel, Entrance
from headwater.node.proxy.mixing import Mixed, Mixer
from headwater.node.proxy.pair import CLOSED, PARTING, Mixing, Pair
from headwater.routing.topics import SHARE_PREFIX
from headwater.wire.encode import encode
from headwater.wire.packets import SUBACK, V5, V311, Connect, Disconnect, Properties
from headwater.wire.reasons import SESSION_TAKEN_OVER

if TYPE_CHECKING:
    from headwater.node.protocol.server import Server
    from headwater.node.proxy.relay import Relay
    from headwater.node.proxy.wanting import Wanting

log = logging.getLogger("headwater.proxy")

OWN: Final = "$group/"
"""What the client ids of legs begin with; clients of nodes have none that begin so."""
READ: Final = 65536
MOST_WAITING: Final = 1 << 20
"""Bytes of a client's acknowledgements that the leg has not taken."""
AGAIN: Final = 0.002
ANY: Final = 65535


class Members:
    """Makes those of the clients that come in here."""

    def __init__(self, server: Server, relay: Relay, wanting: Wanting) -> None:
        self.server = server
        self.relay = relay
        self.wanting = wanting

    @property
    def count(self) -> int:
        return sum(each.startswith(OWN) for each in self.server.sessions)

    def make(self, pair: Pair, connect: Connect) -> Mixing:
        return MemberOf(self, pair, connect)

    def forget(self, client_id: str) -> None:
        """The client's session at the home broker is its no more, or has ended."""
        server = self.server
        session = server.sessions.get(OWN + client_id)
        if session is not None and session.connection is not None:  # of a connection that has ended, or is about to
            server.disconnect(cast(Channel, session.connection), SESSION_TAKEN_OVER)
            session = server.sessions.get(OWN + client_id)
        if session is not None:
            server.ending.remove(session)


class _Leg(Entrance):
    """Lets a leg in at the node, as this user."""

    def __init__(self, username: str | None) -> None:
        super().__init__()
        self.username = username

    def admit(self, channel: Channel) -> bool:
        channel.allow_anonymous = True
        channel.use_passwords = False
        channel.identity = self.username
        return True


class MemberOf(Mixing):
    """What is mixed for one client."""

    def __init__(self, members: Members, pair: Pair, connect: Connect) -> None:
        super().__init__()
        self.members = members
        self.pair = pair
        properties = connect.properties
        self.limit = ANY if properties is None else properties.receive_maximum or ANY
        self.largest = None if properties is None else properties.maximum_packet_size
        self.username = connect.username
        self.mixer = Mixer(V5 if connect.version == V5 else V311, self.limit)
        self._leg: socket.socket | None = None
        self._fd = -1
        self._is_listening = False
        self._unread = b""
        """Of the leg, until the home broker is subscribed to."""
        self._unsent = b""
        self._is_accepted = False
        self._is_closed = False

    # ---- what comes ----------------------------------------------------------------------------------------------

    @property
    def kept(self) -> int:
        return self.mixer.kept

    def before(self, data: bytes) -> bytes:
        """What the client has sent behind its CONNECT: of it, what goes to the home broker. It may have ended then."""
        try:
            self.mixer.from_client(data)
        except Mixed as error:
            self._cannot_go_on(error)
            return b""
        found = b"".join(self.mixer.to_broker)
        self.mixer.to_broker.clear()
        return found

    def accepted(self) -> None:
        """The home broker has accepted the client."""
        tap = self.pair.tap
        if tap is None or tap.client is None:
            return
        self._is_accepted = True
        session = self.members.server.sessions.get(OWN + tap.client.client_id)
        if tap.client.session_present:
            self.mixer.is_active = True
            if session is not None:
                self.mixer.names.update(each for each in session.subscriptions if each.startswith(SHARE_PREFIX))
        elif session is not None:
            self.members.forget(tap.client.client_id)
        if self.mixer.to_leg or self.mixer.names:
            self._open(self.mixer.names)
        self._flush()

    def from_client(self, data: bytes) -> None:
        self._mix(partial(self.mixer.from_client, data))

    def from_broker(self, data: bytes) -> None:
        self._mix(partial(self.mixer.from_broker, data))

    def _mix(self, feed: partial[None]) -> None:
        try:
            feed()
        except Mixed as error:
            self._cannot_go_on(error)
            return
        self._flush()

    def _cannot_go_on(self, error: Mixed) -> None:
        log.info("client at %s ends: %s", self.pair.address, error)
        self.members.relay.end(self.pair)

    # ---- the leg -------------------------------------------------------------------------------------------------

    def _open(self, resumed: set[str]) -> None:
        members, tap = self.members, self.pair.tap
        if tap is None or tap.client is None or self._is_closed:
            return
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._leg, self._fd = ours, ours.fileno()
        version = self.mixer.version
        properties = None
        if version == V5:
            properties = Properties(
                session_expiry_interval=tap.expiry, receive_maximum=self.limit, maximum_packet_size=self.largest
            )
        is_clean = not resumed if version == V5 else not tap.client.is_persistent
        connect = Connect(OWN + tap.client.client_id, version, is_clean, properties=properties)
        self.mixer.to_leg.insert(0, encode(connect, version))
        self._listen()
        members.server.accept(theirs, f"group members, for {self.pair.address}", True, _Leg(self.username))

    def _listen(self) -> None:
        """Read from the leg, if what comes can be dealt with."""
        client = self.pair.client
        is_wanted = (
            self._leg is not None
            and not self.mixer.is_full
            and not self._unread
            and client is not None
            and not client.waiting
        )
        if is_wanted != self._is_listening:
            self._is_listening = is_wanted
            plane = self.members.server.plane
            if is_wanted:
                plane.listen(self._fd, self._readable)
            else:
                plane.unlisten(self._fd)

    def _readable(self) -> None:
        assert self._leg is not None
        try:
            data = self._leg.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            log.info("client at %s ends: the node has ended its part of the connection", self.pair.address)
            self.members.relay.end(self.pair)
            return
        if data[0] >> 4 == SUBACK or self.mixer.is_asking:
            self._unread = data
            self._listen()
            self.members.wanting.when_caught(self._go_on)
        else:
            self._mix(partial(self.mixer.from_leg, data))

    def _go_on(self) -> None:
        """The own client has subscribed to what groups want."""
        data, self._unread = self._unread, b""
        if data and not self._is_closed:
            self._mix(partial(self.mixer.from_leg, data))

    def _to_leg(self) -> None:
        if self._leg is None:
            self._open(set())
        if self._leg is None:
            return
        data = self._unsent + b"".join(self.mixer.to_leg)
        self.mixer.to_leg.clear()
        was_waiting = bool(self._unsent)
        try:
            sent = self._leg.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(data)  # reading from it tells
        self._unsent = data[sent:]
        if len(self._unsent) > MOST_WAITING:
            self.members.relay.end(self.pair)
        elif self._unsent and not was_waiting:
            self._send_later()

    def _send_later(self) -> None:
        server = self.members.server
        server.timers.at(server.hot.now + AGAIN, self._send_again)

    def _send_again(self) -> None:
        if self._leg is not None and not self._is_closed:
            self._to_leg()
            if self._unsent:
                self._send_later()

    # ---- out -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        mixer, pair, relay = self.mixer, self.pair, self.members.relay
        if mixer.to_broker:
            data = b"".join(mixer.to_broker)
            mixer.to_broker.clear()
            relay.to_broker(pair, data)
        if mixer.to_client and pair.broker is not None and pair.stage not in (CLOSED, PARTING):
            data = b"".join(mixer.to_client)
            mixer.to_client.clear()
            relay.pass_on(pair.broker, data)
        if mixer.to_leg and self._is_accepted and not self._is_closed:
            self._to_leg()
        if pair.stage in (CLOSED, PARTING):
            return
        if mixer.is_stalled != self.is_stalled:
            self.is_stalled = mixer.is_stalled
            if pair.broker is not None:
                relay.watch(pair.broker)
        self._listen()

    def drained(self) -> None:
        self._listen()

    # ---- the end -------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        leg, self._leg = self._leg, None
        if leg is None:
            return
        if self._is_listening:
            self.members.server.plane.unlisten(self._fd)
        tap = self.pair.tap
        if tap is not None and tap.expiry == 0 and self.mixer.version == V5 and not self._unsent:
            farewell = Disconnect(0, Properties(session_expiry_interval=0))
            with contextlib.suppress(OSError):  # else it lasts until it expires
                leg.send(encode(farewell, V5))
        leg.close()
