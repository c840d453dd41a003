"""One client, two servers: its home broker, and the proxy, which keeps the shared groups that the client is in.

    client <--- to_client --- Mixer <--- home broker
                                ^------- the proxy's own broker, over the client's leg (legs.py)

Theory. To the client there is one server. So what it says is divided, and what the two say is put together, so that
each of the three streams is MQTT of its own:

- SUBSCRIBE and UNSUBSCRIBE: names that begin with `$share/` go to the leg, the others to the home broker, under the
  client's packet id; when both have answered, their reasons are put together in the client's order. If nothing is left
  for one of the two, it is not asked.
- PUBLISH of the leg goes to the client between two packets of the home broker, with a packet id that the client has not
  from either at that time; PUBACK of such an id goes to the leg with the leg's own. Members of groups get QoS 1 at
  most, so PUBACK is all that there is to be told apart.
- Which ids the client has from the home broker is known from its PUBLISH and PUBREL packets and the client's answers.
  If the broker comes with an id that the client has from the leg, or the client has as many messages as it lets be in
  flight, the broker's PUBLISH is held back, and those behind it; what is no PUBLISH overtakes them, so that who waits
  for an acknowledgement before it gives one does not wait for ever. The broker's window bounds what is held.
- When the client has room again, held messages and those of the leg take turns.

No packet of the client or of the home broker is looked into until the client has subscribed to something, or goes on
with a session: before, nobody sends it anything.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.node.proxy.cutting import RAW, Cutter
from headwater.routing.topics import SHARE_PREFIX, InvalidTopicFilter, check_filter, split_shared
from headwater.wire.decode import FROM_CLIENT, FROM_SERVER, decode
from headwater.wire.encode import encode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.framing import PacketReader
from headwater.wire.packets import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    Packet,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)

ASKS: Final = 1 << SUBSCRIBE | 1 << UNSUBSCRIBE
ANSWERS: Final = 1 << PUBACK | 1 << PUBREC | 1 << PUBCOMP
FROM_BROKER: Final = 1 << PUBLISH | 1 << PUBREL | 1 << SUBACK | 1 << UNSUBACK
LARGEST_KEPT: Final = 256 * 1024
"""Bytes of a packet that is changed, or held back."""
MOST_PENDING: Final = 256
"""SUBSCRIBE and UNSUBSCRIBE packets that wait for their answers."""
MOST_LEVELS: Final = 65535
QOS: Final = 1
"""The highest of a member."""
REFUSED: Final = 0x80
FAR: Final = 32768
"""Where packet ids of the leg begin: brokers begin with 1."""


class Mixed(Exception):
    """The client's connection cannot go on."""


class _Asked:
    """A SUBSCRIBE or UNSUBSCRIBE of which a part went to the leg."""

    def __init__(self, is_of_leg: list[bool], is_subscribe: bool) -> None:
        self.is_of_leg = is_of_leg
        self.is_subscribe = is_subscribe
        self.of_broker: list[int] | None = None if not all(is_of_leg) else []
        self.of_leg: list[int] | None = None
        self.answer: Suback | Unsuback | None = None
        """Of the home broker."""


