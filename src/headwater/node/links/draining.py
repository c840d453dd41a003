"""A node hands over all that it has: its clients, their sessions, and what it owes others. Then it can go without loss.

    clients     CONNECT is refused, and connections end, some at a time: with 0x9C and the address of another node
    sessions    go to the other nodes (moving.py), those of connected clients after a while in which they may take them
                along themselves
    the rest    what others have not acknowledged (spools), and what waits for shared groups whose members are elsewhere

Theory. Which node gets a client is decided by its id alone, by the highest hash of id and node ("rendezvous"; Thaler
and Ravishankar 1998): so a client is sent to where its session goes, whenever either is decided, and all nodes get a
like share. To push a session is to claim it in the name of the other node: the stamp of a claim has that node's name,
and from there on all is as if the client had come there. A push that is cut off, by a link or a kill, goes on like any
move. Nothing else of a drain is kept: a node that was killed in the middle serves again when it is back, with the
sessions that are still here.

Wills. A will without a delay is published when its connection ends, as always. One with a delay waits for it here, so
that its client can be back in time, up to `LONGEST_WILL_WAIT`.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.node.bridge.inside import PREFIX
from headwater.node.hooks import Refusal
from headwater.node.links.arriving import Arriving
from headwater.node.links.entry import OWN, Entry
from headwater.node.links.holding import SESSIONS, claim_of
from headwater.node.links.view import DRAINED, DRAINING, DrainView
from headwater.node.plane.timers import Timer
from headwater.peering.retained.clock import Stamp
from headwater.peering.sessions.messages import HELD, Held, Move
from headwater.session.connection import CONNECTED
from headwater.wire.reasons import SERVER_BUSY, USE_ANOTHER_SERVER

if TYPE_CHECKING:
    from headwater.node.links.links import Links
    from headwater.node.links.sessions import Sessions
    from headwater.node.plane.channel import Channel
    from headwater.session.session import Session

log = logging.getLogger("headwater.cluster")

PAUSE: Final = 0.1
"""Seconds between two steps."""
AT_ONCE: Final = 100
"""Connections that end, and sessions that begin to move, in one step."""
LOOKS: Final = 2000
"""Channels and sessions that are looked at in one step."""
MOVING_AT_ONCE: Final = 1000
"""Sessions that are on their way at a time."""
TAKE_ALONG: Final = 3.0
"""Seconds that a client has to take its session along itself."""
LONGEST_WILL_WAIT: Final = 60.0
WHY: Final = "this node is drained"


class Draining:
    """`others` are the live members that serve clients, each with the address for clients, "" where it is not known;
    `leave` leaves the cluster; `changed` is told when `state` is another one; `wills` is the number of those that are
    due and not published yet (wills.py)."""

    def __init__(
        self,
        links: Links,
        entry: Entry,
        others: Callable[[], dict[str, str]],
        leave: Callable[[], None],
        changed: Callable[[], None],
        wills: Callable[[], int],
    ) -> None:
        self._links = links
        self._server = links.server
        self._entry = entry
        self._leave = leave
        self._changed = changed
        self._members = others
        self._wills = wills
        self._others: dict[str, str] = {}
        self._is_on = False
        self._stays = False
        self._has_left = False
        self._told = ""
        self._timer: Timer | None = None
        self._channels: list[Channel] = []
        self._sessions: list[Session] = []
        """Those that are still to be looked at in this pass."""
        self._disconnected: dict[Session, float] = {}
        """When."""
        self._began = 0.0

    # ---- orders ------------------------------------------------------------------------------------------------------

    def begin(self, stays: bool) -> None:
        """In a turn. `stays`: it remains a member, for a restart. Raises ValueError."""
        if self._links.sessions is None:
            raise ValueError("nodes with cluster.neighbours cannot be drained: their sessions do not move")
        self._look_around()
        if not self._is_on and not any(node in self._links.up for node in self._others):
            raise ValueError("there is no other live node that could take the clients of this one")
        self._stays = stays
        if self._is_on:
            return
        self._is_on = True
        self._has_left = False
        self._began = self._server.hot.now
        self._channels, self._sessions = [], []
        self._disconnected.clear()
        self._entry.close(0.0, self._refusal)
        log.info("this node is drained: its clients and sessions go to %s", ", ".join(sorted(self._others)))
        self._step()

    def take_back(self) -> None:
        """In a turn: serve again, with what is still here."""
        if not self._is_on:
            return
        self._is_on = False
        if self._timer is not None:
            self._server.timers.cancel(self._timer)
            self._timer = None
        self._entry.open()
        log.info("this node is not drained any more")
        self._tell_state()

    # ---- what is seen ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """ "": it serves."""
        if not self._is_on:
            return ""
        return DRAINED if self._has_left or self._is_done() else DRAINING

    def view(self) -> DrainView | None:
        if not self._is_on:
            return None
        return DrainView(
            self.state,
            self._stays,
            self._server.attaching.connected - self._own_connected(),
            self._session_count(),
            0 if self._links.sessions is None else len(self._links.sessions.moving.departures.leaving),
            sum(end.spool.waiting for end in self._links.spooling.ends.values()),
            self._in_groups(),
            self._wills(),
            self._waits_for(),
        )

    def _own_sessions(self) -> list[Session]:
        """Bridges stay: they are this node's own."""
        sessions = self._server.sessions
        found = [sessions.get(PREFIX + bridge.name) for bridge in self._server.config.bridges]
        return [each for each in found if each is not None]

    def _own_connected(self) -> int:
        return sum(each.connection is not None for each in self._own_sessions())

    def _session_count(self) -> int:
        return len(self._server.sessions) - len(self._own_sessions())

    def _in_groups(self) -> int:
        return sum(queue.waiting() for queue in self._server.sharing.queues.values())

    def _waits_for(self) -> list[str]:
        """Members that are not linked, and are owed something."""
        ends = self._links.spooling.ends
        has_moves = self._links.sessions is not None and bool(self._links.sessions.moving.departures.leaving)
        return sorted(each for each, end in ends.items() if end.channel is None and (end.spool.waiting or has_moves))

    def _is_done(self) -> bool:
        sessions = self._links.sessions
        assert sessions is not None
        if self._server.attaching.connected > self._own_connected() or self._session_count() or self._wills():
            return False
        ends = self._links.spooling.ends
        if not self._stays or self._server.journal is None:
            is_owed = any(end.spool.waiting for end in ends.values())
            return not sessions.moving.departures.leaving and not is_owed and not self._in_groups()
        # What waits for a group, or for a node that is away, is on disk, also while this node is restarted.
        linked = [node for node, end in ends.items() if end.channel is not None]
        is_owed = any(ends[node].spool.waiting for node in linked)
        is_moving = any(
            each.is_shipping or any(node not in each.marked for node in linked)
            for each in sessions.moving.departures.leaving.values()
        )
        return not is_owed and not is_moving

    # ---- step by step ------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Who is known last is remembered, for those who come when this node has left."""
        self._others = self._members() or self._others

    def _step(self) -> None:
        self._timer = None
        if not self._is_on:
            return
        self._look_around()
        self._disconnect_some()
        self._push_some()
        if self._is_done() and not self._stays:
            self._has_left = True
            log.info("this node is drained, and leaves its cluster")
            self._leave()
            self._tell_state()
            return
        self._tell_state()
        self._timer = self._server.timers.at(self._server.hot.now + PAUSE, self._step)

    def _tell_state(self) -> None:
        if self.state != self._told:
            self._told = self.state
            self._changed()

    def node_for(self, client_id: str, nodes: list[str]) -> str:
        """The one that gets this client; "": there is none."""
        return max(nodes, key=lambda node: _weight(node, client_id), default="")

    def _reference(self, client_id: str) -> str:
        """Where a client is to connect instead."""
        nodes = [node for node, address in self._others.items() if address]
        return self._others.get(self.node_for(client_id, nodes), "")

    def _refusal(self, client_id: str) -> Refusal:
        reference = self._reference(client_id)
        return Refusal(USE_ANOTHER_SERVER if reference else SERVER_BUSY, WHY, reference or None)

    def _disconnect_some(self) -> None:
        server = self._server
        if not self._channels and server.attaching.connected > self._own_connected():
            self._channels = list(server.channels)
        ended = 0
        for _ in range(min(LOOKS, len(self._channels))):
            channel = self._channels.pop()
            session = channel.session
            if channel.state != CONNECTED or session is None or session.client_id.startswith(OWN):
                continue
            reference = self._reference(session.client_id)
            self._disconnected[session] = server.hot.now
            server.disconnect(channel, USE_ANOTHER_SERVER if reference else SERVER_BUSY, WHY, reference or None)
            if server.sessions.get(session.client_id) is not session:
                del self._disconnected[session]
            ended += 1
            if ended == AT_ONCE:
                return

    def _push_some(self) -> None:
        sessions = self._links.sessions
        assert sessions is not None
        nodes = [node for node in self._others if self._takes_sessions(node)]
        if not self._sessions:
            self._sessions = list(self._server.sessions.values())
        pushed = 0
        for _ in range(min(LOOKS, len(self._sessions))):
            if pushed == AT_ONCE or len(sessions.moving.departures.leaving) >= MOVING_AT_ONCE or not nodes:
                break
            session = self._sessions.pop()
            if self._server.sessions.get(session.client_id) is session and self._is_due(session, sessions):
                self._push(session, self.node_for(session.client_id, nodes), sessions)
                pushed += 1

    def _takes_sessions(self, node: str) -> bool:
        is_synced = node in self._links.up and self._links.is_synced(node)
        return is_synced and self._links.spooling.ends[node].has_service(SESSIONS)

    def _is_due(self, session: Session, sessions: Sessions) -> bool:
        now = self._server.hot.now
        if session.connection is not None or session.client_id.startswith(OWN):
            return False
        arriving = session.moving
        if isinstance(arriving, Arriving):
            sessions.claims.go_on_without_those_away(session.client_id)
            if self._server.sessions.get(session.client_id) is not session or not sessions.claims.can_go_on(session):
                return False
        if session in self._server.ending.wills:
            if now < self._began + LONGEST_WILL_WAIT:
                return False
            self._server.ending.publish_will(session)
        return now >= self._disconnected.get(session, self._began - TAKE_ALONG) + TAKE_ALONG

    def _push(self, session: Session, node: str, sessions: Sessions) -> None:
        """As if its client had come to that node."""
        client_id = session.client_id
        claims, holding = sessions.claims, sessions.holding
        before = max(claim_of(session), holding.holders.latest(client_id))
        move = Move(client_id, Stamp(claims.clock.stamp(int(time.time() * 1000), before).time, node))
        self._disconnected.pop(session, None)
        claims.answer(move, HELD)  # it is to be there before the session
        is_leaving = sessions.moving.departures.leave(session, move)
        assert is_leaving, "it has no connection to end with"
        held = Held(client_id, move.stamp, True)
        holding.holders.tell(held)
        holding.tell_soon(held)


def _weight(node: str, client_id: str) -> bytes:
    return hashlib.blake2b(client_id.encode(errors="surrogatepass"), key=node.encode()[:64], digest_size=8).digest()
