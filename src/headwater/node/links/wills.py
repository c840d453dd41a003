"""The wills of this node's clients, each of which is published once, also if the node is killed.

Theory. A will has one *deputy*, another node that keeps a copy in memory (deputies.py). Whoever publishes the will has
to know that the other one does not:

- *This node* publishes a will that is due when the deputy has answered that it has no copy any more. Until then the
  will is on disk as due; a kill in between leaves it to the next start. It need not ask if it knows that there is no
  copy that could be published: the deputy is forgotten, or its lease is over.
- *The deputy* publishes when this node has gone, and says so in a letter, in the same commit. Letters come in order;
  so when it has answered a question by a letter, all that it has published is known here.

The name of the deputy is on disk before it gets its copy. So after a kill it is known whom to ask, and a will that has
no deputy is published at once.

A cut is the hard case: both live, and hear nothing of each other.

- A deputy publishes only if a majority of the members say, at about the same time, that they have no link with this
  node (quorum.py, deputies.py). Then this node has no majority, and notices that, `patience` later at most.
- A copy may be published until the deputy's *lease* is over, which this node renews with each heartbeat of the link.
- So if this node has been linked with a majority all the time from when it last heard of the deputy until the lease
  was over, the copy was not published, and never will be. It then appoints another deputy, and publishes what is due.
- If it has not been, it has to hear of the deputy itself. `LONGEST` with a majority and without a word of it, and the
  will is published on suspicion; without a majority, never.

    link up -> ASK epoch -> ALL epoch (letter): ready -> TELL …, DONE epoch (older copies are void), TELL for new ones
    PING, PONG with each heartbeat: the lease
    due -> RELEASE -> RELEASED (letter) -> published, and deleted from disk in the same commit
    gone -> QUERY, VOTE -> published there, SETTLED (letter) -> deleted from disk here

A client that disconnects cleanly, or is back before the delay is over, has its will dropped at the deputy, by a note
that nobody waits for. If that note does not arrive, and this node dies before the next link, the deputy publishes a
will that was void: for all that the others know, the node died before the client disconnected.

Where messages are relayed (`cluster.neighbours`) nodes cannot count each other: wills have no deputies.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final

from headwater.message import NEVER, Message
from headwater.node.links import will_notes as said
from headwater.node.links.appointed import Deputy, OwnWill
from headwater.node.links.deputies import Deputies
from headwater.node.links.links import Links
from headwater.node.links.post import Service
from headwater.node.links.quorum import Quorum
from headwater.node.links.settings import ClusterSettings
from headwater.node.persistence.records import message_in, record_of
from headwater.node.protocol.core import WillGate
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import HybridClock
from headwater.session.session import Session

log = logging.getLogger("headwater.cluster")

RECORD: Final = b"v"
LEASES: Final = 3.0
"""A lease is so many times `will_after`."""
LONGEST: Final = 600.0
"""Seconds with a majority and without a word of a deputy after which its wills are published all the same."""


class Wills(Service):
    """Made before what is on disk is recovered; `begin` when there are links."""

    def __init__(self, server: Server, settings: ClusterSettings) -> None:
        self.name = "wills"  # not of the class: compiled code would not see it
        self._server = server
        self._after = settings.will_after
        self._slack = settings.patience + 3 * settings.heartbeat
        """What it takes at most to notice that a link has ended at the other side, and a heartbeat."""
        self._heartbeat = settings.heartbeat
        self._relays = bool(settings.neighbours)
        self._go_on: Callable[[], None] | None = None
        self._links: Links | None = None
        self._own: dict[int, OwnWill] = {}
        self._deputies: dict[str, Deputy] = {}
        self._fresh: list[OwnWill] = []
        self._fresh_commit = -1
        self.held = 0
        """Wills that are due and wait for their deputies."""
        server.wills = _Gate(self)

    def begin(self, links: Links) -> None:
        """What is on disk has been recovered, members that were known are known again."""
        server = self._server
        self._links = links
        self._clock = HybridClock(links.node)
        self._quorum = Quorum(links.node, self._members, self._heartbeat, server.hot.now)
        self.copies = Deputies(server, self._quorum, self._note, self._letter, self._after, self._heartbeat)
        links.post.add(self)
        for key, value in links.spooling.kept(RECORD):
            self._take_up(int.from_bytes(key[1:], "big"), json.loads(value))
        for session in server.sessions.values():
            if session.will is not None:
                self._adopt(session)
        if self._go_on is not None:
            self._go_on()
            self._go_on = None
        for deputy in {own.deputy for own in self._own.values() if own.deputy}:
            self._deputy(deputy)

    def _take_up(self, stamp: int, fields: dict[str, str]) -> None:
        own = self._own[stamp] = OwnWill(stamp, fields["id"], fields["deputy"], None)
        own.due = message_in(base64.b64decode(fields["will"]), _offset())
        self.held += 1
        self._clock.last = max(self._clock.last, stamp)

    def _adopt(self, session: Session) -> None:
        if not session.will_deputy:
            session.will_stamp = self._clock.stamp(_wall()).time
        self._clock.last = max(self._clock.last, session.will_stamp)
        self._own[session.will_stamp] = OwnWill(session.will_stamp, session.client_id, session.will_deputy, session)

    def _members(self) -> list[str]:
        assert self._links is not None
        return [node for node, end in self._links.spooling.ends.items() if end.is_proven]

    def _deputy(self, node: str) -> Deputy:
        found = self._deputies.get(node)
        if found is None:
            found = self._deputies[node] = Deputy(self._server, node, partial(self._note, node))
        return found

    def _note(self, node: str, body: bytes) -> bool:
        return self._links is not None and self._links.post.note(node, self, body)

    def _letter(self, node: str, body: bytes) -> bool:
        return self._links is not None and self._links.post.letter(node, self, body)

    # ---- this node's clients ---------------------------------------------------------------------------------------

    def recovered(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def set(self, session: Session) -> None:
        if self._links is None:
            return
        stamp = session.claim_time or self._clock.stamp(_wall()).time
        while stamp in self._own:  # claims of two clients may have one time, if a node's clock was ahead
            stamp += 1
        session.will_stamp = stamp
        own = self._own[stamp] = OwnWill(stamp, session.client_id, "", session)
        self._appoint(own)

    def discarded(self, session: Session) -> None:
        own = self._own.pop(session.will_stamp, None)
        session.will_stamp, session.will_deputy = 0, ""
        if own is not None:
            own.session = None
        if own is not None and own.deputy:
            self._note(own.deputy, said.of_numbers(said.DROP, [own.stamp]))

    def waits(self, session: Session) -> None:
        """The deputy is to know how much of the delay has passed."""
        own = self._own.get(session.will_stamp)
        if own is not None and own.deputy:
            self._tell_soon(own)

    def holds(self, session: Session, will: Message) -> bool:
        own = self._own.get(session.will_stamp)
        session.will_stamp, session.will_deputy = 0, ""
        if own is None:
            return False
        if not own.deputy:
            del self._own[own.stamp]
            return False
        own.session = None
        own.due = will
        self.held += 1
        fields = {"id": own.client_id, "deputy": own.deputy, "will": _text_of(will)}
        self._keep(own, json.dumps(fields).encode())
        deputy = self._deputies.get(own.deputy)
        if deputy is not None:
            deputy.ask(own)
        return True

    def is_waiting(self) -> bool:
        if self._links is None or not self.held:
            return False
        return any(own.due is not None and own.deputy in self._links.up for own in self._own.values())

    def _keep(self, own: OwnWill, record: bytes | None) -> None:
        assert self._links is not None
        self._links.spooling.keep(RECORD + own.stamp.to_bytes(8, "big"), record)
        if self._server.journal is not None:
            self._server.journal.go_together()

    def _publish(self, own: OwnWill) -> None:
        """It is due, and nobody else can."""
        will = own.due
        if will is not None and self._own.pop(own.stamp, None) is not None:
            self.held -= 1
            self._keep(own, None)
            self._server.ending.send(will, own.client_id)

    # ---- who is whose deputy ---------------------------------------------------------------------------------------

    def _appoint(self, own: OwnWill) -> None:
        """Choose a deputy that is ready, and tell it when its name is on disk."""
        ready = [node for node, deputy in self._deputies.items() if deputy.is_ready]
        own.deputy = max(ready, key=partial(_weight, own.client_id), default="")
        if own.session is None or not own.deputy:
            return
        own.session.will_deputy = own.deputy
        journal = self._server.journal
        if journal is None:
            self._tell_soon(own)
            return
        journal.session_changed(own.session)
        if journal.interval > 0.0:
            self._tell_soon(own)
            return
        if self._fresh_commit != journal.sequence:
            self._fresh_commit = journal.sequence
            self._fresh = []
            journal.tell_when_durable(partial(self._tell_all, self._fresh))
        self._fresh.append(own)

    def _tell_all(self, wills: list[OwnWill]) -> None:
        self._fresh_commit = -1
        for own in wills:
            self._tell_soon(own)

    def _tell_soon(self, own: OwnWill) -> None:
        deputy = self._deputies.get(own.deputy)
        if deputy is not None:
            deputy.tell(own)

    # ---- links -----------------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        if self._relays:
            return
        now = self._server.hot.now
        self._quorum.link_up(node, now)
        self.copies.link_up(node)
        due = [own.stamp for own in self._own.values() if own.due is not None and own.deputy == node]
        self._deputy(node).link_up(self._clock.stamp(_wall()).time, due)

    def link_down(self, node: str) -> None:
        if self._relays:
            return
        now = self._server.hot.now
        self._quorum.link_down(node, now)
        self._deputy(node).link_down()
        self.copies.link_down(node)

    def forgotten(self, node: str) -> None:
        if self._relays:
            return
        self._quorum.forgotten(node, self._server.hot.now)
        if self._deputies.pop(node, None) is not None:
            self._dismiss(node)

    def leaving(self) -> None:
        """For good: this node is alone from now on."""
        for node, deputy in list(self._deputies.items()):
            self._note(node, said.of_numbers(said.DONE, [deputy.epoch + 1]))
            del self._deputies[node]
            self._dismiss(node)

    def _is_ready(self, node: str, deputy: Deputy) -> None:
        """What it has settled is known, so it may be told of the rest."""
        deputy.ready([own for own in self._own.values() if own.deputy == node and own.due is None])
        for own in list(self._own.values()):
            if not own.deputy:
                self._appoint(own)

    def _dismiss(self, node: str) -> None:
        """It has no copy that could be published."""
        for own in [each for each in self._own.values() if each.deputy == node]:
            own.deputy = ""
            if own.session is None:
                self._publish(own)
            else:
                own.session.will_deputy = ""
                if self._server.journal is not None:
                    self._server.journal.session_changed(own.session)
                self._appoint(own)

    def beat(self, now: float) -> None:
        if self._relays:
            return
        self._quorum.beat(now)
        self.copies.beat(now)
        for node, deputy in list(self._deputies.items()):
            if not deputy.epoch:
                self._judge(node, deputy, now)
            else:
                deputy.send_some()

    def _judge(self, node: str, deputy: Deputy, now: float) -> None:
        """It is not linked: does it matter any more?"""
        since = self._quorum.since
        if since == NEVER or deputy.is_dismissed:
            return
        if since <= deputy.clean and now >= deputy.lease + self._slack:
            log.info("the lease of node %s is over: its copies of wills are void", node)
            deputy.is_dismissed = True
            self._dismiss(node)
        elif now - max(since, deputy.heard) > LONGEST:
            if any(own.due is not None and own.deputy == node for own in self._own.values()):
                log.warning(
                    "nothing heard of node %s for %.0f s: publishing wills of which it had copies", node, LONGEST
                )
            deputy.is_dismissed = True
            self._dismiss(node)

    # ---- what other nodes say --------------------------------------------------------------------------------------

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        kind = body[0] if body else 0
        if is_letter != (kind in said.LETTERS):
            raise MalformedFrame("a note that should be a letter, or the other way round")
        if kind == said.TELL:
            self.copies.told(node, said.told_in(body))
        elif kind == said.PING:
            self._deputy(node).renew(said.time_in(body)[0], LEASES * self._after)
        elif kind == said.PONG:
            self.copies.renewed(node, said.time_in(body)[0])
        elif kind == said.DROP:
            self.copies.drop(node, said.numbers_in(body))
        elif kind == said.RELEASE:
            self.copies.release(node, said.numbers_in(body))
        elif kind == said.RELEASED:
            self._released(node, said.numbers_in(body))
        elif kind == said.SETTLED:
            self._settled(node, said.numbers_in(body))
        elif kind == said.QUERY:
            self._answer(node, *said.time_in(body))
        elif kind == said.VOTE:
            asked, down, of = said.vote_in(body)
            self.copies.voted(node, of, asked, down)
        elif kind in (said.ASK, said.DONE):
            (self.copies.asked if kind == said.ASK else self.copies.done)(node, said.number_in(body))
        elif kind == said.ALL:
            deputy = self._deputies.get(node)
            if said.number_in(body) == (0 if deputy is None else deputy.epoch) and deputy is not None:
                self._is_ready(node, deputy)
        else:
            raise MalformedFrame("something about wills that makes no sense")

    def _released(self, node: str, stamps: list[int]) -> None:
        for stamp in stamps:
            own = self._own.get(stamp)
            if own is not None and own.deputy == node and own.due is not None:
                self._server.timers.at(self._server.hot.now, partial(self._publish, own))

    def _settled(self, node: str, stamps: list[int]) -> None:
        """The deputy has published it, or knows that it is void."""
        for stamp in stamps:
            own = self._own.get(stamp)
            if own is None or own.deputy != node:
                continue
            del self._own[stamp]
            if own.session is None:
                self.held -= 1
                self._keep(own, None)
            else:
                session, own.session = own.session, None
                self._server.ending.discard_will(session)

    def _answer(self, node: str, asked: float, of: str) -> None:
        down = self._quorum.down_since(of)
        self._note(node, said.vote(asked, -1.0 if down == NEVER else self._server.hot.now - down, of))

    # ---- clients that come back elsewhere --------------------------------------------------------------------------

    def connected_elsewhere(self, client_id: str, stamp: int) -> None:
        """A client is connected at another node: a will whose delay is not over is void [MQTT-3.1.3-9]."""
        session = self._server.sessions.get(client_id)
        if session is not None and session.connection is None and 0 < session.will_stamp < stamp:
            self._server.ending.discard_will(session)
        self.copies.connected_elsewhere(client_id, stamp)


class _Gate(WillGate):
    def __init__(self, wills: Wills) -> None:
        self.wills = wills

    def recovered(self, go_on: Callable[[], None]) -> None:
        self.wills.recovered(go_on)

    def set(self, session: Session) -> None:
        self.wills.set(session)

    def discarded(self, session: Session) -> None:
        self.wills.discarded(session)

    def waits(self, session: Session) -> None:
        self.wills.waits(session)

    def holds(self, session: Session, will: Message) -> bool:
        return self.wills.holds(session, will)

    def elsewhere(self, client_id: str, stamp: int) -> None:
        self.wills.connected_elsewhere(client_id, stamp)

    def is_waiting(self) -> bool:
        return self.wills.is_waiting()


def _weight(client_id: str, node: str) -> bytes:
    """Rendezvous: of the nodes that are there, the one with the greatest."""
    return blake2b(f"{node}\0{client_id}".encode(), digest_size=8).digest()


def _text_of(will: Message) -> str:
    return base64.b64encode(record_of(will, _offset())).decode()


def _offset() -> float:
    return time.time() - time.monotonic()


def _wall() -> int:
    return int(time.time() * 1000)
