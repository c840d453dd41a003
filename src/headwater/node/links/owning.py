"""A node's part in an edge: where its messages go besides to subscribers, what it stores, and how that changes.

What decides is in edge/owners.py, with its invariants. Here it gets its streams and its disk:

    own messages        a topic's links are those of its subscribers and that of its owner (links.py `destinations`);
                        the store is among its destinations if this node is the owner by its own view
    messages of others  each link has fan-outs of its own for QoS 0 and for QoS 1 and 2 while views differ: the store is
                        among a topic's destinations if this node is the owner by the sender's view. Nodes with the same
                        view share theirs, so that in the end there is one set for all
    a view changes      in a turn of its own, between messages: letters and notes to all, the record, fan-outs

Nothing of this is asked per packet: it is in what a topic's name is resolved to.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from headwater.disk.crash_points import crash_point
from headwater.edge import declaration as declaring
from headwater.edge import messages as said
from headwater.edge.declaration import Declaration
from headwater.edge.messages import Answer, Order, View
from headwater.edge.owners import Owners, Part, Refused
from headwater.edge.ownership import Table, check_owned
from headwater.edge.seeing import Seen, status_of
from headwater.edge.status import EdgeStatus
from headwater.node.delivery.storing import Storing
from headwater.node.destinations.destination import Scope
from headwater.node.destinations.fanouts import Fanouts
from headwater.node.edge_settings import EdgeSettings
from headwater.node.links.end import PeerEnd
from headwater.node.links.entry import Entry
from headwater.node.links.figures import EdgeSeen
from headwater.node.links.post import Service
from headwater.node.links.referring import Referring
from headwater.node.links.splitting import LoadSplits
from headwater.node.links.view import MQTT_KEY, PHASE_KEY
from headwater.node.links.yielding import Yielding
from headwater.node.plane.timers import Timer
from headwater.peering.frames.frame import MalformedFrame
from headwater.peering.membership.membership import MemberView
from headwater.peering.membership.roster import State
from headwater.routing.topics import InvalidTopicFilter
from headwater.store.hand_over import Fence

if TYPE_CHECKING:
    from headwater.node.links.links import Links

log = logging.getLogger("headwater.edge")

OWN: Final = b"e"
HEARD: Final = b"h"
"""Keys of the record of this node, and of the views of others, in the journal's commits."""
AGAIN: Final = 0.02
"""Seconds until a view is looked at again that could not be changed."""
ANSWER_WAIT: Final = 5.0
"""Seconds that another node has to answer an order."""
MOST_UNOWNED: Final = 16
"""Topics without an owner that are shown."""
TELL_AGAIN: Final = 60.0
"""Seconds between two log lines about topics without an owner."""


class TableScope(Scope):
    """What is this node's by a table; the table of its own messages changes."""

    def __init__(self, node: str, table: Table) -> None:
        self.node = node
        self.table = table

    def has(self, topic: str) -> bool:
        return self.table.owner(topic) == self.node


