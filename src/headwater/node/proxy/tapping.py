"""What is learned of one client from the bytes that pass: the tap.

Theory. MQTT says with SUBSCRIBE what a client wants and with SUBACK what it got, so a filter counts from its SUBACK on;
until then it waits here by packet id. What a client says is judged by the home broker, not here. Whatever cannot be
understood, or is too large to be kept, passes like all else, but from there on the client's packets are not understood
any more: `is_blind`, which is counted and logged, because what it subscribes to then is not known to other nodes.

A SUBACK can be held back until the core releases it. It, and what stands behind it in the same bytes, then waits in the
relay, which meanwhile does not read from the broker: so there is never more than one read's bytes. All SUBACKs in it
wait until the last of them is released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Final

from headwater.node.proxy.scanner import Found, Scanner
from headwater.node.proxy.tap import TappedClient, Watcher
from headwater.wire.decode import FROM_CLIENT, FROM_SERVER, decode
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import (
    CONNACK,
    DISCONNECT,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.primitives import FOR_EVER

log = logging.getLogger("headwater.proxy")

FROM_CLIENT_TYPES: Final = 1 << SUBSCRIBE | 1 << UNSUBSCRIBE | 1 << DISCONNECT
FROM_BROKER_TYPES: Final = 1 << SUBACK | 1 << UNSUBACK
LARGEST_KEPT: Final = 256 * 1024
"""Bytes of a packet that is looked into."""
MOST_PENDING: Final = 1024 * 1024
"""Bytes of filters of one client that wait for the broker's acknowledgement."""
MOST_ALIASES: Final = 256
"""Topic aliases that are remembered of one client, for those of its messages that are to be retained."""
MOST_ALIASED: Final = 64 * 1024
"""Bytes of their topics."""
REFUSED: Final = 0x80
PACKET: Final = 320
PIECE: Final = 64
"""Bytes that a packet which waits, and each filter in it, take beside the text, about."""
VERDICT: Final = 2
"""Bytes of a CONNACK that say whether it is one of success."""

names = count(1)


class Pending:
    """A SUBSCRIBE or UNSUBSCRIBE that the broker has not acknowledged yet."""

    def __init__(self, filters: list[str], size: int) -> None:
        self.filters = filters
        self.size = size


def is_success(found: Found) -> bool:
    """Of a CONNACK."""
    return len(found.body) > 1 and found.body[1] == 0


class Verdict:
    """Of a client whose CONNECT was not understood: whether the broker accepts it all the same."""

    def __init__(self) -> None:
        self._of_broker = Scanner(1 << CONNACK, False, VERDICT)

    def is_welcome(self, data: bytes) -> bool:
        """The bytes that come from the broker next say so."""
        return any(is_success(each) for each in self._of_broker.scan(data) or ())


