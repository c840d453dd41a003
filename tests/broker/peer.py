"""A raw MQTT peer on a blocking socket: it sends bytes and says exactly what must come back.

Every wait has its own deadline, so a scenario fails and never hangs. That nothing arrives is shown without sleeping:
a PINGREQ is sent and its PINGRESP must be the next packet (`expect_nothing`). As a broker handles one connection's
packets in order, a publisher that has had its answer (PUBACK, or its own `expect_nothing`) has been routed before.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Collection
from typing import Any, NamedTuple

from . import build

DEADLINE = 4.0
Reasons = int | Collection[int]

_open: list[Peer] = []

_RETURN_CODE_311 = {0x84: 1, 0x85: 2, 0x88: 3, 0x89: 3, 0x97: 3, 0x86: 4, 0x8C: 5, 0x87: 5, 0x8A: 5}


class Target(NamedTuple):
    """Where the broker listens. Of `ours` more is asked than of others: the exact reason, not only a close."""

    host: str
    port: int
    ours: bool

    def open(self, deadline: float) -> socket.socket:
        """A new connection: TCP here."""
        sock = socket.create_connection((self.host, self.port), timeout=deadline)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


class Publication(NamedTuple):
    """A received PUBLISH, taken apart. Property values are lists by name (see `build.PROPERTIES`)."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    pid: int | None
    properties: dict[str, list[object]]


