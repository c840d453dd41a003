"""TLS between a channel and its socket.

Theory. OpenSSL works on memory here (ssl.MemoryBIO) and not on the socket: one read of the socket brings many records,
and one send takes many away. Everything that a read brought is decrypted before the turn goes on, so nothing can be
left inside that no event would tell of. The usual case is one record in one read. It is known by its length: a record
is longer than what it holds by a number of bytes that depends on the cipher only (`_overhead`), unless it is padded.
Then there is nothing more to ask for.

Where the socket is a real one and the installation has it, all that is ordinary goes a shorter way, one call for a
read and one for a send of one record (`direct.py`). It uses the same connection and the same memory, so the two ways
can follow each other. What it does not deal with comes back here: what TLS itself has to say, the end, failures, and
what the socket did not take.

A step of the handshake takes 0.2 ms and cannot be divided, so where there is a thread for it (handshakes.py) it is done
there: `_shaking` until then. The channel is not read from meanwhile, and nothing here touches the connection. What came
behind the handshake in the same read is dealt with when it is over (`_left_inside`).

Out: a channel asks to send plain bytes and is told how many went. Encrypted bytes cannot be taken back, so what the
socket did not take stays in `_rest`. Of the plain bytes, those in records that went as a whole are reported; the others
(`_debt`) were encrypted and are not reported, and the channel gives them again, at the beginning of its next try. They
are left out then, and reported when their records have gone. So what a channel believes unsent, no client has got.

The same holds for the client's side (`server_side=False`), which speaks first (`begin`). In TLS 1.3 its handshake is
over before the server has looked at its certificate: a refusal then comes as a failure of a later read.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headwater.node.plane.channel import Channel, Transport
from headwater.node.transports.direct import records_of

log = logging.getLogger("headwater.transports")

RECORD: Final = 16384
AT_A_TIME: Final = 65536
"""Plain bytes that are encrypted before the socket is asked to take them."""
HANDSHAKE_READ: Final = 2048
FIRST_READ: Final = 464
"""Bytes asked for at first, as `channel.FIRST_READ`, but in a block of Python's own allocator."""
LARGEST_READ: Final = 61440
OVER: Final = 0
MORE: Final = 2
"""Of a step of a handshake: it was the last one; it waits for the client, as OpenSSL's SSL_ERROR_WANT_READ."""
NO_LIST: Final = 3
"""OpenSSL's X509_V_ERR_UNABLE_TO_GET_CRL."""
MOST_OWN: Final = 65536
"""Bytes that TLS itself may have waiting: who makes it answer and does not read is cut off."""
MOST_OWN_AT_FIRST: Final = 16384
"""The same before it is known who it is."""


def overhead_of(version: str | None, cipher: str) -> int:
    """Bytes that a record is longer than what it holds: head, nonce, kind and tag; 0: not always the same."""
    tag = 8 if cipher.endswith(("CCM8", "CCM_8", "CCM_8_SHA256")) else 16
    if version == "TLSv1.3":
        return 5 + 1 + tag
    if "CHACHA20" in cipher:
        return 5 + tag
    return 5 + 8 + tag if "GCM" in cipher or "CCM" in cipher else 0


