"""What one turn of the loop has collected and not sent yet, in its order.

Theory. A QoS 0 message waits, once, in the `Batch` of those who get it until the turn ends. What goes to the same
channel by another way must not overtake it. So a channel is claimed by the one batch that holds something for it;
another batch that wants to hold something for it, or anything written directly, first settles what is held. While a
single batch is open, which is the usual case, there is nothing to claim.

At the end of the turn each channel gets one send. What came of work that may wait is sent in slices: a message for a
thousand channels is a thousand sends, and others need not wait for all of them. A channel whose send has to wait stays
`dirty`, so what is written to it meanwhile goes out behind it, in the same send. What the socket does not take waits in
the channel's backlog, in pieces, bounded by `outbound_buffer` and by the budget of all that waits.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.message import NEVER, Delivery, Message
from headwater.node.destinations.destination import Batch
from headwater.node.plane.background import BackgroundTasks
from headwater.node.plane.channel import Channel, Deliver, Share, Slow
from headwater.node.plane.counters import Counters
from headwater.node.plane.unsent import cut_behind, pieces_of
from headwater.session.journaled import DurableDelivery, JournaledMessage
from headwater.session.translate import message_of
from headwater.session.waiting import Budget
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.packets import V5, V311, Publish
from headwater.wire.primitives import ANY_NUMBER

BACKLOG_PIECE: Final = 262144
"""What waits for a slow reader is kept in pieces of at most this size, so that sending one copies little."""
LITTLE: Final = 1024
"""Bytes of answers that may wait until more packets of their client have been dealt with."""
SMALL_WAIT: Final = 65536
"""So many bytes may wait for each reader even when the budget is used up; who needs more then is cut off."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Journaling:
    """The journal (persistence/journal.py), as the hot path sees it."""

    def turn_ended(self) -> None:
        """Something has changed in the turn that ends."""
        raise NotImplementedError

    def promise(self, channel: Channel) -> None:
        """What the channel sends from now on waits for all that has changed until now."""
        raise NotImplementedError

    def packet(self, head: bytes, tail: bytes, version: int, publisher: str) -> JournaledMessage:
        """A message as the packet that it came in."""
        raise NotImplementedError

    def keep_journaled(self, owner: int, journaled: JournaledMessage, qos: int) -> DurableDelivery:
        """A delivery of such a message, for a session or a group."""
        raise NotImplementedError

    def done(self, entry: DurableDelivery) -> None:
        """It was acknowledged to its end, or nobody waits for it any more."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Outgoing:
    """What is collected for other nodes (links/sending.py), as a turn sees it."""

    def __init__(self) -> None:
        self.is_open = False
        """Something is collected that `settle` has to hand to its links."""

    def settle(self) -> None:
        raise NotImplementedError

    def begin_own(self) -> None:
        """Until `end_own`, what comes is published here, though a message of another node is being dealt with."""
        raise NotImplementedError

    def end_own(self) -> None:
        raise NotImplementedError


class Turn:
    slow: Slow
    delivering: Deliver
    sharing: Share

    def __init__(self, stats: Counters, budget: Budget) -> None:
        self.stats = stats
        self.budget = budget
        self.now = 0.0
        self.until = NEVER
        """When, by `time.monotonic`, the time of this turn for packets that go the ordinary way is over."""
        self.max_connect_size = 0
        self.outbound_buffer = 0
        self.background = BackgroundTasks()
        self.open: list[Batch] = []
        self.dirty: list[Channel] = []
        self.unsent: deque[Channel] = deque()
        """Those that something is to be sent to in later turns."""
        self.outgoing: Outgoing | None = None
        self.journal: Journaling | None = None
        self.changed = False
        """Something that is kept on disk has changed in this turn."""
        self.durable = 0
        """The last commit that is on disk (node/persistence/journal.py)."""
        self.withholding: list[Channel] = []
        self.held_blob = b""
        self.held_messages: list[Message] = []
        """Those in `held_blob`: several channels may have to be offered them."""

    def feed(self, channel: Channel, data: bytes) -> None:
        """Deal with all whole packets in what arrived; keep the rest (hotpath.py)."""
        raise NotImplementedError

    # ---- order -------------------------------------------------------------------------------------------------

    def touch(self, batch: Batch) -> None:
        """The batch is about to hold pieces."""
        opened = self.open
        if opened:
            first = opened[0]
            if first.dirty and not first.claimed:
                self._claim(first)
            self._claim(batch)
        batch.dirty = True
        opened.append(batch)

    def _claim(self, batch: Batch) -> None:
        batch.claimed = True
        for members in (batch.members4, batch.members5):
            for channel in members:
                holder = channel.pending
                if holder is not None and holder is not batch and holder.dirty:
                    self._settle(holder)
                channel.pending = batch

    def settle_all(self) -> None:
        for batch in self.open:
            if batch.dirty:
                self._settle(batch)
        self.open.clear()

    def _settle(self, batch: Batch) -> None:
        """Hand what the batch holds to its members."""
        batch.dirty = False
        batch.claimed = False
        count = batch.count
        commit = batch.commit
        batch.count = 0
        batch.commit = 0
        if batch.pieces4:
            self._hand_out(batch.pieces4, batch.members4, count, V311, commit)
            batch.pieces4 = []
        if batch.pieces5:
            self._hand_out(batch.pieces5, batch.members5, count, V5, commit)
            batch.pieces5 = []

    def _hand_out(self, pieces: list[bytes], members: list[Channel], count: int, version: int, commit: int) -> None:
        blob = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        stats = self.stats
        dirty = self.dirty
        for channel in members:
            if channel.held:
                self._hold(channel, blob, version, commit)
                continue
            if commit > channel.barrier:
                channel.barrier = commit
            channel.out.append(blob)
            stats.messages_sent += count
            stats.sent += count
            if not channel.dirty:
                channel.dirty = True
                dirty.append(channel)

    def _hold(self, channel: Channel, blob: bytes, version: int, commit: int) -> None:
        """QoS 0 packets for a channel where something waits already: offer them one by one."""
        session = channel.session
        if session is None:
            return
        if blob is not self.held_blob:
            self.held_blob = blob
            self.held_messages = self._messages_in(blob, version)
        for message in self.held_messages:
            message.commit = commit
            self.delivering.offer(session, Delivery(message, 0, False))

    def _messages_in(self, blob: bytes, version: int) -> list[Message]:
        messages: list[Message] = []
        pos = 0
        while pos < len(blob):
            p = pos + 1
            remaining = 0
            shift = 0
            while True:
                byte = blob[p]
                p += 1
                remaining |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            packet = decode(blob[pos], blob[p : p + remaining], version, FROM_CLIENT, ANY_NUMBER)
            assert isinstance(packet, Publish)
            pos = p + remaining
            messages.append(message_of(packet, "", self.now))
        return messages

    # ---- out ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The end of a turn: one send for each connection that has something."""
        self._end()
        if self.dirty:
            channels = self.dirty
            self.dirty = []
            for channel in channels:
                self._send_once(channel)

    def flush_later(self) -> None:
        """The end of a turn whose sends may wait (`send_some`). Answers to a channel that has more packets to be
        answered wait for these: a call of the system for each slice of them would take longer than the slice."""
        self._end()
        for channel in self.dirty:
            if channel.postponed and sum([len(piece) for piece in channel.out]) < LITTLE:
                channel.dirty = False
            else:
                self.unsent.append(channel)
        self.dirty = []

    def send_held_back(self, channel: Channel) -> None:
        """It has no packets any more that were postponed."""
        if channel.out and not channel.dirty:
            channel.dirty = True
            self.dirty.append(channel)

    def _end(self) -> None:
        if self.open:
            self.settle_all()
        if self.outgoing is not None and self.outgoing.is_open:
            self.outgoing.settle()
        if self.changed and self.journal is not None:
            self.journal.turn_ended()

    def send_some(self, until: float) -> None:
        """Those that have waited longest, one at least, until this time of `time.monotonic`."""
        unsent = self.unsent
        while unsent:
            self._send_once(unsent.popleft())
            if time.monotonic() > until:
                break

    def _send_once(self, channel: Channel) -> None:
        channel.dirty = False
        try:
            self.transmit(channel)
        except Exception:
            self.slow.crashed(channel)

    def transmit(self, channel: Channel) -> None:
        """Send what the channel has, or withhold it if it promises what is not on disk yet."""
        out = channel.out
        if not out or channel.fd < 0:
            return
        blob = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        channel.out_size = 0
        if channel.barrier > self.durable:
            self._withhold(channel, blob)
        else:
            self._put_out(channel, blob)

    def _withhold(self, channel: Channel, blob: bytes) -> None:
        if channel.withheld is None:
            channel.withheld = deque()
            self.withholding.append(channel)
        channel.withheld.append((channel.barrier, blob))
        channel.withheld_size += len(blob)
        self.budget.used += len(blob)
        if not channel.congested and channel.withheld_size > self.outbound_buffer:
            channel.congested = True
            channel.held = True
            self.slow.overfull(channel)

    def release(self) -> None:
        """A commit is on disk: send what waited for it."""
        channels = self.withholding
        self.withholding = []
        for channel in channels:
            withheld = channel.withheld
            if withheld is None:
                continue
            pieces: list[bytes] = []
            while withheld and withheld[0][0] <= self.durable:
                pieces.append(withheld.popleft()[1])
            if withheld:
                self.withholding.append(channel)
            else:
                channel.withheld = None
            if pieces:
                try:
                    self._released(channel, b"".join(pieces))
                except Exception:
                    self.slow.crashed(channel)

    def _released(self, channel: Channel, blob: bytes) -> None:
        channel.withheld_size -= len(blob)
        self.budget.used -= len(blob)
        self._put_out(channel, blob)
        all_sent = channel.fd >= 0 and channel.backlog_size == 0 and channel.withheld is None
        if all_sent and (channel.finishing or channel.congested):
            self.slow.written(channel)

    def _put_out(self, channel: Channel, blob: bytes) -> None:
        """Give bytes to the socket; what it does not take waits."""
        size = len(blob)
        if channel.backlog_size == 0:
            try:
                sent = channel.send_bytes(blob) if channel.transport is None else channel.transport.send(blob)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.slow.lost(channel)
                return
            self.stats.bytes_sent += sent
            if sent == size:
                return
            if channel.shares:
                channel.cut = cut_behind(blob, 0, sent)
            if sent:
                blob = blob[sent:]
                size -= sent
            channel.backlog = deque()
            channel.progress_at = self.now
            self.slow.writable_wanted(channel)
        budget = self.budget
        if size > SMALL_WAIT and (budget.used + size > budget.limit or budget.sockets + size > budget.limit // 2):
            self.slow.exhausted(channel)
            return
        backlog = channel.backlog
        assert backlog is not None
        if size <= BACKLOG_PIECE:
            backlog.append(blob)
        elif channel.shares:
            backlog.extend(pieces_of(blob, 0 if channel.backlog_size else channel.cut, BACKLOG_PIECE))
        else:
            for start in range(0, size, BACKLOG_PIECE):
                backlog.append(blob[start : start + BACKLOG_PIECE])
        channel.backlog_size += size
        budget.used += size
        budget.sockets += size
        if not channel.congested and (
            channel.backlog_size > self.outbound_buffer
            or budget.used > budget.limit
            or budget.sockets > budget.limit // 2
        ):
            channel.congested = True
            channel.held = True
            self.slow.overfull(channel)

    def writable(self, channel: Channel) -> bool:
        """The socket takes bytes again; True when nothing waits any more."""
        backlog = channel.backlog
        assert backlog is not None
        pieces = [backlog.popleft()]
        size = len(pieces[0])
        while backlog and size + len(backlog[0]) <= BACKLOG_PIECE:
            piece = backlog.popleft()
            pieces.append(piece)
            size += len(piece)
        blob = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            sent = channel.send_bytes(blob) if channel.transport is None else channel.transport.send(blob)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.slow.lost(channel)
            return False
        self.stats.bytes_sent += sent
        self.budget.used -= sent
        self.budget.sockets -= sent
        channel.backlog_size -= sent
        if channel.shares:
            channel.cut = cut_behind(blob, channel.cut, sent)
        if sent:
            channel.progress_at = self.now
        if channel.backlog_size == 0:
            channel.backlog = None
            return True
        if sent < size:
            backlog.appendleft(blob[sent:])
        return False
