"""A client and its connection to the home broker: two sockets, what waits between them, and what the relay counts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.node.plane.channel import Channel, Entrance
from headwater.node.proxy.tapping import Tap, Verdict
from headwater.peering.homes.homes import Visit

OPENING: Final = 0
"""The client's CONNECT is not whole: there is no connection to the broker yet."""
DIALING: Final = 1
ASKED: Final = 2
"""The broker has the CONNECT."""
OPEN: Final = 3
"""The broker has accepted the client."""
CLOSED: Final = 4
CLAIMING: Final = 5
"""It is looked up where its session is: it is not read from."""
PARTING: Final = 6
"""The proxy has said its last word to the client; what it still sends is dropped until it goes."""

FIRST_READ: Final = 2048
LARGEST_READ: Final = 65536


class End:
    """One socket of a pair. `waiting`: bytes that its socket has not taken yet; while there are any, the other end is
    not read from."""

    def __init__(self, connection: socket.socket, pair: Pair, is_client: bool) -> None:
        self.connection = connection
        self.fd = connection.fileno()
        self.recv: Callable[[int], bytes] = connection.recv
        self.send: Callable[[bytes], int] = connection.send
        self.pair = pair
        self.is_client = is_client
        self.other: End | None = None
        self.carrier: Channel | None = None
        """Holds the layers (TLS, WebSocket, PROXY header) where there are any."""
        self.read_size = FIRST_READ
        self.waiting = b""
        self.stuck_since = 0.0
        """When the socket last took something of what waits."""
        self.events = 0
        """What epoll is asked for."""
        self.is_registered = False
        self.has_passage = False
        """What comes from it is passed on by passing.c, which knows where in a packet it is, and the size of reads."""
        self.is_connecting = False
        self.is_securing = False
        """A TLS handshake with the broker is under way."""
        self.wants_writable = False
        """TLS has something to say."""
        self.has_ended = False
        """Nothing more comes from here."""
        self.is_shut = False
        """It was told that nothing more comes."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Mixing:
    """What comes from elsewhere for a client, beside what its broker sends (members.py)."""

    def __init__(self) -> None:
        self.is_stalled = False
        """The broker is not to be read from."""

    @property
    def kept(self) -> int:
        """Bytes of a client that the broker has not accepted yet."""
        raise NotImplementedError

    def before(self, data: bytes) -> bytes:
        """What the client has sent behind its CONNECT: of it, what goes to the broker. The pair may have ended then."""
        raise NotImplementedError

    def accepted(self) -> None:
        """The broker has accepted the client."""
        raise NotImplementedError

    def from_client(self, data: bytes) -> None:
        raise NotImplementedError

    def from_broker(self, data: bytes) -> None:
        raise NotImplementedError

    def drained(self) -> None:
        """The client's socket has taken all that waited."""
        raise NotImplementedError

    def closed(self) -> None:
        """More than once is as once."""
        raise NotImplementedError


class Pair:
    def __init__(self, address: str, since: float, entrance: Entrance | None) -> None:
        self.address = address
        """Of the client, for people and for a PROXY header."""
        self.entrance = entrance
        self.stage = OPENING
        self.since = since
        """When the stage began."""
        self.client: End | None = None
        self.broker: End | None = None
        self.tap: Tap | None = None
        self.visit: Visit | None = None
        """Where it is to be served, if that is looked up."""
        self.mixing: Mixing | None = None
        """None: all that the client gets is its broker's."""
        self.is_led = False
        """Another proxy has led it here."""
        self.reason = ""
        """To be in its CONNACK, which is one of 5.0."""
        self.largest = 0
        """Bytes that this may have then; 0: any."""
        self.opening = b""
        """What has come of the CONNECT."""
        self.connect_size = 0
        """Bytes of it that are the CONNECT."""
        self.charge = 0
        """Bytes that it counts with among strangers (strangers.py)."""
        self.learned = 0
        """Of these, what its tap keeps, and who mixes."""
        self.crowd = ""
        """The strangers' address that it counts with; "": it is not known."""
        self.verdict: Verdict | None = None
        """Whether the broker accepts a client whose CONNECT was not understood."""
        self.is_plain = False
        """Its bytes may go the short way (passages.py): it is open, and there are no layers."""
        self.held_back = b""
        """A SUBACK that waits to be released, and what stands behind it."""


@dataclass
class RelayCounters:
    """What a relay counts; they only grow."""

    accepted: int = 0
    """Connections of clients."""
    bytes_from_clients: int = 0
    bytes_from_broker: int = 0
    cut_off: int = 0
    """Connections that gave way, or took too long, before the broker had accepted them."""
    refused: int = 0
    """Connections that were closed at once: `max_connections`."""
    not_dialed: int = 0
    """Clients for whom there was no connection to the broker."""
    stuck: int = 0
    """Connections that ended because one end took nothing for too long, or stayed when the other had ended."""
    blind: int = 0
    """Clients whose packets could not be understood any more."""
    failures: int = 0
    """Of ours."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Opening:
    """What leads from a new connection to a pair that is open (entering.py)."""

    def received(self, pair: Pair, data: bytes) -> None:
        """Bytes came from a client for which there is no connection to the broker yet."""
        raise NotImplementedError

    def learned(self, pair: Pair) -> None:
        """More may be kept now of a client that the broker has not accepted. It may have ended then."""
        raise NotImplementedError

    def connected(self, pair: Pair) -> None:
        """The connection to the broker is there, or has failed: see its socket."""
        raise NotImplementedError

    def accepted(self, pair: Pair) -> None:
        """The broker has accepted the client."""
        raise NotImplementedError

    def closed(self, pair: Pair) -> None:
        """It is gone, whatever its stage was."""
        raise NotImplementedError
