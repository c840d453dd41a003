"""Wills that this node keeps for others, and publishes if their node has gone (wills.py has the theory).

A copy is published when all of this holds:

- the link with its node has been down for `will_after` seconds; one heartbeat, if its client was heard to be elsewhere;
- a majority of the members, this node included, say within one heartbeat that theirs has been down for at least as
  long: so there was a moment at which that node had no link with any of them;
- its delay is over, which began when the link ended, if not before;
- its node has renewed the lease, or the first two held before the lease was over.

What is published is settled: a letter says so to its node, in the same commit.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.message import NEVER
from headwater.node.links.quorum import Quorum
from headwater.node.links.will_notes import ALL, PING, QUERY, RELEASED, SETTLED, Told, of_numbers, of_time
from headwater.node.persistence.records import message_in
from headwater.node.protocol.admission import WILL, Publication
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.wire.errors import RemoteProtocolError

log = logging.getLogger("headwater.cluster")

ROOM: Final = 64 << 20
"""Bytes of wills that are kept for one node; those beyond are published by itself, when it is back."""
COPY_SIZE: Final = 600
"""Bytes of the objects of a copy, beside its texts."""
SOME: Final = 256
"""Wills that are published in one turn."""

Send = Callable[[str, bytes], bool]


class Copy:
    def __init__(self, told: Told, now: float) -> None:
        self.stamp = told.stamp
        self.epoch = told.epoch
        self.client_id = told.client_id
        self.record = told.record
        self.expiry = told.expiry
        self.delay = told.delay
        self.due = NEVER if told.left < 0 else now + told.left
        """NEVER: its client is connected."""
        self.is_elsewhere = False
        """The client was heard to be connected at another node."""
        self.size = COPY_SIZE + 2 * len(told.client_id) + len(told.record)

    def due_at(self, down: float) -> float:
        return down + self.delay if self.due == NEVER else self.due


class Owner:
    """A node, as the deputy of its wills sees it."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.copies: dict[int, Copy] = {}
        """By stamp."""
        self.clients: dict[str, int] = {}
        self.elsewhere: list[int] = []
        """Stamps of those that were heard of while the link was up."""
        self.size = 0
        self.epoch = 0
        self.lease = -NEVER
        """Until when copies may be published."""
        self.is_dead = False
        """A majority said so while the lease held; until it is linked again."""
        self.votes: dict[str, float] = {}
        """When those were asked whose link with it is down."""
        self.is_told = False

    def add(self, copy: Copy) -> None:
        before = self.clients.get(copy.client_id)
        if before is not None:
            self.pop(before)
        self.pop(copy.stamp)  # of another client, if its node does not keep to one stamp for each will
        self.copies[copy.stamp] = copy
        self.clients[copy.client_id] = copy.stamp
        self.size += copy.size

    def pop(self, stamp: int) -> Copy | None:
        copy = self.copies.pop(stamp, None)
        if copy is not None:
            self.size -= copy.size
            del self.clients[copy.client_id]
        return copy


