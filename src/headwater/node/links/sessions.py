"""Client ids are one name space of all nodes: whoever connects anywhere takes its session along.

Theory. A CONNECT is a claim, with a stamp (a hybrid logical clock and the node): of two claims of one client id, the
later one wins wherever they meet. The node asks all nodes that are linked; each gives up what it has of that client, by
an earlier claim: a connection is ended (0x8E), a session is sent (moving.py) or, with Clean Start, removed. CONNACK
waits for the answers, and for the session. So two nodes where a client connects at the same time both ask each other,
and one of them ends its connection: take-overs in a row end with one.

What needs no asking: a client that comes back to the node that has its session, and one that is given its id.

A node that cannot be asked may have the session. It has told so before (`Holders`), or nobody knows. If it is known,
`cluster.session_lost` says what becomes of the client: `clean` (it gets a new session, "session present" is 0 and
CONNACK says why) or `wait` (it is refused, 0x88, until the node is back or forgotten). When that node is back, the
stamps say who has the session, and what waits in the older one is sent after it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from headwater.node.hooks import Refusal
from headwater.node.links.end import PeerEnd
from headwater.node.links.moving import Arriving, Moving
from headwater.node.links.post import Post, Service
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import SessionGate
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import HybridClock, Stamp
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.holders import Holders
from headwater.peering.sessions.messages import (
    DENIED,
    HELD,
    MOVING,
    NOBODY,
    Answer,
    Begin,
    Claim,
    Claimed,
    End,
    Held,
    Holds,
    Marker,
    Messages,
    Move,
    Ready,
    Released,
    Subscriptions,
    Switch,
    Tail,
)
from headwater.session.session import Session
from headwater.wire.packets import Connect
from headwater.wire.reasons import SERVER_BUSY, SERVER_UNAVAILABLE, SESSION_TAKEN_OVER

log = logging.getLogger("headwater.cluster")

CLEAN: Final = "clean"
LATER: Final = -1
"""The outcome of a claim is not known yet."""
TOLD_AT_ONCE: Final = 500
"""Sessions in one note."""
MOST_WAITING: Final = 1 << 20
"""Bytes that wait for a node's socket while it is told of all sessions."""
AGAIN: Final = 0.02


class _Claim:
    """Of a client that waits."""

    def __init__(self, channel: Channel, packet: Connect, auth_data: bytes | None, move: Move) -> None:
        self.channel = channel
        self.packet = packet
        self.auth_data = auth_data
        self.move = move
        self.asked: set[str] = set()
        """Nodes that have not answered."""
        self.elsewhere: set[str] = set()
        """Nodes that the session is on its way to, which tell when it is there."""
        self.successor: Claim | None = None
        """A later claim of another node, which has ended this one and waits for what comes of it."""
        self.timer: Timer | None = None


class _Grant:
    """`olds`: the nodes that could not be asked and have a session of the client."""

    def __init__(self, move: Move, is_clean: bool, olds: list[str]) -> None:
        self.move = move
        self.is_clean = is_clean
        self.olds = olds


class _NextClaim:
    """A claim of another node of a session that is itself still arriving."""

    def __init__(self, move: Move, is_clean: bool) -> None:
        self.move = move
        self.is_clean = is_clean


class _Telling(BackgroundTask):
    """Tells a node that has just been linked who has which sessions, as fast as it reads."""

    def __init__(self, sessions: Sessions, node: str, held: list[Held], is_informed: bool) -> None:
        self.sessions = sessions
        self.held = held
        self.is_informed = is_informed
        self.end = sessions.ends[node]
        self.channel = self.end.channel

    def piece(self) -> bool:
        end, channel, sessions = self.end, self.channel, self.sessions
        if channel is None or end.channel is not channel:
            return False  # when there is a link again, all is told again
        if channel.backlog_size > MOST_WAITING:
            sessions.server.timers.at(sessions.server.hot.now + AGAIN, lambda: sessions.server.background.add(self))
            return False
        some, self.held = self.held[-TOLD_AT_ONCE:], self.held[:-TOLD_AT_ONCE]
        is_last = not self.held
        sessions.tell(end.peer, Holds(tuple(some), is_last, is_last and self.is_informed))
        return not is_last


