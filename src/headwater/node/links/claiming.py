"""A client connects: its session is claimed, here or elsewhere (theory in sessions.py)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from headwater.node.hooks import Refusal
from headwater.node.links.arriving import Arriving
from headwater.node.links.claim import Grant, NextClaim, PendingClaim
from headwater.node.links.end import PeerEnd
from headwater.node.links.holding import Holding, claim_of, held_by
from headwater.node.links.known import Known, doubt
from headwater.node.links.moving import Moving
from headwater.node.plane.channel import Channel
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.retained.clock import HybridClock
from headwater.peering.sessions import messages as said
from headwater.peering.sessions.messages import (
    DENIED,
    HELD,
    MAX_CUTS,
    MOVING,
    NOBODY,
    Answer,
    Claim,
    Claimed,
    End,
    Held,
    Move,
)
from headwater.session.session import UNSEEN, Session
from headwater.wire.packets import Connect
from headwater.wire.reasons import SERVER_BUSY, SERVER_UNAVAILABLE, SESSION_TAKEN_OVER

log = logging.getLogger("headwater.cluster")

CLEAN: Final = "clean"
MOST_BEGUN: Final = 10_000
LATER: Final = -1
"""The outcome of a claim is not known yet."""


class Claims:
    """`note` sends one, if it can; `letter` does in any case."""

    def __init__(
        self,
        server: Server,
        node: str,
        ends: dict[str, PeerEnd],
        holding: Holding,
        moving: Moving,
        note: Callable[[str, said.Message], bool],
        letter: Callable[[str, said.Message], bool],
        wait: float,
        lost: str,
    ) -> None:
        self.server = server
        self.node = node
        self.ends = ends
        self.holding = holding
        self.moving = moving
        self.known = Known(moving.moves)
        self._note = note
        self._letter = letter
        self.wait = wait
        self.lost = lost
        self.clock = HybridClock(node)
        self.denied = 0
        self.refused = 0
        self.pending: dict[str, PendingClaim] = {}
        self.following: dict[str, NextClaim] = {}
        self.granted: dict[Channel, Grant] = {}
        """Who is about to be attached."""
        self._begun: dict[tuple[str, str], int] = {}
        """The last claims that sessions have come by, by client id and node: the note that says so may come later."""
        self.expected: dict[str, set[str]] = {}
        """Sessions that nodes have said they send here, and from which nodes."""

    # ---- a client comes ----------------------------------------------------------------------------------------------

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        client_id = channel.client_id
        if not client_id:
            return True  # it is given one that nobody has
        before = self.pending.pop(client_id, None)
        if before is not None:
            self._end_claim(before, _taken_over())
        self._follows_no_more(client_id)
        session = self.server.sessions.get(client_id)
        known = self.holding.holders.latest(client_id)
        move = Move(client_id, self.clock.stamp(_wall(), max(claim_of(session), known)))
        is_latest = known <= claim_of(session)  # else the client has been served elsewhere since
        if session is not None and is_latest and not isinstance(session.moving, Arriving):
            self.granted[channel] = Grant(move, packet.clean_start, [])
            return True
        claim = PendingClaim(channel, packet, auth_data, move)
        if session is None or not is_latest:
            claim.asked = {node for node in list(self.ends) if self._ask(node, claim)}
        if not claim.asked and self._decide(claim, is_late=False):
            return True
        self.pending[client_id] = claim
        claim.timer = self.server.timers.at(self.server.hot.now + self.wait, lambda: self._is_late(claim))
        return False

    def waits(self, channel: Channel) -> bool:
        claim = self.pending.get(channel.client_id)
        return claim is not None and claim.channel is channel

    def attached(self, channel: Channel, session: Session) -> None:
        grant = self.granted.pop(channel, None)
        if grant is None:
            grant = Grant(Move(session.client_id, self.clock.stamp(_wall(), claim_of(session))), False, [])
        stamp = grant.move.stamp
        session.claim_time, session.claim_node = stamp
        session.served_time, session.served_node = stamp
        session.lineage = session.lineage or f"{UNSEEN if grant.begins_anew else ''}{stamp.time} {stamp.node}"
        self.known.attached(channel, session)
        if grant.is_clean:
            session.clean_time = stamp.time
        self.holding.tell_soon(held_by(session))
        if self.server.wills is not None:
            self.server.wills.elsewhere(session.client_id, stamp.time)
        if grant.olds:
            log.info(
                "the session of %.200r is at node %s, which is not linked: it begins anew here",
                *(session.client_id, ", ".join(grant.olds)),
            )
            self.moving.arrivals.anew(session, grant.move, grant.olds, grant.is_alone)

    def _decide(self, claim: PendingClaim, is_late: bool) -> bool:
        """All have answered that could be asked. Whether the client can be served; it may have to wait."""
        move, is_clean = claim.move, claim.packet.clean_start
        session = self.server.sessions.get(move.client_id)
        if session is None:
            return self._decide_without(claim, is_late)
        if self.expected.get(move.client_id) and not is_clean:
            return False  # it may be the one that the client knows
        arriving = session.moving
        if isinstance(arriving, Arriving) and not is_clean:
            is_served = arriving.has_its_own() if is_late else arriving.can_be_served(self._linked())
            if not is_served:
                return False
        self.granted[claim.channel] = Grant(move, is_clean, [])
        return True

    def _decide_without(self, claim: PendingClaim, is_late: bool) -> bool:
        """The same where there is no session here, or not yet."""
        move, is_clean = claim.move, claim.packet.clean_start
        olds = self._may_have_it(claim)
        if is_clean:
            for node in olds:
                self._letter(node, Claimed(move, True))
            olds = []
        elif olds or not self.holding.is_informed:
            are_away = all(self._is_away(node) for node in olds) and self.holding.is_informed
            is_coming = any(not self._is_away(node) and node not in claim.asked for node in olds)
            if self.lost != CLEAN or is_coming or not (is_late or are_away):
                return False
        begins_anew = not is_clean and (bool(olds) or not self.holding.is_informed)
        # Nobody else has, or will have, what the old one has: else QoS 2 of it may have been delivered by another one.
        is_alone = self.holding.is_informed and len(olds) == 1 and claim.without.union(olds).issuperset(self.ends)
        self.granted[claim.channel] = Grant(move, is_clean, olds, begins_anew, is_alone)
        return True

    def _may_have_it(self, claim: PendingClaim) -> list[str]:
        """Nodes that have said that they send the session, or may have it and have not answered."""
        client_id = claim.move.client_id
        found = self.expected.get(client_id, set()) | claim.elsewhere
        left_for = self.moving.moves.left_for(client_id)
        if left_for.time:
            found.add(left_for.node)
        silent = {node for node in self.ends if self._is_away(node) or node in claim.asked}
        held = self.holding.holders.get(client_id)
        if held is not None and held.lasts:
            # One that is said to have it, and says that it has not, may be about to get it from one that is silent.
            found |= {held.stamp.node} if held.stamp.node in silent else silent
        return sorted(node for node in found if node in self.ends)

    def _linked(self) -> list[str]:
        return [self.node, *(node for node in self.ends if not self._is_away(node))]

    def _is_away(self, node: str) -> bool:
        """It is a member, and not linked."""
        end = self.ends.get(node)
        return end is not None and end.channel is None

    def progress(self, client_id: str) -> None:
        """A session that is coming may be here."""
        claim = self.pending.get(client_id)
        if claim is not None:
            self._look(claim)
        following = self.following.get(client_id)
        if following is None:
            return
        session = self.server.sessions.get(client_id)
        if session is not None and self.can_go_on(session):
            if following.move.stamp > claim_of(session):
                if following.has_begun_anew:
                    doubt(session)  # both have had what was published since
                self._give(session, following.move, following.is_clean)
            leaving = self.moving.departures.leaving.get(following.move)
            if leaving is None:
                self._follows_no_more(client_id)
            else:
                del self.following[client_id]
                for node in following.marked:
                    self.moving.departures.mark(leaving, node)

    def _serve(self, claim: PendingClaim) -> None:
        self._forget_claim(claim)
        self.server.connecting.claimed(claim.channel, claim.packet, claim.auth_data, None)
        self.granted.pop(claim.channel, None)  # it has gone

    def _is_late(self, claim: PendingClaim) -> None:
        """Who has not answered by now is taken for away."""
        claim.timer = None
        if claim.successor is not None:
            self._pass_on(claim, claim.successor, is_late=True)
            return
        self.go_on_without_those_away(claim.move.client_id)
        if self._decide(claim, is_late=True):
            self._serve(claim)
            return
        self.refused += 1
        text = "the session of this client is at a node that is not reached; try again later"
        self._end_claim(claim, Refusal(SERVER_UNAVAILABLE, text))

    def _end_claim(self, claim: PendingClaim, refusal: Refusal) -> None:
        self._forget_claim(claim)
        if claim.successor is not None:
            successor = claim.successor
            self.answer(successor.move, self.claimed(successor.move, successor.is_clean))
            return  # the client has been told
        self.server.connecting.claimed(claim.channel, claim.packet, claim.auth_data, refusal)

    def _forget_claim(self, claim: PendingClaim) -> None:
        if self.pending.get(claim.move.client_id) is claim:
            del self.pending[claim.move.client_id]
        if claim.timer is not None:
            self.server.timers.cancel(claim.timer)
            claim.timer = None

    # ---- a client has come elsewhere ---------------------------------------------------------------------------------

    def asked(self, node: str, claim: Claim) -> int:
        """What is here of a client that another node has claimed, and goes there; or DENIED."""
        move = claim.move
        if move.stamp.node != node:
            raise MalformedFrame("a claim in another node's name")
        self.clock.see(move.stamp, _wall())
        own = self.pending.get(move.client_id)
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
        return self.claimed(move, claim.is_clean)

    def claimed(self, move: Move, is_clean: bool) -> int:
        session = self.server.sessions.get(move.client_id)
        if session is None and self.expected.get(move.client_id):
            return self._gets_it_next(move, is_clean)
        if session is None:
            left_for = self.moving.moves.left_for(move.client_id)
            return (HELD if left_for.node == move.stamp.node else MOVING) if left_for.time else NOBODY
        if claim_of(session) > move.stamp:
            return DENIED
        if isinstance(session.moving, Arriving) and not is_clean:
            self.go_on_without_those_away(move.client_id)
            if self.server.sessions.get(move.client_id) is not session:
                return NOBODY  # it went to who had claimed it before
        if not is_clean and not self.can_go_on(session):
            return self._gets_it_next(move, is_clean)
        return self._give(session, move, is_clean)

    def told_of(self, move: Move, is_clean: bool) -> None:
        """The same by a letter: the other node did not wait for an answer."""
        self.claimed(move, is_clean)
        following = self.following.get(move.client_id)
        if following is not None and following.move == move:
            following.has_begun_anew = True

    def can_go_on(self, session: Session) -> bool:
        """Whether it can be sent to another node: nothing that linked nodes had for it is still to come."""
        arriving = session.moving
        if not isinstance(arriving, Arriving):
            return True
        is_cut = all(part.is_cut and part.has_come for part in arriving.parts.values())
        return is_cut and arriving.can_be_served(self._linked()) and len(arriving.cuts()) <= MAX_CUTS

    def go_on_without_those_away(self, client_id: str) -> None:
        """Nobody waits for what is in no cut; nor, with `lost` "clean", for any of what those have who are away. What
        has brought QoS 2 stays as a part, so that nothing of it is taken again from the nodes that published it."""
        session = self.server.sessions.get(client_id)
        arriving = None if session is None else session.moving
        if session is None or not isinstance(arriving, Arriving):
            return
        for part in list(arriving.parts.values()):
            if not self._is_away(part.old):
                continue
            if part.is_base and arriving.is_whole and self.lost == CLEAN:
                self.moving.arrivals.wait_no_more(arriving, part)
            elif not part.is_base and not (part.is_cut and part.has_come):
                self.moving.arrivals.give_up(arriving, part)

    def _gets_it_next(self, move: Move, is_clean: bool) -> int:
        """As soon as it is here."""
        following = self.following.get(move.client_id)
        if following is not None and following.move.stamp > move.stamp:
            return DENIED
        if following is not None and following.move == move:
            return MOVING
        self._follows_no_more(move.client_id)
        self.following[move.client_id] = NextClaim(move, is_clean)
        return MOVING

    def _follows_no_more(self, client_id: str) -> None:
        """Who has claimed the session does not get it, and may wait for what it had."""
        following = self.following.pop(client_id, None)
        if following is not None:
            self._letter(following.move.stamp.node, End(following.move))

    def comes(self, move: Move) -> bool:
        """Whether a session goes to who has claimed it so, now or as soon as it is here."""
        following = self.following.get(move.client_id)
        return move in self.moving.departures.leaving or (following is not None and following.move == move)

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
        if not self.moving.departures.leave(session, move):
            return NOBODY
        following = self.following.get(move.client_id)
        if following is not None and following.move != move:
            self._follows_no_more(move.client_id)
        held = Held(move.client_id, move.stamp, True)
        self.holding.holders.tell(held)
        self.holding.tell_soon(held)
        return HELD

    def answered(self, node: str, answer: Answer) -> None:
        client_id = answer.move.client_id
        if answer.move.stamp.node != self.node:
            raise MalformedFrame("an answer to another node's claim")
        # Also where the client has connected again since; but the session may have come before this note.
        claim = self.pending.get(client_id)
        known = answer.known
        given = known if known.node == self.node else answer.move.stamp  # it may be on its way by an earlier claim
        has_begun = given.time <= self._begun.get((client_id, node), 0)
        if answer.outcome == HELD and not has_begun and not self.moving.arrivals.knows(node, Move(client_id, given)):
            self.expected.setdefault(client_id, set()).add(node)
        if claim is None or claim.move != answer.move or node not in claim.asked:
            return
        claim.asked.discard(node)
        if known.time > 0 and known < claim.move.stamp:
            self.holding.holders.tell(Held(client_id, known, True))
        if answer.outcome == NOBODY:
            claim.without.add(node)
        if answer.outcome == DENIED:
            self.denied += 1
            self._end_claim(claim, _taken_over())
            return
        if answer.outcome == MOVING:
            claim.elsewhere.add(known.node if known.node in self.ends else node)
        self._look(claim)

    def _look(self, claim: PendingClaim) -> None:
        if claim.successor is not None:
            self._pass_on(claim, claim.successor)
        elif not claim.asked and self._decide(claim, is_late=False):
            self._serve(claim)

    def _pass_on(self, claim: PendingClaim, successor: Claim, is_late: bool = False) -> None:
        """Tell who claimed the session after this node what that has come to, once it is known."""
        client_id = claim.move.client_id
        is_known = client_id in self.server.sessions or bool(self.expected.get(client_id)) or not claim.asked
        if is_known or is_late:
            self._forget_claim(claim)
            self.answer(successor.move, self.claimed(successor.move, successor.is_clean))

    def answer(self, move: Move, outcome: int) -> None:
        known = self.holding.holders.latest(move.client_id)
        left_for = self.moving.moves.left_for(move.client_id)
        if outcome == HELD and left_for.node == move.stamp.node:
            known = left_for  # by which it comes, or came, though there may have been a later one since
        self.holding.tell(move.stamp.node, Answer(move, outcome, known))

    def _ask(self, node: str, claim: PendingClaim) -> bool:
        return self._note(node, Claim(claim.move, claim.packet.clean_start))

    def _ask_again(self, node: str, claim: PendingClaim) -> None:
        """It can be asked, or has the session, only now."""
        if self._ask(node, claim):
            claim.asked.add(node)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        for claim in self.pending.values():
            if claim.successor is None and claim.move.client_id not in self.server.sessions:
                self._ask_again(node, claim)

    def link_down(self, node: str) -> None:
        for claim in list(self.pending.values()):
            claim.without.discard(node)
            if node in claim.asked:
                claim.asked.discard(node)
                self._look(claim)
        for client_id in list(self.following):
            self.go_on_without_those_away(client_id)
            self.progress(client_id)  # it is not waited for any more

    def told(self, node: str, held: Held) -> None:
        """A node has a session. Of one that is here as well, whoever has the later claim gets the other one."""
        claim = self.pending.get(held.client_id)
        if claim is not None and claim.successor is None and claim.move.stamp > held.stamp:
            self._ask_again(node, claim)
        session = self.server.sessions.get(held.client_id)
        if session is not None and session.claim_time and claim_of(session) > held.stamp:
            is_clean = held.stamp.time < session.clean_time
            self._letter(node, Claimed(Move(session.client_id, claim_of(session)), is_clean))
        elif session is not None and session.claim_time and claim_of(session) < held.stamp:
            self.holding.tell_soon(held_by(session))  # the other node may have had none when it was told before

    def look_again(self) -> None:
        """More is known now."""
        for claim in list(self.pending.values()):
            self._look(claim)

    def forgotten(self, node: str) -> None:
        for client_id, nodes in list(self.expected.items()):
            nodes.discard(node)
            if not nodes:
                del self.expected[client_id]
                self._follows_no_more(client_id)
        self.link_down(node)

    def begun(self, node: str, move: Move) -> None:
        """It is here, or the first of it."""
        nodes = self.expected.get(move.client_id)
        if nodes is not None:
            nodes.discard(node)
            if not nodes:
                del self.expected[move.client_id]
        self._begun.pop((move.client_id, node), None)
        self._begun[move.client_id, node] = move.stamp.time
        if len(self._begun) > MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        session = self.server.sessions.get(move.client_id)
        if session is None and move.client_id not in self.expected:
            self._follows_no_more(move.client_id)  # it has moved on already
        if session is None or claim_of(session) != move.stamp:
            return
        self.holding.tell_soon(held_by(session))
        latest = self.holding.holders.latest(move.client_id)
        if latest > move.stamp and latest.node in self.ends and move.client_id not in self.following:
            self.following[move.client_id] = NextClaim(Move(move.client_id, latest), False)  # the client is there

    def marked(self, node: str, move: Move) -> None:
        """A Marker may be the first that is heard of a claim: by another way than the claim itself."""
        if move not in self.moving.departures.leaving and move.stamp.node != self.node:
            self.told_of(move, False)
        following = self.following.get(move.client_id)
        if following is not None and following.move == move:
            following.marked.append(node)


def _taken_over() -> Refusal:
    """For a client that waits for CONNACK, which has no code for it."""
    return Refusal(SERVER_BUSY, "the client has connected again")


def _wall() -> int:
    return int(time.time() * 1000)
