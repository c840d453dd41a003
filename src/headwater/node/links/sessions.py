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

from collections.abc import Callable

from headwater.node.links.claiming import LATER, Claims
from headwater.node.links.end import PeerEnd
from headwater.node.links.holding import SESSIONS, Holding, claim_of
from headwater.node.links.known import first_claim, has_shown
from headwater.node.links.moves import Moves
from headwater.node.links.moving import Moving
from headwater.node.links.post import Post, Service
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import SessionGate
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import (
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


class Sessions(Service):
    """`wait`, `lost`: the settings `session_wait` and `session_lost`."""

    def __init__(self, server: Server, node: str, ends: dict[str, PeerEnd], post: Post, wait: float, lost: str) -> None:
        self.name = SESSIONS
        self.server = server
        self.node = node
        self.post = post
        self.is_synced: Callable[[str], bool] = _always
        """Whether a node has told all that its clients want."""
        self.holding = Holding(server, ends, self._tell)
        self.moves = Moves(server, node, ends, self._letter, self.holding.holders.latest, self._progress)
        self.moving = Moving(self.moves)
        self.claims = Claims(server, node, ends, self.holding, self.moving, self._note, self._letter, wait, lost)

    @property
    def is_informed(self) -> bool:
        return self.holding.is_informed

    def start(self) -> None:
        """When what is on disk has been recovered."""
        self.moving.start()
        for move in self.moves.left:
            self.holding.holders.tell(Held(move.client_id, move.stamp, True))
        clock = self.claims.clock
        for session in self.server.sessions.values():
            clock.last = max(clock.last, session.claim_time if session.claim_node == self.node else 0)
            if has_shown(session):
                session.lineage = first_claim(session.lineage)  # killed before that was on disk
        self.server.gate = _Gate(self)

    def ended(self, session: Session) -> None:
        if session.claim_time:
            self.holding.holders.release(session.client_id, claim_of(session))
            self.holding.tell_soon(Move(session.client_id, claim_of(session)))

    def _progress(self, client_id: str) -> None:
        self.claims.progress(client_id)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        self.holding.tell_everything(node)
        self.claims.link_up(node)
        self.moving.arrivals.joined(node)

    def link_down(self, node: str) -> None:
        self.claims.link_down(node)

    def forgotten(self, node: str) -> None:
        self.holding.forget(node)
        self.moving.forgotten(node)
        self.claims.forgotten(node)

    def beat(self, now: float) -> None:
        self.moving.departures.beat()

    # ---- the post ----------------------------------------------------------------------------------------------------

    def _note(self, node: str, message: said.Message) -> bool:
        return self.post.note(node, self, said.encode(message))

    def _tell(self, node: str, message: said.Message) -> None:
        self._note(node, message)

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
            outcome = self.claims.asked(node, message)
            if outcome != LATER:
                self.claims.answer(message.move, outcome)
        elif isinstance(message, Answer):
            self.claims.answered(node, message)
        elif isinstance(message, Holds):
            self.holding.told(node, message)
            wills = self.server.wills
            for held in message.sessions:
                if wills is not None:
                    wills.elsewhere(held.client_id, held.stamp.time)
                if held.stamp.node == node:
                    self.claims.told(node, held)
            if message.is_all:
                self.claims.look_again()
        elif isinstance(message, Released):
            for move in message.sessions:
                self.holding.holders.release(move.client_id, move.stamp)
        else:
            self._letter_of(node, message)

    def _letter_of(self, node: str, message: said.Message) -> None:
        arrivals = self.moving.arrivals
        if isinstance(message, Claimed):
            self.claims.told_of(message.move, message.is_clean)
            if not self.claims.comes(message.move):
                self._letter(node, End(message.move))
        elif isinstance(message, Begin):
            arrivals.begin(node, message)
            self.claims.begun(node, message.move)
        elif isinstance(message, Subscriptions):
            arrivals.subscriptions(node, message)
        elif isinstance(message, Ready):
            arrivals.ready(node, message)
        elif isinstance(message, Messages):
            arrivals.messages(message)
        elif isinstance(message, Tail):
            arrivals.tail(node, message)
        elif isinstance(message, End):
            arrivals.end(node, message.move)
        elif isinstance(message, Switch):
            if message.old == self.node:
                self.claims.marked(self.node, message.move)
            self.moving.switch(message)
        else:
            assert isinstance(message, Marker)
            self.claims.marked(node, message.move)
            self.moving.marked(node, message)


class _Gate(SessionGate):
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        return self.sessions.claims.claim(channel, packet, auth_data)

    def waits(self, channel: Channel) -> bool:
        return self.sessions.claims.waits(channel)

    def attached(self, channel: Channel, session: Session) -> None:
        self.sessions.claims.attached(channel, session)

    def detached(self, channel: Channel, session: Session) -> None:
        self.sessions.claims.known.detached(channel, session)

    def ended(self, session: Session) -> None:
        self.sessions.ended(session)

    def refused(self, channel: Channel) -> None:
        self.sessions.claims.granted.pop(channel, None)


def _always(node: str) -> bool:
    return True