class Owning(Service):
    def __init__(self, links: Links, settings: EdgeSettings, fence: Fence | None = None) -> None:
        """`fence`: this node's store went to another one before this start."""
        self.name = "edge"  # of the instance: a compiled base does not see what an interpreted class says
        self.links = links
        self.server = links.server
        self.settings = settings
        self.node = links.node
        part = Part(links.node, settings.name, tuple(settings.roles), settings.unowned == "local")
        self.owners = Owners(part, links.boot, self._members)
        self.declared: Callable[[dict[str, bytes]], None] = _ignore
        """Told what others are to know, by key, when it is on disk."""
        self.store_id = ""
        self.rest_url = settings.rest
        self.unowned = 0
        self.unowned_last: dict[str, None] = {}
        self.held = 0
        """Times that a view of another node had to wait."""
        self.held_out = 0
        """Of these, how often for longer than may be."""
        self.moved_in = 0
        self.moved_out = 0
        self.splits = LoadSplits(self.owners, self._is_linked, self._give)
        self.yielding = Yielding(self.owners, Entry(links.server), self._is_linked, self._give)
        self.referring: Referring | None = None
        if settings.elsewhere == "refer":
            self.referring = Referring(links.server, self.owners, lambda node: self._clients_at.get(node, ""))
        self._clients_at: dict[str, str] = {}
        """Where clients of other nodes connect."""
        self._scope = TableScope(links.node, Table())
        self._fanouts: dict[Table, Fanouts] = {}
        self._waiting: dict[str, float] = {}
        """Nodes whose view waits, since when."""
        self._pieces: dict[str, tuple[bytes, ...]] = {}
        self._orders: dict[int, Callable[[bool, str], None]] = {}
        self._order = 0
        self._serial = 0
        self._timer: Timer | None = None
        self._declares = False
        self._was_declared: Declaration | None = None
        self._told_unowned = -TELL_AGAIN
        self._restore()
        if fence is not None:
            self.yielding.resume(fence)
            self.store_id = fence.store if self.yielding.is_on else ""

    # ---- from start to stop --------------------------------------------------------------------------------------

    def _restore(self) -> None:
        spooling, owners = self.links.spooling, self.owners
        for _, value in spooling.kept(OWN):
            owners.restore(json.loads(value), self.links.boot)
        for key, value in spooling.kept(HEARD):
            view = said.decode(value)
            assert isinstance(view, View)
            owners.hear(key[len(HEARD) :].decode(), view)
        self._scope.table = owners.view.table
        store = self.server.hot.own_fanouts.store
        if isinstance(store, Storing):
            self.store_id = self.splits.store_id = store.coordinator.store_id
            self.server.hot.own_fanouts.store = store.within(self._scope)

    def start(self) -> None:
        """When the members are known that were there before the start; before clients are served."""
        self.owners.begin(self.settings.owns, self._position, time.time(), self.yielding.is_on)
        self._change()
        self._keep()
        if self.referring is not None:
            self.referring.start()

    @property
    def _position(self) -> int:
        """The next one of the store."""
        if self.yielding.fence is not None:
            return self.yielding.fence.position + 1
        coordinator = self.server.coordinator
        return 1 if coordinator is None else coordinator.intake.next

    def _members(self) -> list[str]:
        """Nodes that may send messages and say by which view."""
        return [node for node, end in self.links.spooling.ends.items() if end.has_service(self.name)]

    @property
    def is_informed(self) -> bool:
        """Whether all nodes that are linked have told what they own: what is published before has no owner."""
        return all(node in self.owners.declared for node in self._members() if node in self.links.up)

    # ---- views ---------------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """In a turn of its own: nothing is being handed over then."""
        self._look_at(self.server.hot.now)

    def _look_at(self, when: float) -> None:
        if self._timer is None or self._timer.when > when:
            if self._timer is not None:
                self.server.timers.cancel(self._timer)
            self._timer = self.server.timers.at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.server.publishing.long_ones:
            self._look_at(self.server.hot.now + AGAIN)  # a message would be on both sides of the change
        else:
            self._change()

    def _change(self) -> None:
        owners, is_changed = self.owners, False
        while (view := owners.next_view()) is not None:
            is_changed = True
            crash_point("edge-before-switch")
            for node, end in self.links.spooling.ends.items():
                self._tell_view(node, end, view)
            self._view_changed(view.table)
            crash_point("edge-switched")
        if is_changed and self.referring is not None:
            self.referring.moved()
        ending = set(owners.endings)
        if owners.look(self._position):
            is_changed = True
            self._moved_away(ending - set(owners.endings))
        if is_changed:
            self._keep()
        if is_changed or self._declaration() != self._was_declared:  # for whom a move waits is told, too
            self.declare_soon()

    def _moved_away(self, ended: set[Any]) -> None:
        for claim in ended:
            self.moved_out += 1
            log.info("%s is node %s's: nothing of it comes here any more", claim.filter, claim.node)
            crash_point("edge-before-end")

    def _tell_view(self, node: str, end: PeerEnd, view: View) -> None:
        body = said.encode(view)
        self.links.post.letter(node, self, body)
        if end.channel is not None:
            self.links.post.note(node, self, body, is_needed=True)

    def _view_changed(self, table: Table) -> None:
        self._scope.table = table
        self.server.hot.own_fanouts.forget("#")
        for node, end in self.links.spooling.ends.items():
            if not end.has_service(self.name):
                self._use(node)

    def _keep(self) -> None:
        self.links.spooling.keep(OWN, json.dumps(self.owners.record()).encode())
        journal = self.server.journal
        if journal is not None:
            journal.go_together()

    def owner_elsewhere(self, topic: str) -> str:
        """The other node that a message published here has to go to, besides to subscribers; "": there is none."""
        owner = self.owners.owner(topic)
        if self.owners.view.table.claim_of(topic) is None:
            self._is_unowned(topic)
        return "" if owner == self.node or owner not in self.links.spooling.ends else owner

    def _is_unowned(self, topic: str) -> None:
        self.unowned += 1
        self.unowned_last.pop(topic, None)
        self.unowned_last[topic[:200]] = None
        if len(self.unowned_last) > MOST_UNOWNED:
            del self.unowned_last[next(iter(self.unowned_last))]
        now = self.server.hot.now
        if now >= self._told_unowned + TELL_AGAIN:
            self._told_unowned = now
            where = self.owners.view.table.rest
            log.warning(
                "nobody owns the topic %.200r: %s; %d such topics were looked for until now (headwater edge status)",
                *(topic, f"it goes to node {where}" if where else "it is not stored", self.unowned),
            )

    # ---- what comes from others ----------------------------------------------------------------------------------

    def fanouts_of(self, table: Table) -> Fanouts:
        """Where messages go that were published by this view."""
        if table.rest != self.node:
            table = table.with_rest("")  # which other node it is makes no difference here
        found = self._fanouts.get(table)
        if found is None:
            scope = TableScope(self.node, table)
            store = self.server.hot.own_fanouts.store
            found = self._fanouts[table] = self.links.make_fanouts(
                store.within(scope) if isinstance(store, Storing) else None
            )
        return found

    def _use(self, node: str) -> None:
        """The fan-outs that are right for what comes from a node now."""
        link = self.links.up.get(node)
        if link is None or link.receiving is None:
            return
        owners = self.owners
        if node in self._members():
            heard = owners.heard.get(node)
            table = Table() if heard is None else heard.table
            link.receiving.use(self.fanouts_of(table), self.fanouts_of(owners.heard0.get(node, Table())))
        else:  # it is of no edge: what comes from it is looked at as if it had come from here
            fanouts = self.fanouts_of(owners.view.table)
            link.receiving.use(fanouts, fanouts)
        self._tidy()

    def _tidy(self) -> None:
        used = {id(each) for link in self.links.up.values() if link.receiving for each in link.receiving.in_use()}
        for table, fanouts in list(self._fanouts.items()):
            if id(fanouts) not in used:
                del self._fanouts[table]
                self.links.drop_fanouts(fanouts)

    def everywhere(self) -> list[Fanouts]:
        return list(self._fanouts.values())

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def may_leave(self) -> None:
        """Raises ValueError if nobody would own what this node owns."""
        owned = sorted(self.owners.claims)
        if owned:
            raise ValueError(
                f"node {self.node} owns {', '.join(owned[:3])}{' and more' if len(owned) > 3 else ''}: give that to "
                "other nodes first (headwater edge split FILTER --to NODE), or drain it with --stay"
            )

    def may_hand_over(self) -> None:
        """Raises ValueError if the store must not go to another node."""
        self.yielding.check()

    def handed_over(self, fence: Fence, done: Callable[[], None]) -> None:
        """The store is another node's from now on; `done` is told when it has the topics, too."""
        self.yielding.begin(fence, done)
        self.look_soon()
        self.declare_soon()

    def joined(self, node: str, end: PeerEnd) -> None:
        """It is a member from now on: first of all it is told by which view messages come."""
        self.links.post.letter(node, self, said.encode(self.owners.view))
        self.look_soon()

    def link_came(self, node: str) -> None:
        """Whether the node has this service or not."""
        self._use(node)

    def link_up(self, node: str) -> None:
        """The view again, also as a letter: the other node's disk may be an older copy, without what it was told."""
        view = said.encode(self.owners.view)
        self.links.post.note(node, self, view, is_needed=True)
        self.links.post.letter(node, self, view)
        self._tell_seen([node])

    def link_down(self, node: str) -> None:
        self.owners.heard0.pop(node, None)
        self._waiting.pop(node, None)
        self._tidy()

    def forgotten(self, node: str) -> None:
        self.owners.forget(node)
        self._pieces.pop(node, None)
        self._clients_at.pop(node, None)
        self.links.spooling.keep(HEARD + node.encode(), None)
        self.look_soon()

    def beat(self, now: float) -> None:
        self.splits.go_on()
        if self.yielding.go_on():
            self.store_id = ""
            self.declare_soon()

    def has_room(self, node: str, body: bytes) -> bool:
        """A view that gives topics to this node waits for those that had them."""
        if not said.is_view(body):
            return True
        view = said.decode(body)
        assert isinstance(view, View)
        waits = self.owners.must_wait(node, view)
        now = self.server.hot.now
        if not waits:
            self._waiting.pop(node, None)
            return True
        since = self._waiting.setdefault(node, now)
        if since == now:
            self.held += 1
        if now < since + self.settings.hold:
            return False
        self.held_out += 1
        del self._waiting[node]
        log.warning(
            "what node %s sends does not wait any more for %s, whose topics it brings (edge.hold)",
            *(node, ", ".join(sorted(waits))),
        )
        return True

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        message = said.decode(body)
        if is_letter and not isinstance(message, View):
            raise MalformedFrame(f"{type(message).__name__} in a letter")
        if isinstance(message, View):
            self._viewed(node, message, body, is_letter)
        elif isinstance(message, said.Seen):
            self.owners.has_seen(node, message.numbers)
        elif isinstance(message, Order):
            self._ordered(node, message)
        else:
            self._answered(message)

    def _viewed(self, node: str, view: View, body: bytes, is_letter: bool) -> None:
        if not is_letter:
            self.owners.hear0(node, view)
            self._use(node)
            return
        self.owners.hear(node, view)
        self._use(node)
        self.links.spooling.keep(HEARD + node.encode(), body)
        crash_point("edge-view-taken")
        self.look_soon()
        self._when_durable(self._tell_all_seen)

    def _tell_all_seen(self) -> None:
        self._tell_seen(list(self.links.up))

    def _tell_seen(self, nodes: list[str]) -> None:
        body = said.encode(said.Seen(self.owners.numbers()))
        for node in nodes:
            self.links.post.note(node, self, body, is_needed=True)

    def _when_durable(self, tell: Callable[[], None]) -> None:
        journal = self.server.journal
        if journal is None:
            tell()
        else:
            journal.tell_when_durable(tell)

    # ---- what all are told ---------------------------------------------------------------------------------------

    def declare_soon(self) -> None:
        if not self._declares:
            self._declares = True
            self._when_durable(self._declare)

    def _declare(self) -> None:
        self._declares = False
        self._serial += 1
        self.declared(self.values())

    def values(self) -> dict[str, bytes]:
        """For the map of this node in the cluster's gossip."""
        self._was_declared = self._declaration()
        return declaring.encode(self._was_declared, self._serial)

    def _declaration(self) -> Declaration:
        return self.owners.declaration(self.store_id, self.rest_url)

    def look_at(self, members: list[MemberView]) -> None:
        """What others tell of themselves, or of others, may have changed."""
        is_changed = False
        for member in members:
            if member.node == self.node or member.node not in self.links.spooling.ends:
                continue
            self._clients_at[member.node] = member.values.get(MQTT_KEY, b"").decode(errors="replace")
            pieces = declaring.pieces_of(member.values)
            if pieces == self._pieces.get(member.node):
                continue
            declaration = declaring.decode(pieces)
            if declaration is not None:
                self._pieces[member.node] = pieces
                self.owners.declare(member.node, declaration)
                is_changed = True
        if is_changed:
            self.look_soon()

    def status(self, members: Iterable[MemberView]) -> EdgeStatus:
        seen = {
            each.node: Seen(
                *(str(each.state), each.values.get(MQTT_KEY, b"").decode(errors="replace")),
                each.state == State.LIVE and PHASE_KEY not in each.values,
            )
            for each in members
        }
        last = tuple(reversed(self.unowned_last))
        return status_of(self.owners, self._declaration(), seen, self.settings.unowned, self.unowned, last)

    def figures(self) -> EdgeSeen:
        claims = self.owners.claims.values()
        return EdgeSeen(
            *(len(claims), sum(not each.is_settled for each in claims), len(self.owners.endings)),
            *(self.moved_in, self.moved_out, self.held, self.held_out, self.unowned),
        )

    # ---- orders --------------------------------------------------------------------------------------------------

    def _is_linked(self, node: str) -> bool:
        return node in self.links.up

    def _give(self, node: str, filter: str, done: Callable[[bool, str], None]) -> None:
        self.order(node, filter, False, False, done)

    def owner_around(self, filter: str) -> str:
        """The node of the most specific other filter that has all topics of this one. Raises ValueError."""
        table = self.owners.target()
        if filter not in table.claims:
            raise ValueError(f"nobody has exactly {filter} (headwater edge status shows the table)")
        wider = table.wider(filter)
        if wider is None:
            raise ValueError(f"no wider filter is owned into which {filter} could go: split it to a node instead")
        return wider.node

    def order(self, node: str, filter: str, joins: bool, is_dry: bool, done: Callable[[bool, str], None]) -> None:
        """Have a node own a filter from now on; `done` is told whether it does, and why not. In a turn."""
        try:
            check_owned(filter)
        except InvalidTopicFilter as error:
            done(False, str(error))
            return
        if node == self.node:
            done(*self._carried_out(filter, joins, is_dry))
            return
        self._order += 1
        number = self._order
        if not self.links.post.note(node, self, said.encode(Order(number, filter, joins, is_dry)), is_needed=True):
            done(False, f"node {node} is not linked with node {self.node}, or is part of no edge")
            return
        self._orders[number] = done
        self.server.timers.at(self.server.hot.now + ANSWER_WAIT, lambda: self._unanswered(number, node))

    def _unanswered(self, number: int, node: str) -> None:
        done = self._orders.pop(number, None)
        if done is not None:
            done(False, f"node {node} has not answered for {ANSWER_WAIT:g} s; look at headwater edge status")

    def _answered(self, answer: Answer) -> None:
        done = self._orders.pop(answer.number, None)
        if done is not None:
            done(answer.is_done, answer.text)

    def _ordered(self, node: str, order: Order) -> None:
        is_done, text = self._carried_out(order.filter, order.joins, order.is_dry)
        answer = said.encode(Answer(order.number, is_done, text))

        def tell() -> None:
            self.links.post.note(node, self, answer, is_needed=True)

        self._when_durable(tell)

    def _carried_out(self, filter: str, joins: bool, is_dry: bool) -> tuple[bool, str]:
        """Whether this node has claimed a filter, and what is said of it."""
        owners, linked = self.owners, list(self.links.up)
        try:
            sources = sorted(owners.check(filter, linked))
            whence = f"from node {', '.join(sources)}" if sources else "from nobody"
            if is_dry:
                return True, f"{filter} would go {whence} to node {self.node}"
            crash_point("edge-before-claim")
            owners.inherit(self.store_id)
            owners.claim(filter, joins, linked, self._position, time.time())
        except (Refused, InvalidTopicFilter) as error:
            return False, str(error)
        self._keep()
        self.moved_in += 1
        log.info("%s goes %s to node %s", filter, whence, self.node)
        self.declare_soon()
        self._when_durable(lambda: crash_point("edge-claimed"))
        self.look_soon()
        return True, f"{filter} goes {whence} to node {self.node}"


def _ignore(values: dict[str, bytes]) -> None:
    pass
