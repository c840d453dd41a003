"""TLS between a channel and its socket.

Theory. OpenSSL works on memory here (ssl.MemoryBIO) and not on the socket: one read of the socket brings many records,
and one send takes many away. Everything that a read brought is decrypted before the turn goes on, so nothing can be
left inside that no event would tell of.

Out: a channel asks to send plain bytes and is told how many went. Encrypted bytes cannot be taken back, so what the
socket did not take stays in `_rest`. Of the plain bytes, those in records that went as a whole are reported; the others
(`_debt`) were encrypted and are not reported, and the channel gives them again, at the beginning of its next try. They
are left out then, and reported when their records have gone. So what a channel believes unsent, no client has got.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final

from headwater.node.channel import Channel, Transport

log = logging.getLogger("headwater.transports")

RECORD: Final = 16384
AT_A_TIME: Final = 65536
"""Plain bytes that are encrypted before the socket is asked to take them."""
FIRST_READ: Final = 2048
LARGEST_READ: Final = 61440
MOST_OWN: Final = 65536
"""Bytes that TLS itself may have waiting: who makes it answer and does not read is cut off."""


class Tls(Transport):
    """`established` is called when the handshake has ended well; what it raises (OSError) ends the connection.

    `wait_writable` is called with True when the handshake's bytes wait for the socket, with False when they went."""

    def __init__(
        self,
        channel: Channel,
        context: ssl.SSLContext,
        established: Callable[[Channel, ssl.SSLObject], None],
        wait_writable: Callable[[bool], None],
    ) -> None:
        self._channel = channel
        self._socket_recv = channel.recv
        self._socket_send = channel.send_bytes
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read: Callable[[int], bytes] = self._tls.read
        self._write: Callable[[bytes], int] = self._tls.write
        self._established = established
        self._wait_writable = wait_writable
        self._read_size = FIRST_READ
        self._ready = False
        self._ended = False
        self._rest = b""
        self._records: deque[tuple[int, int]] = deque()
        """Of what is in `_rest`: how many bytes of each record are left, and how many plain ones are in it."""
        self._debt = 0

    # ---- in ----------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        data = self._socket_recv(self._read_size)
        count = len(data)
        if count == 0:
            return data
        if count == self._read_size and count < LARGEST_READ:
            self._read_size = min(count * 2, LARGEST_READ)
        self._incoming.write(data)
        if not self._ready:
            self._handshake()
            if self._incoming.pending == 0:
                raise BlockingIOError
        try:
            data = self._decrypted(count)
        except ssl.SSLError as error:
            self._flush_own()
            raise self._failure("broke TLS", error) from None
        if self._outgoing.pending:
            self._flush_own()
        return data

    def _decrypted(self, size: int) -> bytes:
        """All that is inside, of which `size` encrypted bytes came last."""
        parts: list[bytes] = []
        try:
            while True:
                part = self._read(size)
                if not part:  # close_notify
                    if not parts:
                        return part
                    self._channel.end_of_input()
                    break
                # A record that is larger than was asked for is read in two; otherwise only `_incoming` can hold more.
                if self._incoming.pending == 0 and len(part) < size:
                    if not parts:
                        return part
                    parts.append(part)
                    break
                parts.append(part)
                size = RECORD  # the last byte of a large record may have come alone
        except ssl.SSLWantReadError:
            if not parts:
                self._flush_own()
                raise BlockingIOError from None
        return b"".join(parts)

    def _handshake(self) -> None:
        """One step; raises BlockingIOError while it is not finished, another OSError when it failed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_own()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            self._flush_own()  # the alert that says why
            raise self._failure("failed in the TLS handshake", error) from None
        self._ready = True
        self._flush_own()
        self._established(self._channel, self._tls)

    def _failure(self, what: str, error: ssl.SSLError) -> ConnectionAbortedError:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        log.info("%s %s: %s", self._channel.address, what, reason)
        return ConnectionAbortedError(reason)

    # ---- out ---------------------------------------------------------------------------------------------------

    def send(self, blob: bytes) -> int:
        """Plain bytes that have gone, perhaps none."""
        size = len(blob)
        if size <= RECORD and not self._rest:
            self._write(blob)
            data = self._outgoing.read()
            try:
                sent = self._socket_send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return size
            self._rest = data[sent:]
            self._records.append((len(data) - sent, size))
            self._debt = size
            return 0
        gone = self._send_rest() if self._rest else 0
        at = gone
        while at < size and not self._rest:
            until = min(size, at + AT_A_TIME)
            while at < until:
                end = min(at + RECORD, until)
                self._encrypt(blob[at:end])
                at = end
            gone += self._send_rest()
        return gone

    def _encrypt(self, piece: bytes) -> None:
        before = self._outgoing.pending
        written = self._write(piece)
        if written != len(piece):
            raise ConnectionAbortedError("TLS took a record in part")
        self._records.append((self._outgoing.pending - before, written))
        self._debt += written

    def _send_rest(self) -> int:
        """Send what is encrypted; how many plain bytes have gone with it."""
        rest = self._rest
        if self._outgoing.pending:
            rest = rest + self._outgoing.read() if rest else self._outgoing.read()
        try:
            sent = self._socket_send(rest)
        except BlockingIOError:
            sent = 0
        records = self._records
        if sent == len(rest):
            gone = self._debt
            self._debt = 0
            self._rest = b""
            records.clear()
            return gone
        self._rest = rest[sent:]
        gone = 0
        while sent:
            length, plain = records[0]
            if length > sent:
                records[0] = (length - sent, plain)
                break
            sent -= length
            gone += plain
            records.popleft()
        self._debt -= gone
        return gone

    def _flush_own(self) -> None:
        """Send what TLS itself has to say: the handshake, tickets, alerts."""
        pending = self._outgoing.pending
        if pending == 0:
            return
        self._records.append((pending, 0))
        if self._rest:
            self._rest += self._outgoing.read()  # goes with what waits; nobody else would report what is in front
            if len(self._rest) > 2 * AT_A_TIME + MOST_OWN:
                raise ConnectionAbortedError("it makes TLS answer and does not read")
            return
        self._send_rest()
        if self._waits() and not self._ready:
            self._wait_writable(True)

    def _waits(self) -> bool:
        return len(self._rest) > 0

    def writable(self) -> None:
        if self._waits():
            self._send_rest()
        if not self._waits():
            self._wait_writable(False)

    def end(self) -> None:
        """Say that nothing more comes (close_notify), if the socket takes it."""
        if self._ended or not self._ready or self._rest:
            return
        self._ended = True
        with contextlib.suppress(OSError):  # such as that the peer has not said so yet
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._flush_own()