class Peer:
    """One connection. `session_present` and `properties` (of the CONNACK) are set by `connected`.

    `deadline` is how long each wait may take, in seconds.
    """

    def __init__(self, sock: socket.socket, version: int, ours: bool, deadline: float) -> None:
        self.version = version
        self.session_present = False
        self.properties: dict[str, list[object]] = {}
        self._sock = sock
        self._ours = ours
        self.deadline = deadline
        self._buffer = bytearray()
        self._closed = False
        _open.append(self)

    @classmethod
    def connect(cls, target: Target, *, version: int = 5, deadline: float = DEADLINE) -> Peer:
        """A connection; no packet is sent."""
        return cls(target.open(deadline), version, target.ours, deadline)

    # --- sending ---

    def send(self, *packets: bytes) -> None:
        """All packets in one write."""
        self._sock.settimeout(self.deadline)
        self._sock.sendall(b"".join(packets))

    def publish(
        self,
        topic: build.Text,
        payload: bytes = b"",
        qos: int = 0,
        pid: int | None = None,
        *,
        retain: bool = False,
        **named: Any,
    ) -> None:
        """Sends a PUBLISH of this peer's version and waits until the broker has taken it."""
        self.send(build.publish(topic, payload, qos, pid, retain=retain, version=self.version, **named))
        if qos == 0:
            self.expect_nothing()
        elif qos == 1:
            self.expect_ack(build.PUBACK, pid or 1)
        else:
            self.expect_ack(build.PUBREC, pid or 1)
            self.send(build.pubrel(pid or 1))
            self.expect_ack(build.PUBCOMP, pid or 1)

    def subscribe(
        self, *filters: build.Text | tuple[build.Text, int], qos: int = 0, pid: int = 1, **named: Any
    ) -> None:
        """Sends a SUBSCRIBE and expects a SUBACK that grants what was asked."""
        self.send(build.subscribe(*filters, qos=qos, pid=pid, version=self.version, **named))
        granted = [(entry[1] if isinstance(entry, tuple) else qos) & 3 for entry in filters]
        self.expect(build.suback(*granted, pid=pid, version=self.version))

    # --- receiving ---

    def expect(self, *packets: bytes) -> None:
        """The next bytes are exactly these."""
        wanted = b"".join(packets)
        self._fill(len(wanted))
        got = bytes(self._buffer[: len(wanted)])
        if got != wanted:
            raise AssertionError(self._difference(wanted))
        del self._buffer[: len(wanted)]

    def expect_unordered(self, *packets: bytes) -> None:
        """The next packets are exactly these, in any order."""
        got = [build.packet(*self.packet()) for _ in packets]
        assert sorted(got) == sorted(packets), (
            f"expected in any order {[p.hex(' ') for p in packets]}, got {[p.hex(' ') for p in got]}"
        )

    def packet(self, within: float | None = None) -> tuple[int, bytes]:
        """The next whole packet: its first byte and its body."""
        at = 1
        while True:
            self._need(at + 1, within)
            if not self._buffer[at] & 0x80:
                break
            at += 1
        length, start = build.read_varint(bytes(self._buffer[: at + 1]), 1)
        self._need(start + length)
        first, body = self._buffer[0], bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        return first, body

    def publication(self) -> Publication:
        """The next packet, which must be a PUBLISH. It is not acknowledged."""
        first, body = self.packet()
        assert first & 0xF0 == build.PUBLISH, f"expected a PUBLISH, got {first:#04x} {body.hex(' ')}"
        topic, at = build.read_text(body, 0)
        pid, qos = None, first >> 1 & 3
        if qos:
            pid, at = int.from_bytes(body[at : at + 2], "big"), at + 2
        properties: dict[str, list[object]] = {}
        if self.version >= 5:
            properties, at = build.read_props(body, at)
        return Publication(topic.decode(), body[at:], qos, bool(first & 1), bool(first & 8), pid, properties)

    def expect_ack(self, first: int, pid: int, reason: Reasons = (0x00, 0x10)) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP in whichever of its forms; by default of success."""
        kind, body = self.packet()
        assert kind == first, f"expected {first:#04x} for packet id {pid}, got {kind:#04x} {body.hex(' ')}"
        assert body[:2] == build.two(pid), f"expected packet id {pid}, got {body.hex(' ')}"
        got = body[2] if len(body) > 2 else 0
        assert self.version >= 5 or len(body) == 2, f"3.1.1 has no reason codes: {body.hex(' ')}"
        assert got in _as_set(reason), f"expected reason {_show(reason)}, got {got:#04x}"

    def expect_nothing(self) -> None:
        """Nothing is waiting for this peer: a PINGREQ is answered, and nothing comes before the answer."""
        self.send(build.PINGREQ)
        first, body = self.packet()
        assert bytes([first, len(body)]) == build.PINGRESP, f"expected nothing, got {first:#04x} {body.hex(' ')}"

    def expect_refused(self, reason: Reasons, *, close_will_do: bool = False) -> None:
        """The CONNECT is refused: a CONNACK with that 5.0 reason (3.1.1: its return code, if it has one), then a close.

        Other brokers may close without a CONNACK, which the standard permits; with `close_will_do` ours may too.
        """
        reasons = self._acceptable(reason)
        if self.version < 5:
            reasons = {_RETURN_CODE_311[each] for each in reasons if each in _RETURN_CODE_311}
        if not reasons or ((close_will_do or not self._ours) and self.ended()):
            self.expect_eof()
            return
        first, body = self.packet()
        assert first == build.CONNACK, f"expected a CONNACK, got {first:#04x} {body.hex(' ')}"
        assert body[0] == 0, f"session present in a refusal: {body.hex(' ')}"
        assert body[1] in reasons, f"expected reason {_show(reasons)}, got {body[1]:#04x}"
        if self.version >= 5:
            assert build.read_props(body, 2)[1] == len(body)
        else:
            assert len(body) == 2
        self.expect_eof()

    def expect_closed(self, reason: Reasons | None = None, *, within: float | None = None) -> None:
        """The broker closes the connection, in 5.0 and with `reason` given after a DISCONNECT with that reason.

        Our own broker must send that DISCONNECT; another may just close. In 3.1.1 the broker sends nothing.
        """
        if reason is not None and self.version >= 5 and (self._ours or not self.ended(within)):
            first, body = self.packet(within)
            assert first == build.DISCONNECT, f"expected a DISCONNECT, got {first:#04x} {body.hex(' ')}"
            got = body[0] if body else 0
            assert got in self._acceptable(reason), f"expected reason {_show(reason)}, got {got:#04x}"
            if len(body) > 1:
                properties, end = build.read_props(body, 1)
                assert end == len(body)
                assert "session_expiry" not in properties, "a server sends no session expiry [MQTT-3.14.2-2]"
        self.expect_eof(within)

    def expect_eof(self, within: float | None = None) -> None:
        """The connection is closed and nothing comes before."""
        if not self.ended(within):
            raise AssertionError(f"expected a close, got {bytes(self._buffer).hex(' ') or 'nothing, still open'}")

    # --- ending ---

    def close(self) -> None:
        """Ends cleanly: DISCONNECT, then a close of the connection once the broker has seen it."""
        self.send(build.disconnect())
        self._sock.shutdown(socket.SHUT_WR)
        while self._receive(time.monotonic() + self.deadline):
            pass
        self._sock.close()

    def drop(self) -> None:
        """Closes the connection without a DISCONNECT."""
        self._sock.close()

    def abort(self) -> None:
        """Resets the connection (RST)."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    # --- reading ---

    def _receive(self, until: float) -> bool:
        """Reads once. False at the end of the connection or of the time."""
        left = until - time.monotonic()
        if self._closed or left <= 0:
            return False
        self._sock.settimeout(left)
        try:
            data = self._sock.recv(65536)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        self._closed = not data
        self._buffer += data
        return bool(data)

    def _fill(self, count: int, within: float | None = None) -> bool:
        until = time.monotonic() + (within or self.deadline)
        while len(self._buffer) < count:
            if not self._receive(until):
                return False
        return True

    def _need(self, count: int, within: float | None = None) -> None:
        if not self._fill(count, within):
            what = "closed" if self._closed else "silent"
            raise AssertionError(f"expected a packet; the broker is {what} after [{bytes(self._buffer).hex(' ')}]")

    def ended(self, within: float | None = None) -> bool:
        """Whether the connection ends before another byte arrives."""
        return not self._fill(1, within) and self._closed

    def _acceptable(self, reason: Reasons) -> set[int]:
        """Of other brokers we do not ask to tell a malformed packet from a protocol error."""
        reasons = _as_set(reason)
        return reasons | {0x81, 0x82} if reasons & {0x81, 0x82} and not self._ours else reasons

    def _difference(self, wanted: bytes) -> str:
        got = bytes(self._buffer)
        at = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), min(len(wanted), len(got)))
        end = " <closed>" if self._closed else ""
        return (
            f"bytes differ at offset {at}\n  expected {wanted.hex(' ')}\n  got      {got.hex(' ')}{end}\n"
            f"           {'   ' * at}^^"
        )