class Sessions(Service):
    name = "sessions"

    def __init__(self, server: Server, node: str, ends: dict[str, PeerEnd], post: Post, wait: float, lost: str) -> None:
        self.server = server
        self.node = node
        self.ends = ends
        self.post = post
        self.wait = wait
        self.lost = lost
        self.is_synced: Callable[[str], bool] = _always
        """Whether a node has told all that its clients want."""
        self.clock = HybridClock(node)
        self.holders = Holders()
        self.moving = Moving(server, node, ends, self._letter, _nothing, self._progress, self.holders.latest)
        self.denied = 0
        self.refused = 0
        self._claims: dict[str, _Claim] = {}
        self._next: dict[str, _NextClaim] = {}
        self._granted: dict[Channel, _Grant] = {}
        """Who is about to be attached."""
        self._is_informed = False
        self._told_all: set[str] = set()
        """Nodes that have told all that they have."""
        self._expected: dict[str, set[str]] = {}
        """Sessions that nodes have said they send here, and from which nodes."""
        self._news: dict[str, Held | Move] = {}
        """What others are to be told: sessions and who has them, or that they have ended."""
        self._news_at: Timer | None = None

    def start(self) -> None:
        """When what is on disk has been recovered."""
        self.moving.start()
        for move in self.moving.leaving:
            self.holders.tell(Held(move.client_id, move.stamp, True))
        for session in self.server.sessions.values():
            self.clock.last = max(self.clock.last, session.claim_time if session.claim_node == self.node else 0)
        self.server.gate = _Gate(self)

    @property
    def is_informed(self) -> bool:
        """Whether this node has heard who has which sessions: from all nodes, or from one that had. One that has just
        started has not."""
        if not self._is_informed and self.ends and all(node in self._told_all for node in self.ends):
            self._is_informed = True
        return self._is_informed or not self.ends

    # ---- a client comes ----------------------------------------------------------------------------------------------

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        client_id = channel.client_id
        if not client_id:
            return True  # it is given one that nobody has
        before = self._claims.pop(client_id, None)
        if before is not None:
            self._end_claim(before, _taken_over())
        self._next.pop(client_id, None)
        session = self.server.sessions.get(client_id)
        move = Move(client_id, self.clock.stamp(_wall(), max(_claim_of(session), self.holders.latest(client_id))))
        if session is not None and not isinstance(session.moving, Arriving):
            self._granted[channel] = _Grant(move, packet.clean_start, [])
            return True
        claim = _Claim(channel, packet, auth_data, move)
        if session is None:
            body = said.encode(Claim(move, packet.clean_start))
            claim.asked = {node for node in list(self.ends) if self.post.note(node, self, body)}
        if not claim.asked and self._decide(claim, is_late=False):
            return True
        self._claims[client_id] = claim
        claim.timer = self.server.timers.at(self.server.hot.now + self.wait, lambda: self._is_late(claim))
        return False

    def waits(self, channel: Channel) -> bool:
        claim = self._claims.get(channel.client_id)
        return claim is not None and claim.channel is channel

    def attached(self, channel: Channel, session: Session) -> None:
        grant = self._granted.pop(channel, None)
        if grant is None:
            grant = _Grant(Move(session.client_id, self.clock.stamp(_wall(), _claim_of(session))), False, [])
        stamp = grant.move.stamp
        session.claim_time, session.claim_node = stamp
        session.lineage = session.lineage or f"{stamp.time} {stamp.node}"
        if grant.is_clean:
            session.clean_time = stamp.time
        self._tell_soon(_held(session))
        if self.server.wills is not None:
            self.server.wills.elsewhere(session.client_id, stamp.time)
        if grant.olds:
            log.info(
                "the session of %.200r is at node %s, which is not linked: it begins anew here",
                *(session.client_id, ", ".join(grant.olds)),
            )
            self.moving.anew(session, grant.move, grant.olds)

    def ended(self, session: Session) -> None:
        if session.claim_time:
            self.holders.release(session.client_id, _claim_of(session))
            self._tell_soon(Move(session.client_id, _claim_of(session)))

    def _decide(self, claim: _Claim, is_late: bool) -> bool:
        """All have answered that could be asked. Whether the client can be served; it may have to wait."""
        move, is_clean = claim.move, claim.packet.clean_start
        session = self.server.sessions.get(move.client_id)
        if session is None:
            return self._decide_without(claim, is_late)
        arriving = session.moving
        if isinstance(arriving, Arriving) and not is_clean:
            nodes = [self.node, *(node for node in self.ends if not self._is_away(node))]
            is_served = arriving.has_its_own() if is_late else arriving.can_be_served(nodes)
            if not is_served:
                return False
        self._granted[claim.channel] = _Grant(move, is_clean, [])
        return True

    def _decide_without(self, claim: _Claim, is_late: bool) -> bool:
        """The same where there is no session here, or not yet."""
        move, is_clean = claim.move, claim.packet.clean_start
        olds = self._may_have_it(claim)
        if is_clean:
            for node in olds:
                self._letter(node, Claimed(move, True))
            olds = []
        elif olds or not self.is_informed:
            are_away = all(self._is_away(node) for node in olds) and self.is_informed
            is_coming = any(not self._is_away(node) and node not in claim.asked for node in olds)
            if self.lost != CLEAN or is_coming or not (is_late or are_away):
                return False
        self._granted[claim.channel] = _Grant(move, is_clean, olds)
        return True

    def _may_have_it(self, claim: _Claim) -> list[str]:
        """Nodes that have said that they send the session, or may have it and have not answered."""
        client_id = claim.move.client_id
        found = self._expected.get(client_id, set()) | claim.elsewhere
        left_for = self.moving.left_for(client_id)
        if left_for.time:
            found.add(left_for.node)
        silent = {node for node in self.ends if self._is_away(node) or node in claim.asked}
        held = self.holders.get(client_id)
        if held is not None and held.lasts:
            # One that is said to have it, and says that it has not, may be about to get it from one that is silent.
            found |= {held.stamp.node} if held.stamp.node in silent else silent
        return sorted(node for node in found if node in self.ends)

    def _is_away(self, node: str) -> bool:
        """It is a member, and not linked."""
        end = self.ends.get(node)
        return end is not None and end.channel is None

    def _progress(self, client_id: str) -> None:
        """A session that is coming may be here."""
        claim = self._claims.get(client_id)
        if claim is not None:
            self._look(claim)
        session = self.server.sessions.get(client_id)
        following = self._next.get(client_id)
        if following is not None and session is not None and not isinstance(session.moving, Arriving):
            del self._next[client_id]
            if following.move.stamp > _claim_of(session):
                self._give(session, following.move, following.is_clean)

    def _serve(self, claim: _Claim) -> None:
        self._forget_claim(claim)
        self.server.connecting.claimed(claim.channel, claim.packet, claim.auth_data, None)
        self._granted.pop(claim.channel, None)  # it has gone, or was refused

    def _is_late(self, claim: _Claim) -> None:
        """Who has not answered by now is taken for away."""
        claim.timer = None
        if claim.successor is not None:
            self._pass_on(claim, claim.successor, is_late=True)
            return
        if self._decide(claim, is_late=True):
            self._serve(claim)
            return
        self.refused += 1
        text = "the session of this client is at a node that is not reached; try again later"
        self._end_claim(claim, Refusal(SERVER_UNAVAILABLE, text))

    def _end_claim(self, claim: _Claim, refusal: Refusal) -> None:
        self._forget_claim(claim)
        if claim.successor is not None:
            successor = claim.successor
            self._answer(successor.move, self._claimed(successor.move, successor.is_clean))
            return  # the client has been told
        self.server.connecting.claimed(claim.channel, claim.packet, claim.auth_data, refusal)

    def _forget_claim(self, claim: _Claim) -> None:
        if self._claims.get(claim.move.client_id) is claim:
            del self._claims[claim.move.client_id]
        if claim.timer is not None:
            self.server.timers.cancel(claim.timer)
            claim.timer = None

    # ---- a client has come elsewhere ---------------------------------------------------------------------------------

    def _asked(self, node: str, claim: Claim) -> int:
        """What is here of a client that another node has claimed, and goes there; or DENIED."""
        move = claim.move
        if move.stamp.node != node:
            raise MalformedFrame("a claim in another node's name")
        self.clock.see(move.stamp, _wall())
        own = self._claims.get(move.client_id)
        if own is not None:
            latest = own.move if own.successor is None else own.successor.move
            if latest.stamp > move.stamp:
                return DENIED
            if own.successor is None:
                self.denied += 1
                self.server.connecting.claimed(own.channel, own.packet, own.auth_data, _taken_over())
            own.successor = claim
            self._look(own)
            return LATER
        return self._claimed(move, claim.is_clean)

    def _claimed(self, move: Move, is_clean: bool) -> int:
        session = self.server.sessions.get(move.client_id)
        if session is None and self._expected.get(move.client_id):
            return self._gets_it_next(move, is_clean)
        if session is None:
            left_for = self.moving.left_for(move.client_id)
            return (HELD if left_for.node == move.stamp.node else MOVING) if left_for.time else NOBODY
        if _claim_of(session) > move.stamp:
            return DENIED
        if isinstance(session.moving, Arriving) and not is_clean:
            self._give_up_those_away(session.moving)
            if self.server.sessions.get(move.client_id) is not session:
                return NOBODY  # it went to who had claimed it before
        if isinstance(session.moving, Arriving) and not is_clean:
            return self._gets_it_next(move, is_clean)
        return self._give(session, move, is_clean)

    def _give_up_those_away(self, arriving: Arriving) -> None:
        """What they have will be sent on."""
        for old, part in list(arriving.parts.items()):
            if self._is_away(old) and (not part.is_base or self.lost == CLEAN):
                self.moving.give_up(arriving, old)

    def _gets_it_next(self, move: Move, is_clean: bool) -> int:
        """As soon as it is here."""
        following = self._next.get(move.client_id)
        if following is not None and following.move.stamp > move.stamp:
            return DENIED
        self._next[move.client_id] = _NextClaim(move, is_clean)
        return MOVING

    def _give(self, session: Session, move: Move, is_clean: bool) -> int:
        server = self.server
        if is_clean:
            if session.connection is not None:
                channel = session.connection
                assert isinstance(channel, Channel)
                server.disconnect(channel, SESSION_TAKEN_OVER)
            if server.sessions.get(session.client_id) is session:
                session.moving = None
                server.ending.remove(session)
            return NOBODY
        if not self.moving.leave(session, move):
            return NOBODY
        held = Held(move.client_id, move.stamp, True)
        self.holders.tell(held)
        self._tell_soon(held)
        return HELD

    def _answered(self, node: str, answer: Answer) -> None:
        client_id = answer.move.client_id
        if answer.move.stamp.node != self.node:
            raise MalformedFrame("an answer to another node's claim")
        if answer.outcome == HELD:  # also where the client has connected again since
            self._expected.setdefault(client_id, set()).add(node)
        claim = self._claims.get(client_id)
        if claim is None or claim.move != answer.move or node not in claim.asked:
            return
        claim.asked.discard(node)
        known = answer.known
        if known.time > 0 and known < claim.move.stamp:
            self.holders.tell(Held(client_id, known, True))
        if answer.outcome == DENIED:
            self.denied += 1
            self._end_claim(claim, _taken_over())
            return
        if answer.outcome == MOVING:
            claim.elsewhere.add(known.node if known.node in self.ends else node)
        self._look(claim)

    def _look(self, claim: _Claim) -> None:
        if claim.successor is not None:
            self._pass_on(claim, claim.successor)
        elif not claim.asked and self._decide(claim, is_late=False):
            self._serve(claim)

    def _pass_on(self, claim: _Claim, successor: Claim, is_late: bool = False) -> None:
        """Tell who claimed the session after this node what that has come to, once it is known."""
        client_id = claim.move.client_id
        is_known = client_id in self.server.sessions or bool(self._expected.get(client_id)) or not claim.asked
        if is_known or is_late:
            self._forget_claim(claim)
            self._answer(successor.move, self._claimed(successor.move, successor.is_clean))

    def _answer(self, move: Move, outcome: int) -> None:
        self.tell(move.stamp.node, Answer(move, outcome, self.holders.latest(move.client_id)))

    # ---- who has what ------------------------------------------------------------------------------------------------

    def _tell_soon(self, news: Held | Move) -> None:
        self._news[news.client_id] = news
        if self._news_at is None:
            self._news_at = self.server.timers.at(self.server.hot.now, self._tell_when_durable)

    def _tell_when_durable(self) -> None:
        """What others have heard is so also after a crash."""
        if self.server.journal is None:
            self._tell()
        else:
            self.server.journal.tell_when_durable(self._tell)

    def _tell(self) -> None:
        self._news_at = None
        held = [each for each in self._news.values() if isinstance(each, Held)]
        ended = [each for each in self._news.values() if isinstance(each, Move)]
        self._news.clear()
        for node in list(self.ends):
            for first in range(0, len(held), TOLD_AT_ONCE):
                self.tell(node, Holds(tuple(held[first : first + TOLD_AT_ONCE])))
            for first in range(0, len(ended), TOLD_AT_ONCE):
                self.tell(node, Released(tuple(ended[first : first + TOLD_AT_ONCE])))

    def link_up(self, node: str) -> None:
        held = [_held(each) for each in self.server.sessions.values() if each.claim_time]
        held += self.holders
        self.server.background.add(_Telling(self, node, held, self.is_informed))
        for claim in self._claims.values():
            if claim.successor is None and claim.move.client_id not in self.server.sessions:
                self._ask_again(node, claim)
        self.moving.joined(node)

    def link_down(self, node: str) -> None:
        for claim in list(self._claims.values()):
            if node in claim.asked:
                claim.asked.discard(node)
                self._look(claim)

    def forgotten(self, node: str) -> None:
        self.holders.forget(node)
        self._told_all.discard(node)
        for nodes in self._expected.values():
            nodes.discard(node)
        self.moving.forgotten(node)
        self.link_down(node)

    def beat(self, now: float) -> None:
        self.moving.beat()

    def _told(self, node: str, holds: Holds) -> None:
        """Of a session that is here as well, whoever has the later claim gets the other one."""
        wills = self.server.wills
        for held in holds.sessions:
            self.holders.tell(held)
            if wills is not None:
                wills.elsewhere(held.client_id, held.stamp.time)
            if held.stamp.node != node:
                continue
            claim = self._claims.get(held.client_id)
            if claim is not None and claim.successor is None and claim.move.stamp > held.stamp:
                self._ask_again(node, claim)
            session = self.server.sessions.get(held.client_id)
            if session is not None and session.claim_time and _claim_of(session) > held.stamp:
                is_clean = held.stamp.time < session.clean_time
                self._letter(node, Claimed(Move(session.client_id, _claim_of(session)), is_clean))
        if holds.is_all:
            self._told_all.add(node)
            self._is_informed = self._is_informed or holds.is_informed
            for claim in list(self._claims.values()):
                self._look(claim)

    def _ask_again(self, node: str, claim: _Claim) -> None:
        """It can be asked, or has the session, only now."""
        if self.post.note(node, self, said.encode(Claim(claim.move, claim.packet.clean_start))):
            claim.asked.add(node)

    # ---- the post ----------------------------------------------------------------------------------------------------

    def tell(self, node: str, message: said.Message) -> None:
        self.post.note(node, self, said.encode(message))

    def _letter(self, node: str, message: said.Message) -> bool:
        return self.post.letter(node, self, said.encode(message))

    def has_room(self, node: str, body: bytes) -> bool:
        """A cut has to wait: for a message that is being handed over in pieces, and would be on both sides of it, and
        for what the new node wants, if its link has just come up."""
        return not said.is_switch(body) or (self.server.publishing.long_ones == 0 and self.is_synced(node))

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        message = said.decode(body)
        if isinstance(message, (Claim, Answer, Holds, Released)) == is_letter:
            raise MalformedFrame(f"{type(message).__name__} in the wrong kind of envelope")
        if isinstance(message, Claim):
            outcome = self._asked(node, message)
            if outcome != LATER:
                self._answer(message.move, outcome)
        elif isinstance(message, Answer):
            self._answered(node, message)
        elif isinstance(message, Holds):
            self._told(node, message)
        elif isinstance(message, Released):
            for move in message.sessions:
                self.holders.release(move.client_id, move.stamp)
        else:
            self._letter_of(node, message)

    def _letter_of(self, node: str, message: said.Message) -> None:
        moving = self.moving
        if isinstance(message, Claimed):
            outcome = self._claimed(message.move, message.is_clean)
            if outcome not in (HELD, MOVING):
                self._letter(node, End(message.move))
        elif isinstance(message, Begin):
            moving.begin(node, message)
            self._begun(node, message.move)
        elif isinstance(message, Subscriptions):
            moving.subscriptions(node, message)
        elif isinstance(message, Ready):
            moving.ready(node, message.move)
        elif isinstance(message, Messages):
            moving.messages(message)
        elif isinstance(message, Tail):
            moving.tail(node, message)
        elif isinstance(message, End):
            moving.end(node, message.move)
        elif isinstance(message, Switch):
            moving.switch(message)
        else:
            assert isinstance(message, Marker)
            self._marked(node, message.move)

    def _begun(self, node: str, move: Move) -> None:
        nodes = self._expected.get(move.client_id)
        if nodes is not None:
            nodes.discard(node)
            if not nodes:
                del self._expected[move.client_id]
        session = self.server.sessions.get(move.client_id)
        if session is not None and _claim_of(session) == move.stamp:
            self._tell_soon(_held(session))

    def _marked(self, node: str, move: Move) -> None:
        """It may be the first that is heard of a claim: by another way than the claim itself."""
        if move not in self.moving.leaving and move.stamp.node != self.node:
            self._claimed(move, False)
        self.moving.marked(node, move)


class _Gate(SessionGate):
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        return self.sessions.claim(channel, packet, auth_data)

    def waits(self, channel: Channel) -> bool:
        return self.sessions.waits(channel)

    def attached(self, channel: Channel, session: Session) -> None:
        self.sessions.attached(channel, session)

    def ended(self, session: Session) -> None:
        self.sessions.ended(session)


def _claim_of(session: Session | None) -> Stamp:
    return Stamp(0, "") if session is None else Stamp(session.claim_time, session.claim_node)


def _held(session: Session) -> Held:
    return Held(session.client_id, _claim_of(session), session.expiry_interval > 0)


def _taken_over() -> Refusal:
    """For a client that waits for CONNACK, which has no code for it."""
    return Refusal(SERVER_BUSY, "the client has connected again")


def _nothing() -> None:
    pass


def _always(node: str) -> bool:
    return True


def _wall() -> int:
    return int(time.time() * 1000)