class Mixer:
    """`limit`: how many messages the client lets be in flight. Results are collected in the three lists; whoever calls
    takes them afterwards."""

    def __init__(self, version: int, limit: int) -> None:
        self.version = version
        self.limit = limit
        self.to_client: list[bytes] = []
        self.to_broker: list[bytes] = []
        self.to_leg: list[bytes] = []
        self.is_active = False
        """Something may be sent to it."""
        self.is_leg_up = False
        self.names: set[str] = set()
        """What it has subscribed to at the leg."""
        self.injected: dict[int, int] = {}
        """Packet ids of the leg's by those that the client knows."""
        self.held: deque[tuple[int, bytes]] = deque()
        """PUBLISH packets of the home broker, with their ids."""
        self.waiting: deque[bytes] = deque()
        """PUBLISH packets of the leg."""
        self._in_flight: set[int] = set()
        """Packet ids that the client has from the home broker."""
        self._asked: dict[int, _Asked] = {}
        self._ready: list[bytes] = []
        """Answers that go before anything else."""
        self._of_client = Cutter(LARGEST_KEPT)
        self._of_broker = Cutter(LARGEST_KEPT)
        self._of_leg = PacketReader()
        self._next = FAR
        self._leg_is_next = True
        self._stalled = b""
        """The beginning of a PUBLISH of the home broker."""
        self._behind: list[bytes] = []
        """What came behind it."""

    @property
    def is_stalled(self) -> bool:
        """The home broker must not be read from: what it sends is too large to be held back."""
        return bool(self._stalled)

    @property
    def is_asking(self) -> bool:
        """The leg owes an answer to a SUBSCRIBE."""
        return any(each.is_subscribe and each.of_leg is None for each in self._asked.values())

    @property
    def is_full(self) -> bool:
        """The leg need not be read from."""
        return bool(self.waiting)

    @property
    def kept(self) -> int:
        """Bytes of the client that are for the leg, or not whole yet."""
        return sum([len(each) for each in self.to_leg]) + self._of_client.kept

    @property
    def is_between(self) -> bool:
        """Whether the client has whole packets only."""
        return self._of_broker.is_between

    # ---- from the client -----------------------------------------------------------------------------------------

    def from_client(self, data: bytes) -> None:
        """Raises Mixed."""
        for first_byte, piece in self._of_client.cut(data, ASKS | ANSWERS if self.is_active else ASKS):
            kind = first_byte >> 4
            if first_byte == RAW:
                self.to_broker.append(piece)
            elif kind in (SUBSCRIBE, UNSUBSCRIBE):
                self._asks(first_byte, piece)
            else:
                self._answers(kind, piece)
        self._pump()

    def _asks(self, first_byte: int, packet: bytes) -> None:
        self.is_active = True
        asked = self._decoded(first_byte, packet)
        if not isinstance(asked, (Subscribe, Unsubscribe)):
            self.to_broker.append(packet)  # the home broker is to judge it
            return
        names = [each.filter for each in asked.requests] if isinstance(asked, Subscribe) else asked.filters
        is_subscribe = isinstance(asked, Subscribe)
        of_leg = [is_shared(name) if is_subscribe else name in self.names for name in names]
        if not any(of_leg):
            self.to_broker.append(packet)
            return
        if asked.packet_id in self._asked or len(self._asked) >= MOST_PENDING:
            raise Mixed("too many SUBSCRIBE packets wait for their answers, or two have one packet id")
        self._asked[asked.packet_id] = _Asked(of_leg, is_subscribe)
        self.to_leg.append(encode(_part(asked, of_leg, True), self.version))
        if not all(of_leg):
            self.to_broker.append(encode(_part(asked, of_leg, False), self.version))
        shared = {name for name, is_part in zip(names, of_leg, strict=True) if is_part}
        self.names = self.names | shared if is_subscribe else self.names - shared

    def _answers(self, kind: int, packet: bytes) -> None:
        at = _body_at(packet)
        packet_id = int.from_bytes(packet[at : at + 2], "big")
        if kind == PUBACK and packet_id in self.injected:
            of_leg = self.injected.pop(packet_id)
            self.to_leg.append(packet[:at] + of_leg.to_bytes(2, "big") + packet[at + 2 :])
            return
        if kind != PUBREC or (len(packet) > at + 2 and packet[at + 2] >= REFUSED):
            self._in_flight.discard(packet_id)
        self.to_broker.append(packet)

    # ---- from the home broker ------------------------------------------------------------------------------------

    def from_broker(self, data: bytes) -> None:
        if self._stalled:
            self._behind.append(data)
        else:
            self._from_broker(data)
        self._pump()

    def _from_broker(self, data: bytes) -> None:
        pieces = self._of_broker.cut(data, FROM_BROKER if self.is_active else 0)
        for number, (first_byte, piece) in enumerate(pieces):
            kind = first_byte >> 4
            if first_byte == RAW:
                self.to_client.append(piece)
            elif kind == PUBLISH:
                if not self._publish(first_byte, piece, number == len(pieces) - 1 and self._of_broker.skip > 0):
                    self._stalled = piece
                    return
            elif kind == PUBREL:
                at = _body_at(piece)
                self._in_flight.add(int.from_bytes(piece[at : at + 2], "big"))
                self.to_client.append(piece)
            else:
                self._acknowledges(first_byte, piece)

    def _publish(self, first_byte: int, packet: bytes, is_cut: bool) -> bool:
        """False: it has to wait, and is too large to be kept."""
        packet_id = _id_of(packet)
        if packet_id in self._in_flight or not self._waits(packet_id):
            self._in_flight.add(packet_id)
            self.to_client.append(packet)
        elif is_cut:
            return False
        else:
            self.held.append((packet_id, packet))
        return True

    def _waits(self, packet_id: int) -> bool:
        return bool(self.held) or packet_id in self.injected or self._room() <= 0

    def _acknowledges(self, first_byte: int, packet: bytes) -> None:
        answer = self._decoded(first_byte, packet, FROM_SERVER)
        asked = self._asked.get(answer.packet_id) if isinstance(answer, (Suback, Unsuback)) else None
        if asked is None or not isinstance(answer, (Suback, Unsuback)):
            self.to_client.append(packet)
            return
        asked.of_broker, asked.answer = answer.reasons, answer
        self._put_together(answer.packet_id, asked)

    # ---- from the leg --------------------------------------------------------------------------------------------

    def from_leg(self, data: bytes) -> None:
        """Raises Mixed."""
        self._of_leg.feed(data)
        for first_byte, body in self._of_leg:
            kind = first_byte >> 4
            if kind == PUBLISH:
                self.waiting.append(_whole(first_byte, body))
            elif kind == DISCONNECT or (kind == CONNACK and body[1]):
                raise Mixed("the proxy's own broker ends its part of the connection")
            elif kind == CONNACK:
                self.is_leg_up = True
            elif kind in (SUBACK, UNSUBACK):
                answer = decode(first_byte, body, self.version, FROM_SERVER)
                assert isinstance(answer, (Suback, Unsuback))
                asked = self._asked.get(answer.packet_id)
                if asked is not None:
                    asked.of_leg = answer.reasons
                    self._put_together(answer.packet_id, asked)
        self._pump()

    def _put_together(self, packet_id: int, asked: _Asked) -> None:
        if asked.of_broker is None or asked.of_leg is None:
            return
        del self._asked[packet_id]
        answer: Suback | Unsuback
        of_broker, of_leg = iter(asked.of_broker), iter(asked.of_leg)
        reasons = [next(of_leg if is_of_leg else of_broker, REFUSED) for is_of_leg in asked.is_of_leg]
        properties = None if asked.answer is None else asked.answer.properties
        if asked.is_subscribe:
            answer = Suback(packet_id, reasons, properties)
        else:
            answer = Unsuback(packet_id, reasons if self.version == V5 else [], properties)
        self._ready.append(encode(answer, self.version))

    # ---- to the client -------------------------------------------------------------------------------------------

    def _room(self) -> int:
        return self.limit - len(self._in_flight) - len(self.injected)

    def _pump(self) -> None:
        """Give the client what waits, as far as it may have it."""
        while self._stalled or self._of_broker.is_between:
            if self._ready:
                self.to_client += self._ready
                self._ready.clear()
            if not self._give_one() and not self._go_on():
                return

    def _give_one(self) -> bool:
        has_room = self._room() > 0
        can_leg = bool(self.waiting) and (has_room or not self.waiting[0][0] & 0x06)
        can_broker = bool(self.held) and has_room and self.held[0][0] not in self.injected
        if can_leg and (self._leg_is_next or not can_broker):
            self._inject(self.waiting.popleft())
            self._leg_is_next = False
        elif can_broker:
            packet_id, packet = self.held.popleft()
            self._in_flight.add(packet_id)
            self.to_client.append(packet)
            self._leg_is_next = True
        return can_leg or can_broker

    def _go_on(self) -> bool:
        """With what could not be held back, if that is not in the way any more."""
        stalled = self._stalled
        if not stalled or self._waits(_id_of(stalled)):
            return False
        self._stalled = b""
        self._in_flight.add(_id_of(stalled))
        self.to_client.append(stalled)
        behind, self._behind = b"".join(self._behind), []
        self._from_broker(behind)
        return True

    def _inject(self, packet: bytes) -> None:
        if not packet[0] & 0x06:
            self.to_client.append(packet)
            return
        at = _id_at(packet)
        taken = {packet_id for packet_id, _ in self.held}
        while self._next in self._in_flight or self._next in self.injected or self._next in taken:
            self._next = self._next % 65535 + 1
        self.injected[self._next] = int.from_bytes(packet[at : at + 2], "big")
        self.to_client.append(packet[:at] + self._next.to_bytes(2, "big") + packet[at + 2 :])
        self._next = self._next % 65535 + 1

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def _decoded(self, first_byte: int, packet: bytes, role: int = FROM_CLIENT) -> Packet | None:
        """None: it is malformed, or not whole."""
        reader = PacketReader()
        reader.feed(packet)
        try:
            frame = reader.next_frame()
            return None if frame is None else decode(first_byte, frame[1], self.version, role)
        except RemoteProtocolError:
            return None