class Deputies:
    """`note` and `letter` send to a node."""

    def __init__(self, server: Server, quorum: Quorum, note: Send, letter: Send, after: float, fresh: float) -> None:
        self._server = server
        self._quorum = quorum
        self._note = note
        self._letter = letter
        self._after = after
        self._fresh = fresh
        """Seconds for which an answer to QUERY counts, and for which a link has to be down at least."""
        self.room = ROOM
        self.published = 0
        self.refused = 0
        """Wills for which there was no room."""
        self._owners: dict[str, Owner] = {}

    @property
    def size(self) -> int:
        return sum(owner.size for owner in self._owners.values())

    def _owner(self, node: str) -> Owner:
        owner = self._owners.get(node)
        if owner is None:
            owner = self._owners[node] = Owner(node)
        return owner

    # ---- what other nodes say about their wills --------------------------------------------------------------------

    def asked(self, node: str, epoch: int) -> None:
        self._owner(node).epoch = epoch
        self._letter(node, of_numbers(ALL, [epoch]))
        self._note(node, of_time(PING, self._server.hot.now))

    def told(self, node: str, told: Told) -> None:
        """Raises MalformedFrame."""
        try:
            message_in(told.record, 0.0)
        except (ValueError, IndexError, struct.error, AttributeError, RemoteProtocolError) as error:
            raise MalformedFrame(f"a will that is none: {error!r}") from None
        owner = self._owner(node)
        if told.epoch != owner.epoch:
            raise MalformedFrame("a will that was told before it was asked for")
        copy = Copy(told, self._server.hot.now)
        before = owner.clients.get(told.client_id)
        if owner.size + copy.size - (0 if before is None else owner.copies[before].size) > self.room:
            self.refused += 1
            if before is not None:
                owner.pop(before)
            if not owner.is_told:
                owner.is_told = True
                log.warning("no room for more wills of node %s: it publishes them itself, when it is back", node)
            return
        owner.add(copy)

    def done(self, node: str, epoch: int) -> None:
        owner = self._owner(node)
        for copy in list(owner.copies.values()):
            if copy.epoch != epoch:
                owner.pop(copy.stamp)

    def drop(self, node: str, stamps: list[int]) -> None:
        owner = self._owner(node)
        for stamp in stamps:
            owner.pop(stamp)

    def release(self, node: str, stamps: list[int]) -> None:
        self.drop(node, stamps)
        self._letter(node, of_numbers(RELEASED, stamps))

    def renewed(self, node: str, until: float) -> None:
        owner = self._owner(node)
        owner.lease = max(owner.lease, until)

    # ---- clients that are elsewhere --------------------------------------------------------------------------------

    def connected_elsewhere(self, client_id: str, stamp: int) -> None:
        for owner in self._owners.values():
            known = owner.clients.get(client_id)
            if known is not None and known < stamp:
                owner.copies[known].is_elsewhere = True
                owner.elsewhere.append(known)
                self._see_elsewhere(owner)

    def _see_elsewhere(self, owner: Owner) -> None:
        """[MQTT-3.1.3-9] A will whose delay is not over is void. While its node is linked, that is its own business."""
        down = self._quorum.down_since(owner.node)
        if down == NEVER:
            return
        stamps, owner.elsewhere = owner.elsewhere, []
        now = self._server.hot.now
        void = [each for each in stamps if each in owner.copies and owner.copies[each].due_at(down) > now]
        for stamp in void:
            owner.pop(stamp)
        if void:
            self._settle(owner, void)

    # ---- nodes that have gone --------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        owner = self._owners.get(node)
        if owner is not None:
            owner.is_dead = False
            owner.votes.clear()

    def link_down(self, node: str) -> None:
        owner = self._owners.get(node)
        if owner is not None:
            owner.votes.clear()
            self._see_elsewhere(owner)

    def voted(self, voter: str, node: str, asked: float, down: float) -> None:
        """Its link with the node has been down for so long; < 0: it is up."""
        owner = self._owners.get(node)
        if owner is None:
            return
        if down >= self._fresh:
            owner.votes[voter] = asked
            self._server.timers.at(self._server.hot.now, partial(self._publish_due, owner))
        else:
            owner.votes.pop(voter, None)

    def beat(self, now: float) -> None:
        for node, owner in list(self._owners.items()):
            if node in self._quorum.linked:
                self._note(node, of_time(PING, now))
            elif not owner.copies:
                del self._owners[node]
            else:
                for other in self._quorum.linked:
                    self._note(other, of_time(QUERY, now, node))
                self._publish_due(owner)

    def _publish_due(self, owner: Owner) -> None:
        now = self._server.hot.now
        down = self._quorum.down_since(owner.node)
        if down == NEVER or not owner.copies:
            return
        if not owner.is_dead and now > owner.lease:
            log.info("%d wills of node %s are left to itself", len(owner.copies), owner.node)
            del self._owners[owner.node]
            owner.copies.clear()
            return
        if now - down < self._fresh or not self._is_agreed(owner, now):
            return
        if now - down >= self._after and not owner.is_dead:
            owner.is_dead = True
            log.warning("node %s has gone: publishing the wills of its clients (%d)", owner.node, len(owner.copies))
        due = [each for each in owner.copies.values() if self._is_due(each, down, now)]
        if due:
            self._publish(owner, due[:SOME], now)
        if len(due) > SOME:
            self._server.timers.at(now, partial(self._publish_due, owner))

    def _is_agreed(self, owner: Owner, now: float) -> bool:
        voters = {node for node, asked in owner.votes.items() if now - asked <= self._fresh}
        return self._quorum.is_majority({self._quorum.node, *voters & self._quorum.linked})

    def _is_due(self, copy: Copy, down: float, now: float) -> bool:
        wait = self._fresh if copy.is_elsewhere else self._after
        return max(copy.due_at(down), down + wait) <= now

    def _publish(self, owner: Owner, copies: list[Copy], now: float) -> None:
        server = self._server
        for copy in copies:
            owner.pop(copy.stamp)
            will = message_in(copy.record, 0.0)
            if copy.expiry >= 0:
                will.expires_at = now + copy.expiry
            self.published += 1
            if server.admission.admit(Publication(WILL, will, None)) is None:
                server.ending.send(will, copy.client_id)
        self._settle(owner, [copy.stamp for copy in copies])

    def _settle(self, owner: Owner, stamps: list[int]) -> None:
        """In the commit of what was published."""
        self._letter(owner.node, of_numbers(SETTLED, stamps))
        if self._server.journal is not None:
            self._server.journal.go_together()