def connected(target: Target, client_id: build.Text = "", version: int = 5, **arguments: Any) -> Peer:
    """A peer whose CONNECT (arguments of `build.connect`) has been accepted."""
    peer = Peer.connect(target, version=version)
    peer.send(build.connect(client_id, version=version, **arguments))
    first, body = peer.packet()
    assert first == build.CONNACK, f"expected a CONNACK, got {first:#04x} {body.hex(' ')}"
    assert body[0] in (0, 1) and body[1] == 0, f"CONNECT was not accepted: {body.hex(' ')}"
    peer.session_present = body[0] == 1
    if version >= 5:
        peer.properties, end = build.read_props(body, 2)
        assert end == len(body)
    else:
        assert len(body) == 2
    return peer


def kept(version: int) -> dict[str, Any]:
    """Arguments of `connected` for a session that outlives its connection."""
    return {"clean": False, "session_expiry": 100} if version >= 5 else {"clean": False}


def drop_all() -> None:
    """Closes whatever connections are still open."""
    while _open:
        _open.pop().drop()


def _as_set(reason: Reasons) -> set[int]:
    return {reason} if isinstance(reason, int) else set(reason)


def _show(reason: Reasons) -> str:
    return " or ".join(f"{each:#04x}" for each in sorted(_as_set(reason)))