def is_shared(name: str) -> bool:
    """Whether that names a shared group, well formed; else the home broker is to judge it."""
    if not name.startswith(SHARE_PREFIX):
        return False
    try:
        _, filter = split_shared(name)
        check_filter(filter, MOST_LEVELS)
    except InvalidTopicFilter:
        return False
    return True


def _capped(request: SubscribeRequest) -> SubscribeRequest:
    return SubscribeRequest(
        request.filter, min(request.qos, QOS), request.no_local, request.retain_as_published, request.retain_handling
    )


def _part(asked: Subscribe | Unsubscribe, of_leg: list[bool], is_legs: bool) -> Packet:
    """What the leg, or the home broker, is asked of it."""
    if isinstance(asked, Subscribe):
        requests = [each for each, is_part in zip(asked.requests, of_leg, strict=True) if is_part == is_legs]
        requests = [_capped(each) for each in requests] if is_legs else requests
        return Subscribe(asked.packet_id, requests, asked.properties)
    names = [each for each, is_part in zip(asked.filters, of_leg, strict=True) if is_part == is_legs]
    return Unsubscribe(asked.packet_id, names, asked.properties)


def _body_at(packet: bytes) -> int:
    at = 1
    while packet[at] & 0x80:
        at += 1
    return at + 1


def _id_at(packet: bytes) -> int:
    """Where the packet id of a PUBLISH stands."""
    at = _body_at(packet)
    return at + 2 + int.from_bytes(packet[at : at + 2], "big")


def _id_of(packet: bytes) -> int:
    at = _id_at(packet)
    return int.from_bytes(packet[at : at + 2], "big")


def _whole(first_byte: int, body: bytes) -> bytes:
    """A packet with its header."""
    head = bytearray((first_byte,))
    length = len(body)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body
