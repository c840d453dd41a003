"""Conditions are told to other nodes, so that a message that nobody there lets through is not sent there.

Theory. A *claim* says of a topic filter: whatever this node wants of the topics that it matches, it wants by filters
with claims, and each of these has conditions of which one has to hold. So another node leaves a message out if it
matches claims and no condition of them holds; and sends what matches none. A filter is claimed if all its subscribers
have a condition that depends on the message alone, and no other filter overlaps with it whose subscribers have not.
What is told of is few: beyond `MOST_CLAIMS` or any other bound here there are no claims, and messages go where topics
lead.

Order. What is wrongly left out is lost. So who may get more than before (a subscription without a condition, or with
another one) gets its SUBACK when the nodes that are linked have acknowledged the claims as they are now: `Pushing.hold`
comes before the interest's own waiting, which is for new filters. Claims are sent as a whole, numbered, as notes: over
the link, in its order, at once; so they are there before whatever is said later, such as that a session has moved here.
A link that ends takes them along, and what is sent or spooled while there is none is all that topics lead to.

Nothing is claimed by a node that needs messages for more than its clients: one that relays, or stores what comes from
others, or belongs to an edge. Retained messages go to all nodes anyway and are never left out, nor are payloads that
are longer than this node looks into: another one may look further.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.message import Message, Subscription
from headwater.node.destinations.conditional import CHEAP
from headwater.node.destinations.destination import Run
from headwater.node.links.post import Post, Service
from headwater.node.links.receiving import NOT_FOR_NODES
from headwater.node.links.sending import LinkDestination, OutgoingRuns
from headwater.node.protocol.core import ClientTask
from headwater.node.protocol.server import Server
from headwater.peering.frames.frame import MalformedFrame
from headwater.routing.conditions.condition import ContentCondition, condition_of
from headwater.routing.conditions.errors import ConditionError
from headwater.routing.feed import RouteListener
from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, check_filter, matches
from headwater.session.session import Session

if TYPE_CHECKING:
    from headwater.node.links.end import PeerEnd

MOST_CLAIMS: Final = 64
MOST_CONDITIONS: Final = 16
"""Of one claim."""
MOST_SUBSCRIBERS: Final = 256
"""Of a filter that is claimed: all are looked at when one comes or goes."""
MOST_FILTERS: Final = 1000
"""Other filters of this node: each is compared with each claim once."""
DEEPEST: Final = 16
"""Levels of a filter that is claimed."""
LONGEST: Final = 256
"""Characters of a filter that is compared with others; a longer one counts as overlapping with all."""
MOST_TESTS: Final = 512
"""Of all conditions of a node together (routing/conditions)."""
LARGEST: Final = 64 << 10
"""Bytes of a note."""

Claims = dict[str, list[str]]
Gates = dict[str, list[Subscription] | None]
"""By topic filter, what has the conditions that another node claims; None: one that this node cannot read."""


class _Candidate:
    """A filter that is claimed unless something overlaps: so many filters that are not claimed for their own sake."""

    def __init__(self, texts: list[str], weight: int, blockers: int) -> None:
        self.texts = texts
        self.weight = weight
        self.blockers = blockers


class Pushing(Service):
    name = "conditions"

    def __init__(self, server: Server, post: Post, outgoing: OutgoingRuns, may_claim: bool, wait: float) -> None:
        """`wait`: the longest that a SUBACK waits for others to acknowledge."""
        self.server = server
        self.post = post
        self.outgoing = outgoing
        self.may_claim = may_claim
        self.wait = wait
        self.number = 0
        self.told: dict[str, Gates] = {}
        """By node."""
        self.released: Callable[[ClientTask], None] = _ignore_task
        """Told of tasks that need not wait for this any more."""
        self.dirtied: Callable[[], None] = _ignore
        """Told when there may be something to `flush` before the turn ends."""
        self.changed: Callable[[], None] = _ignore
        """Told when others claim something else."""
        self.claims: Claims = {}
        self._acknowledged: dict[str, int] = {}
        """By linked node, the last number that it has taken."""
        self._waiting: list[tuple[int, ClientTask]] = []
        self._dirty: dict[str, None] = {}
        self._plain: set[str] = set()
        """Filters that are not claimed because of their own subscribers."""
        self._candidates: dict[str, _Candidate] = {}
        self._feed = _Feed(self)

    def start(self) -> None:
        if self.may_claim:
            self._dirty = dict.fromkeys(self.server.router.trie.filters())
            self.server.router.feed.listen(self._feed)

    # ---- what this node claims -----------------------------------------------------------------------------------

    def recipients_changed(self, filter: str) -> None:
        if not self._dirty:
            self.dirtied()
        self._dirty[filter] = None

    def flush(self) -> None:
        """Tell others of what has changed, before they hear of it in other ways."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for filter in dirty:
            self._look_at(filter)
        claims = self._found()
        if claims == self.claims:
            return
        self.claims = claims
        self.number += 1
        for node in self._acknowledged:
            self._tell(node)

    def _tell(self, node: str) -> None:
        self.post.note(node, self, _encoded({"number": self.number, "claims": self.claims}), is_needed=True)

    def _look_at(self, filter: str) -> None:
        if filter.startswith(NOT_FOR_NODES):
            return
        subscribers = self.server.router.trie.get(filter)
        if subscribers is None:
            self._candidates.pop(filter, None)
            self._set_plain(filter, False)
            return
        texts: dict[str, int] = {}
        is_plain = len(subscribers) > MOST_SUBSCRIBERS or len(filter) > LONGEST or filter.count("/") >= DEEPEST
        if not is_plain:
            for subscription in subscribers.values():
                condition = subscription.condition
                predicate = condition.predicate if isinstance(condition, ContentCondition) else None
                if predicate is None or not isinstance(condition, ContentCondition):
                    is_plain = True
                    break
                texts[predicate.text] = condition.weight
        known = self._candidates.get(filter)
        is_one_more = known is None and (len(self._candidates) >= MOST_CLAIMS or len(self._plain) > MOST_FILTERS)
        if is_plain or is_one_more or len(texts) > MOST_CONDITIONS:
            self._candidates.pop(filter, None)
            self._set_plain(filter, True)
            return
        self._set_plain(filter, False)
        blockers = known.blockers if known is not None else sum([overlap(each, filter) for each in self._plain])
        self._candidates[filter] = _Candidate(sorted(texts), sum(texts.values()), blockers)

    def _set_plain(self, filter: str, is_plain: bool) -> None:
        if (filter in self._plain) == is_plain:
            return
        if is_plain:
            self._plain.add(filter)
        else:
            self._plain.discard(filter)
        for name, candidate in self._candidates.items():
            if overlap(name, filter):
                candidate.blockers += 1 if is_plain else -1

    def _found(self) -> Claims:
        """What is claimed now: no candidate that overlaps with something that is not."""
        if len(self._plain) > MOST_FILTERS:
            return {}
        open_ones = [name for name, each in self._candidates.items() if each.blockers]
        claimed = {name: each for name, each in self._candidates.items() if not each.blockers}
        while open_ones:
            other = open_ones.pop()
            for name in [name for name in claimed if overlap(name, other)]:
                del claimed[name]
                open_ones.append(name)
        claims = {name: each.texts for name, each in claimed.items()}
        if sum([each.weight for each in claimed.values()]) > MOST_TESTS or len(_encoded(claims)) > LARGEST // 2:
            return {}
        return claims

    # ---- who waits -----------------------------------------------------------------------------------------------

    def hold(self, task: ClientTask) -> bool:
        """Whether the task has to wait until other nodes have taken the claims as they are now; then `released`."""
        self.flush()
        number = self.number
        if self._have(number):
            return False
        self._waiting.append((number, task))
        timers = self.server.timers
        timers.at(self.server.hot.now + self.wait, partial(self._expired, number))
        return True

    def _have(self, number: int) -> bool:
        return all(taken >= number for taken in self._acknowledged.values())

    def _release(self, upto: int = 0) -> None:
        """Those who need not wait, and all who wait for numbers up to this one."""
        waiting, self._waiting = self._waiting, []
        for number, task in waiting:
            if number <= upto or self._have(number):
                self.released(task)
            else:
                self._waiting.append((number, task))

    def _expired(self, number: int) -> None:
        self._release(number)

    # ---- other nodes ---------------------------------------------------------------------------------------------

    def link_up(self, node: str) -> None:
        self.flush()
        self._acknowledged[node] = 0
        if self.number:
            self._tell(node)

    def link_down(self, node: str) -> None:
        self._acknowledged.pop(node, None)
        self._forget(node)
        self._release()

    def forgotten(self, node: str) -> None:
        self.link_down(node)

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        try:
            said = json.loads(body) if len(body) <= LARGEST else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise MalformedFrame("malformed conditions of a node")
        taken = said.get("taken")
        if isinstance(taken, int):
            if node in self._acknowledged:
                self._acknowledged[node] = taken
                self._release()
            return
        number, claims = said.get("number"), said.get("claims")
        if not isinstance(number, int) or not isinstance(claims, dict):
            raise MalformedFrame("malformed conditions of a node")
        self._forget(node)
        if claims:
            gates = self.told[node] = self._gates(claims)
            for found in gates.values():
                for gate in found or []:
                    self.server.conditions.adopt(gate)
        self.changed()
        self.post.note(node, self, _encoded({"taken": number}), is_needed=True)

    def _forget(self, node: str) -> None:
        gates = self.told.pop(node, None)
        if gates is None:
            return
        for found in gates.values():
            for gate in found or []:
                self.server.conditions.release(gate)
        self.changed()

    def _gates(self, claims: dict[str, object]) -> Gates:
        found: Gates = {}
        for filter, texts in claims.items():
            try:
                check_filter(filter, ANY_LEVELS)
            except InvalidTopicFilter:
                raise MalformedFrame("malformed conditions of a node") from None
            if not isinstance(texts, list) or not texts or len(texts) > MOST_CONDITIONS or len(found) >= MOST_CLAIMS:
                raise MalformedFrame("malformed conditions of a node")
            found[filter] = self._read(filter, texts)
        if sum([_weight(each) for gates in found.values() for each in gates or []]) > MOST_TESTS:
            raise MalformedFrame("too many conditions of a node")
        return found

    def _read(self, filter: str, texts: list[object]) -> list[Subscription] | None:
        gates: list[Subscription] = []
        try:
            for text in texts:
                gate = Subscription(filter)
                gate.condition = condition_of(str(text))
                gates.append(gate)
        except ConditionError:  # of a later version, or longer as others write it than it may be
            return None
        return gates

    # ---- where messages go ---------------------------------------------------------------------------------------

    def link(self, topic: str, ends: list[PeerEnd]) -> ConditionalLink | None:
        """For a topic that goes to these nodes, if one of them claims something of it."""
        found = [self._claimed(end.peer, topic) for end in ends]
        if all(each is None for each in found):
            return None
        return ConditionalLink(self.outgoing, ends, found)

    def _claimed(self, node: str, topic: str) -> list[Subscription] | None:
        """The conditions of which one has to hold; None: the message goes there in any case."""
        gates: list[Subscription] = []
        for filter, found in self.told.get(node, {}).items():
            if matches(filter, topic):
                if found is None:
                    return None
                gates += found
        return gates or None