class Tls(Transport):
    """`established` is called when the handshake has ended well; what it raises (OSError) ends the connection.

    `wait_writable` is called with True when the handshake's bytes wait for the socket, with False when they went.
    `begin_step`, if given, has a step of the handshake done, of which `step_done` is told; False: it cannot.
    `server_hostname` is what a client asks for, and checks if the context says so."""

    def __init__(
        self,
        channel: Channel,
        context: ssl.SSLContext,
        established: Callable[[Channel, ssl.SSLObject], None],
        wait_writable: Callable[[bool], None],
        begin_step: Callable[[Tls], bool] | None = None,
        server_hostname: str | None = None,
        server_side: bool = True,
    ) -> None:
        self._channel = channel
        self._server_side = server_side
        self.failure = ""
        """Why the connection failed, if TLS knows."""
        self._begin_step = begin_step
        self._shaking = False
        self._left_inside = False
        self._socket_recv = channel.recv
        self._socket_send = channel.send_bytes
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        # What SSLObject itself calls, without the steps in between, where there is such a thing.
        inner: Any = getattr(self._tls, "_sslobj", self._tls)
        self._read: Callable[[int], bytes] = inner.read
        self._write: Callable[[bytes], int] = inner.write
        self._put_in: Callable[[bytes], int] = self._incoming.write
        self._take_out: Callable[[], bytes] = self._outgoing.read
        self._established = established
        self._wait_writable = wait_writable
        self._read_size = HANDSHAKE_READ
        self._overhead = 0
        self._is_empty = True
        """Whether nothing of a record is inside for sure."""
        self._ready = False
        self._ended = False
        self._rest = b""
        self._records: deque[tuple[int, int]] = deque()
        """Of what is in `_rest`: how many bytes of each record are left, and how many plain ones are in it."""
        self._debt = 0
        self._direct_recv: Callable[[int], bytes | None] | None = None
        self._direct_send: Callable[[int, bytes], bytes | None] | None = None
        self._last: Callable[[], tuple[bytes, bool, str | None]] | None = None

    # ---- in ----------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        if self._left_inside:
            self._left_inside = False
            count = self._incoming.pending
        elif self._direct_recv is not None:
            received = self._direct_recv(self._channel.fd)
            return received if received is not None else self._with_more()
        else:
            data = self._socket_recv(self._read_size)
            count = len(data)
            if count == 0:
                return data
            if count == self._read_size and count < LARGEST_READ:
                self._read_size = min(count * 2, LARGEST_READ)
            self._put_in(data)
            if not self._ready:
                if self._begin_step is not None and self._begin_step(self):
                    self._shaking = True
                    raise BlockingIOError
                self._handshake()
                if self._incoming.pending == 0:
                    raise BlockingIOError
        try:
            data = self._read(count)
            if len(data) + self._overhead == count and self._is_empty:
                return data
            data = self._rest_of(data, count)
        except ssl.SSLWantReadError:
            self._is_empty = False
            self._flush_own()
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return b""  # close_notify, after we have said it ourselves
        except ssl.SSLError as error:
            self._flush_own()
            raise self._failure("broke TLS", error) from None
        if self._outgoing.pending:
            self._flush_own()
        return data

    def _with_more(self) -> bytes:
        """What was read the short way, when there was more to it than whole records of data."""
        assert self._last is not None
        data, ended, reason = self._last()
        self._flush_own()
        if reason is not None:
            self.failure = reason
            log.info("%s broke TLS: %s", self._channel.address, reason)
            raise ConnectionAbortedError(reason)
        if ended:
            if data:
                self._channel.end_of_input()
        elif not data:
            raise BlockingIOError
        return data

    def _rest_of(self, part: bytes, size: int) -> bytes:
        """All that is inside, of which `part` is the first and was read with this size."""
        parts: list[bytes] = []
        try:
            while part:
                parts.append(part)
                # A record that is larger than was asked for is read in two; otherwise only `_incoming` can hold more.
                if self._incoming.pending == 0 and len(part) < size:
                    self._is_empty = True
                    return part if len(parts) == 1 else b"".join(parts)
                size = RECORD  # the last byte of a large record may have come alone
                part = self._read(size)
        except ssl.SSLWantReadError:
            self._is_empty = False
            return b"".join(parts)
        if parts:  # and then close_notify
            self._channel.end_of_input()
        return b"".join(parts)

    def begin(self) -> None:
        """The connection is there: a client says its first word. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            self._handshake()

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
        self._complete()

    def parts(self) -> tuple[Channel, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        """For who does a step of the handshake."""
        return self._channel, self._tls, self._incoming, self._outgoing

    def step_done(self, kind: int, why: str | None, code: int) -> bool:
        """A step of the handshake was done by somebody else; whether there is something left to read behind it. Raises
        OSError when it failed."""
        self._shaking = False
        if kind == OVER:
            self._complete()
            self._left_inside = self._incoming.pending > 0
            return self._left_inside
        self._flush_own()  # what comes next, or the alert that says why not
        if kind != MORE:
            raise self._failed("failed in the TLS handshake", why or "unknown", code)
        return False

    def _complete(self) -> None:
        self._ready = True
        cipher = self._tls.cipher()
        self._overhead = overhead_of(self._tls.version(), cipher[0] if cipher else "")
        self._read_size = FIRST_READ
        self._flush_own()
        if not self._server_side and self._waits():
            self._wait_writable(True)  # the server waits for the end of the handshake, and we perhaps for the server
        self._go_short_way()
        self._established(self._channel, self._tls)

    def _go_short_way(self) -> None:
        connection = self._channel.socket
        if connection is None or connection.fileno() != self._channel.fd:
            return
        records = records_of(self._tls, self._incoming, self._outgoing)
        if records is not None:
            self._direct_recv = records.receive
            self._direct_send = records.send
            self._last = records.last

    def _failure(self, what: str, error: ssl.SSLError) -> ConnectionAbortedError:
        reason: str = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        return self._failed(what, reason, getattr(error, "verify_code", 0))

    def _failed(self, what: str, reason: str, code: int) -> ConnectionAbortedError:
        if code == NO_LIST:
            reason += "; `crl` needs the list of every authority between a client's certificate and the root"
        self.failure = reason
        log.info("%s %s: %s", self._channel.address, what, reason)
        return ConnectionAbortedError(reason)

    # ---- out ---------------------------------------------------------------------------------------------------

    def send(self, blob: bytes) -> int:
        """Plain bytes that have gone, perhaps none."""
        size = len(blob)
        if 0 < size <= RECORD and not self._rest:
            if self._direct_send is not None:
                rest = self._direct_send(self._channel.fd, blob)
                if rest is None:
                    return size
                return self._owe(rest, size)
            self._write(blob)
            data = self._take_out()
            try:
                sent = self._socket_send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return size
            return self._owe(data[sent:], size)
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

    def _owe(self, rest: bytes, size: int) -> int:
        """The only record, of so many plain bytes, went in part: nothing is reported."""
        self._rest = rest
        self._records.append((len(rest), size))
        self._debt = size
        return 0

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
            if len(self._rest) > (2 * AT_A_TIME + MOST_OWN if self._channel.known else MOST_OWN_AT_FIRST):
                raise ConnectionAbortedError("it makes TLS answer and does not read")
            return
        self._send_rest()
        if self._waits() and not self._ready:
            self._wait_writable(True)

    def _waits(self) -> bool:
        return len(self._rest) > 0

    def writable(self) -> None:
        if self._shaking:
            return  # there is nothing to send before the step is done, and we may not look
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