class Tap:
    """Of a client whose CONNECT was whole. `resume` is called when nothing is held back any more."""

    def __init__(self, connect: Connect, watcher: Watcher, resume: Callable[[], None]) -> None:
        self.version = V311 if connect.version == V31 else connect.version
        self.client: TappedClient | None = None
        """None until the broker has accepted it."""
        self.is_blind = False
        self.is_accepted = False
        """The broker has said so."""
        self.holding = 0
        """SUBACKs that are held back."""
        self.of_client = Scanner(FROM_CLIENT_TYPES, True, LARGEST_KEPT)
        self.of_broker = Scanner(1 << CONNACK, False, LARGEST_KEPT)
        self._watcher = watcher
        self._resume: Callable[[], None] | None = resume
        self._client_id = connect.client_id
        self._is_clean = connect.clean_start
        self._expiry = 0
        if connect.properties is not None:
            self._expiry = connect.properties.session_expiry_interval or 0
        self._subscribing: dict[int, Pending] = {}
        self._unsubscribing: dict[int, Pending] = {}
        self._pending = 0
        self._aliases: dict[int, str] = {}
        self._aliased = 0
        self._blinded_by = ""

    @property
    def kept(self) -> int:
        """Bytes that it keeps of what the client has sent, about."""
        return self._pending + self._aliased + self.of_client.kept

    def begin(self) -> None:
        """What the client has sent behind its CONNECT comes from its beginning, perhaps once more: the broker that had
        it before has not taken it."""
        self.is_blind = False
        self.of_client = Scanner(FROM_CLIENT_TYPES, True, LARGEST_KEPT)
        self.of_broker.types &= ~FROM_BROKER_TYPES
        self._subscribing.clear()
        self._unsubscribing.clear()
        self._aliases.clear()
        self._pending = self._aliased = 0

    # ---- from the client -----------------------------------------------------------------------------------------

    def from_client(self, data: bytes) -> bool:
        """Bytes that go to the broker next. Whether there was anything in them that matters."""
        if self.is_blind:
            return False
        found = self.of_client.scan(data)
        if self.of_client.is_lost:
            self._go_blind("it sent what is no MQTT")
        if found is None:
            return False
        for each in found:
            if not self.is_blind:
                self._from_client(each)
        return True

    def _from_client(self, found: Found) -> None:
        kind = found.first_byte >> 4
        if not found.is_whole and kind in (SUBSCRIBE, UNSUBSCRIBE, DISCONNECT):
            self._go_blind(f"a packet of type {kind} has more than {LARGEST_KEPT} bytes")
            return
        try:
            packet = decode(found.first_byte, found.body, self.version, FROM_CLIENT)
        except RemoteProtocolError as error:
            if found.is_whole:
                self._go_blind(f"a packet of type {kind}: {error}")
            return
        if isinstance(packet, Subscribe):
            self._asks(self._subscribing, packet.packet_id, [each.filter for each in packet.requests])
        elif isinstance(packet, Unsubscribe):
            self._asks(self._unsubscribing, packet.packet_id, packet.filters)
        elif isinstance(packet, Publish):
            self._retains(packet, found.is_whole)
        elif isinstance(packet, Disconnect) and packet.properties is not None:
            expiry = packet.properties.session_expiry_interval
            if expiry is not None:
                self._expiry = expiry

    def _asks(self, pending: dict[int, Pending], packet_id: int, filters: list[str]) -> None:
        size = PACKET + sum([PIECE + len(each) for each in filters])
        before = pending.pop(packet_id, None)
        if before is not None:
            self._pending -= before.size
        if self._pending + size > MOST_PENDING:
            self._go_blind(f"more than {MOST_PENDING} bytes of topic filters wait for the broker's acknowledgement")
            return
        self._pending += size
        pending[packet_id] = Pending(filters, size)
        self.of_broker.types |= FROM_BROKER_TYPES

    def _retains(self, packet: Publish, is_whole: bool) -> None:
        topic = packet.topic
        alias = None if packet.properties is None else packet.properties.topic_alias
        if alias is not None:
            if not topic:
                topic = self._aliases.get(alias, "")
            else:
                self._means(alias, topic)
        if topic and self.client is not None:
            self._watcher.retained(self.client, topic, packet.payload if is_whole else None, packet.qos)

    def _means(self, alias: int, topic: str) -> None:
        """From now on; if there is no room, nobody knows what."""
        before = self._aliases.pop(alias, None)
        if before is not None:
            self._aliased -= PIECE + len(before)
        size = PIECE + len(topic)
        if len(self._aliases) < MOST_ALIASES and self._aliased + size <= MOST_ALIASED:
            self._aliases[alias] = topic
            self._aliased += size

    # ---- from the broker -----------------------------------------------------------------------------------------

    def from_broker(self, data: bytes) -> int:
        """Bytes that go to the client next. From where on they are held back; -1: they all pass."""
        if self.is_blind and self.is_accepted:
            return -1
        found = self.of_broker.scan(data)
        if found is None:
            return -1
        held_from = -1
        for each in found:
            if self._from_broker(each) and held_from < 0:
                held_from = each.start
        return held_from

    def _from_broker(self, found: Found) -> bool:
        """True: it is held back."""
        if found.first_byte >> 4 == CONNACK and is_success(found):
            self.is_accepted = True
        try:
            packet = decode(found.first_byte, found.body, self.version, FROM_SERVER)
        except RemoteProtocolError as error:
            self._go_blind(f"the broker sent a packet of type {found.first_byte >> 4}: {error}")
            return False
        if isinstance(packet, Connack):
            self._answered(packet)
        elif isinstance(packet, Suback):
            return self._granted(packet)
        elif isinstance(packet, Unsuback):
            pending = self._acknowledged(self._unsubscribing, packet.packet_id)
            if pending is not None and self.client is not None:
                self._watcher.unsubscribed(self.client, pending.filters)
        return False

    def _answered(self, packet: Connack) -> None:
        if not self.is_accepted:
            self._watcher.refused()
            return
        properties = packet.properties
        if properties is not None:
            if properties.session_expiry_interval is not None:
                self._expiry = properties.session_expiry_interval
            if properties.assigned_client_identifier is not None:
                self._client_id = properties.assigned_client_identifier
        client_id = self._client_id or f"(no client id) {next(names)}"
        self.of_broker.types &= ~(1 << CONNACK)
        self.client = TappedClient(client_id, self.version, self.is_persistent, packet.session_present)
        self._watcher.opened(self.client)
        if self._blinded_by:
            self._tell_of_blindness()

    @property
    def is_persistent(self) -> bool:
        """Whether the session outlives the connection."""
        return self._expiry > 0 if self.version == V5 else not self._is_clean

    @property
    def expiry(self) -> int:
        """Seconds that it outlives the connection by."""
        if self.version == V5:
            return self._expiry
        return 0 if self._is_clean else FOR_EVER

    def _granted(self, packet: Suback) -> bool:
        pending = self._acknowledged(self._subscribing, packet.packet_id)
        if pending is None or self.client is None:
            return False
        granted = [
            (each, reason) for each, reason in zip(pending.filters, packet.reasons, strict=False) if reason < REFUSED
        ]
        if not granted:
            return False
        self.holding += 1
        holding = Holding(self)
        if self._watcher.subscribing(self.client, packet.packet_id, granted, holding.release):
            return self.holding > 0
        holding.forget()
        return False

    def _acknowledged(self, pending: dict[int, Pending], packet_id: int) -> Pending | None:
        found = pending.pop(packet_id, None)
        if found is not None:
            self._pending -= found.size
            if not self._subscribing and not self._unsubscribing:
                self.of_broker.types &= ~FROM_BROKER_TYPES
        return found

    def released(self) -> None:
        """One SUBACK is not held back any more."""
        self.holding -= 1
        if self.holding == 0 and self._resume is not None:
            self._resume()

    # ---- its end -------------------------------------------------------------------------------------------------

    def _go_blind(self, why: str) -> None:
        if self.is_blind:
            return
        self.is_blind = True
        self._blinded_by = why
        if self.client is not None:
            self._tell_of_blindness()

    def _tell_of_blindness(self) -> None:
        """Of a client that the broker has accepted: what strangers do is not worth a warning."""
        log.warning(
            "what client %.200r subscribes to from now on is not known to other nodes: %.200s",
            *(self._client_id, self._blinded_by),
        )

    def close(self) -> None:
        """The connection is gone."""
        self._resume = None
        client = self.client
        self.client = None
        self.is_blind = True
        if client is not None:
            self._watcher.closed(client, not self.is_persistent)


class Holding:
    """One SUBACK that is held back."""

    def __init__(self, tap: Tap) -> None:
        self._tap: Tap | None = tap

    def release(self) -> None:
        """More than once is as once."""
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.released()

    def forget(self) -> None:
        """It passes at once."""
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.holding -= 1