class ConditionalLink(LinkDestination):
    """Nodes that a message goes to, some of them only if it meets a condition."""

    def __init__(self, outgoing: OutgoingRuns, ends: list[PeerEnd], gates: list[list[Subscription] | None]) -> None:
        super().__init__(outgoing, ends)
        self.gates = gates
        self.one_by_one = True
        weight = sum([_weight(gate) for each in gates for gate in each or []])
        self.width = 1 + weight // CHEAP
        self._parts: dict[tuple[int, ...], LinkDestination] = {}

    def _part(self, message: Message) -> LinkDestination | None:
        """The nodes that this message goes to; None: there is none."""
        conditions = self.outgoing.sending.conditions
        if len(message.payload) > conditions.most:
            return self._of(tuple(range(len(self.ends))))
        reading = conditions.reading(message)
        tally = conditions.tally
        wanted: list[int] = []
        for number, gates in enumerate(self.gates):
            if gates is None:
                wanted.append(number)
                continue
            for gate in gates:
                condition = gate.condition
                if not isinstance(condition, ContentCondition) or condition.may_hold(reading, tally):
                    wanted.append(number)
                    break
        tally.not_sent += len(self.ends) - len(wanted)
        return self._of(tuple(wanted)) if wanted else None

    def _of(self, wanted: tuple[int, ...]) -> LinkDestination:
        part = self._parts.get(wanted)
        if part is None:
            if len(self._parts) >= MOST_CLAIMS:
                self._parts.clear()
            part = self._parts[wanted] = LinkDestination(self.outgoing, [self.ends[number] for number in wanted])
        return part

    def take0(self, run: Run) -> None:
        part = self._part(self.outgoing.sending.message0(run))
        if part is not None:
            part.take0(run)

    def take1(self, run: Run) -> None:
        part = self._part(self.outgoing.sending.message1(run))
        if part is not None:
            part.take1(run)

    def deliver(self, message: Message, publisher: Session | None) -> None:
        if message.retain:
            super().deliver(message, publisher)
            return
        part = self._part(message)
        if part is not None:
            part.deliver(message, publisher)


class _Feed(RouteListener):
    def __init__(self, pushing: Pushing) -> None:
        self.pushing = pushing

    def recipients_changed(self, filter: str) -> None:
        self.pushing.recipients_changed(filter)


def overlap(one: str, other: str) -> bool:
    """Whether there may be a topic that both match; not more than a few steps, whatever clients write."""
    if len(one) > LONGEST or len(other) > LONGEST:
        return True
    first, second = one.split("/"), other.split("/")
    at = 0
    while True:
        ends, other_ends = at >= len(first), at >= len(second)
        if (not ends and first[at] == "#") or (not other_ends and second[at] == "#"):
            return True
        if ends or other_ends:
            return ends and other_ends
        if first[at] != second[at] and "+" not in (first[at], second[at]):
            return False
        at += 1


def _weight(gate: Subscription) -> int:
    return gate.condition.weight if isinstance(gate.condition, ContentCondition) else 0


def _encoded(said: object) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def _ignore() -> None:
    pass


def _ignore_task(task: ClientTask) -> None:
    pass
