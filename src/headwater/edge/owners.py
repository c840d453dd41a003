"""One node's part in who owns which topics, and how a filter goes from one owner to another while messages flow.

Theory. *Who publishes decides.* The node where a message is published looks up the topic's owner in its own *view* of
the table and sends the message there; and it tells each other node, in its stream to that node, when its view changes:
a View is a message among the others (Chandy and Lamport's marker, 1985). So a node stores what comes from P exactly if
P's view *as told in P's stream up to there* names this node. What P published before it changed its view is in front of
the View in all its streams, what it publishes later behind it in all of them. Hence the first invariant, which needs no
agreement between nodes, no clock and no barrier, and holds whatever is cut or killed:

    1. Each message is stored by exactly one node: the owner by its publisher's view when it was published.

The streams are those of QoS 1 and 2, which survive cuts and kills: a View is applied by the receiver in one commit with
its position in the stream, and changed at the sender in one commit with the letters that tell it. Messages of QoS 0
have a stream of their own, without a disk: there a View is a note, sent at the same moment, and again as the first
thing over each new connection.

*A move is one write.* The new owner B claims the filter with a higher epoch, on its own disk, and tells all by gossip.
Before that commit nothing has happened, after it the move goes on by itself: each node changes its view when it hears
of the claim. What is left is to know how far that is:

    B   claim (F, epoch e+1)           on disk, then told: the one step that decides
    P   each node, B and the old owner A included, changes its view: one filter at a time, a View into each stream
    A   has a View with F from all: what it has of F is final. It notes the position (a row that ends) and tells it
    B   knows that all have changed, and that A has ended: settled

    2. A filter's row at A ends when nothing can come any more for it. A node that is away may have messages on their
       way to A: A's row ends when it is back, or forgotten.
    3. Order. B takes a View of P that gives it topics of A only when A has taken the same View of P (`must_wait`), so
       that A has what was in front of it. Until then P's stream to B stands still. A View changes one filter: its
       gainers wait for losers, and no node is both. By induction over P's Views no two wait for each other.
    4. A crash takes back what was not committed, and that was not told: views and claims are told after their commit.

A filter that joins the owner around it is dropped by that one when it is settled (rows.py). Nodes hear that in any
order with what else is claimed and ended, so who dropped it says that it did (a claim of its own among those that have
ended): nobody falls back to a claim before it. And a move of a wider filter has not ended as long as a node's View
still has a claim of A that A has dropped: it sends these topics to A.

The claim of a node that is forgotten is void: then the claim with the next lower epoch counts, so if B is lost for good
before A has ended, F is A's again. Two nodes that claim the same filter at the same time have claims of one epoch, and
the higher node id wins: it is as if the filter had moved on.

Without a claim, topics go to `rest`: the delivery node of the publisher's own edge with the smallest id (or nobody,
by the setting). It is part of the view, and so told like it.

Nothing here knows time, disk or sockets: positions, members and wall time are arguments; `record` is what has to be on
disk with whatever was done in the same turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from headwater.edge.declaration import Declaration, DeclaredClaim, Row, TooLarge
from headwater.edge.declaration import encode as encode_declaration
from headwater.edge.messages import View
from headwater.edge.ownership import Claim, Table, check_owned, overlap
from headwater.edge.rows import closed, handed_over, has_part, regained
from headwater.edge.status import DELIVERY, RECEIVING

MOST_ROWS: Final = 256
"""Rows that a node remembers; the oldest that have ended give way."""
MOST_ENDED: Final = 64
MOST_WAITS: Final = 8
"""Names that are told of those that a move waits for."""
MOST_OWNED: Final = 64
"""Filters that one node owns."""
EVERYTHING: Final = "#"
NOBODY: Final = (0, "")
"""The rank of no claim."""

BY_SETTINGS: Final = 1
"""The epoch of what the settings say: it is claimed without knowing what was dropped, and counts all the same."""

SWITCHING: Final = "switching"
ENDING: Final = "ending"


class Refused(ValueError):
    """A filter cannot go there now; the text says why, and what to do."""


class Part(NamedTuple):
    """What this node is. `keeps`: topics that nobody owns go to the edge's delivery node."""

    node: str
    edge: str
    roles: tuple[str, ...]
    keeps: bool

    @property
    def delivers(self) -> bool:
        return DELIVERY in self.roles


class OwnClaim:
    def __init__(self, filter: str, epoch: int, since: float, sources: tuple[str, ...], joins: bool) -> None:
        self.filter = filter
        self.epoch = epoch
        self.since = since
        self.sources = sources
        self.joins = joins
        self.is_settled = not sources

    def record(self) -> list[Any]:
        return [self.filter, self.epoch, self.since, self.sources, self.joins, self.is_settled]


class Owners:
    """`members`: the other nodes whose messages may come here, or that may be sent messages."""

    def __init__(self, part: Part, boot: int, members: Callable[[], Iterable[str]]) -> None:
        self.part = part
        self.node = part.node
        self.members = members
        self.view = View(boot << 32, Table())
        """By which messages are sent that are published here."""
        self.claims: dict[str, OwnClaim] = {}
        self.rows: list[Row] = []
        self.endings: dict[Claim, None] = {}
        """Claims of others whose topics may still come here."""
        self.ended: list[Claim] = []
        self.declared: dict[str, Declaration] = {}
        self.heard: dict[str, View] = {}
        """Of others, as told in their streams of QoS 1 and 2 up to where these are applied."""
        self.heard0: dict[str, Table] = {}
        self.seen: dict[str, dict[str, int]] = {}
        """How far others have come in views, as they say: by who says it and whose views."""
        self._initial: list[str] = []
        """Filters of the settings that were claimed once."""
        self._top = 0

    # ---- from start to start -------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """A value of JSON."""
        return {
            "view": [self.view.number, list(self.view.table.claims.values()), self.view.table.rest],
            "claims": [each.record() for each in self.claims.values()],
            "rows": self.rows,
            "endings": list(self.endings),
            "ended": self.ended,
            "initial": self._initial,
            "top": self._top,
        }

    def restore(self, record: dict[str, Any], boot: int) -> None:
        number, claims, rest = record["view"]
        self.view = View(max(number, boot << 32), Table([Claim(*each) for each in claims], rest))
        for filter, epoch, since, sources, joins, is_settled in record["claims"]:
            claim = self.claims[filter] = OwnClaim(filter, epoch, since, tuple(sources), joins)
            claim.is_settled = is_settled
        self.rows = [Row(*each) for each in record["rows"]]
        self.endings = dict.fromkeys(Claim(*each) for each in record["endings"])
        self.ended = [Claim(*each) for each in record["ended"]]
        self._initial, self._top = list(record["initial"]), record["top"]

    def begin(self, owns: Iterable[str], position: int, now: float, yields: bool = False) -> None:
        """What the settings say is claimed once: what has moved since stays where it is. A node that is not a delivery
        node any more gives up what it had, unless it `yields` that to who has its store."""
        if not self.part.delivers:
            if not yields:
                self.claims.clear()
            return
        if self.part.keeps and not any(row.epoch == 0 for row in self.rows):
            self.rows.append(Row(EVERYTHING, 0, 1, None, EVERYTHING))
        for filter in owns:
            if filter not in self._initial:
                self._initial.append(filter)
                if filter not in self.claims:
                    self._claim(filter, BY_SETTINGS, (), False, position, now)

    # ---- a store that goes to another node -----------------------------------------------------------------------

    def senders(self) -> list[str]:
        """Nodes that send messages here to be stored, as far as they have told."""
        found = []
        for node in self.members():
            tables = [self.heard0.get(node), self.heard[node].table if node in self.heard else None]
            if None in tables or any(each is not None and each.is_of(self.node) for each in tables):
                found.append(node)
        return sorted(found)

    def gives_up_delivering(self) -> None:
        """What it owns is its own until others claim it; nothing else comes to it."""
        self.part = self.part._replace(roles=(RECEIVING,))

    @property
    def has_topics(self) -> bool:
        """Whether something that is published here would be stored here."""
        return self.view.table.is_of(self.node)

    def next_of_own(self) -> str:
        """A filter that is this node's, and on its way to nobody; "": there is none."""
        own = {claim.filter for claim in self.target() if claim.node == self.node}
        return next((each for each in self.claims if each in own), "")

    def inherit(self, store: str) -> None:
        """This node's store may have come from another node, which declares it still: its rows are this node's, too."""
        for node, declaration in self.declared.items():
            if store and declaration.store == store and node != self.node:
                known = {row._replace(last=None) for row in self.rows}
                self.rows += [row for row in declaration.rows if row._replace(last=None) not in known]
        self._forget_rows()

    # ---- the others ----------------------------------------------------------------------------------------------

    def declare(self, node: str, declaration: Declaration) -> None:
        before = self.declared.get(node)
        known = () if before is None else before.ended
        self.declared[node] = declaration
        self._void_before([each for each in _dropped_by(node, declaration.ended) if each not in known])
        epochs = [each.epoch for each in declaration.claims]
        epochs += [each.epoch for each in declaration.rows]  # of claims that were dropped, too
        epochs += [each.epoch for each in declaration.ended]
        self._top = max(self._top, *epochs, 0)

    def forget(self, node: str) -> None:
        """It is no member any more. Of those that owned its filters before it, some may not have told yet that
        they have ended."""
        lost = self.declared.pop(node, None)
        for known in (self.heard, self.heard0, self.seen):
            known.pop(node, None)
        if lost is not None:
            settled = [Claim(each.filter, each.epoch, node) for each in lost.claims if not each.step]
            self._void_before([*settled, *_dropped_by(node, lost.ended)])

    def _void_before(self, claims: list[Claim]) -> None:
        """What others declared with lower ranks has ended, whether they have told that already or not."""
        for node, declaration in self.declared.items():
            left = [
                each
                for each in declaration.claims
                if not any(of.filter == each.filter and (each.epoch, node) < of.rank for of in claims)
            ]
            if len(left) < len(declaration.claims):
                self.declared[node] = declaration._replace(claims=tuple(left))

    def hear(self, node: str, view: View) -> None:
        self.heard[node] = view

    def hear0(self, node: str, view: View) -> None:
        self.heard0[node] = view.table

    def has_seen(self, node: str, numbers: dict[str, int]) -> None:
        self.seen[node] = numbers

    def numbers(self) -> dict[str, int]:
        """How far this node has come in the views of others."""
        return {node: view.number for node, view in self.heard.items()}

    def must_wait(self, node: str, view: View) -> set[str]:
        """Nodes that lose topics to this one by that view of another one, and have not said that they have taken it."""
        before = self.heard.get(node)
        if before is None or not self.part.delivers:
            return set()
        losers = (self._losers(before.table, view.table) - {self.node, node}) & set(self.members())
        return {each for each in losers if self._seen(each, node) < view.number}

    def _seen(self, node: str, of: str) -> int:
        return self.seen.get(node, {}).get(of, 0)

    def _losers(self, before: Table, after: Table) -> set[str]:
        found: set[str] = set()
        for filter in before.claims.keys() | after.claims.keys():
            if before.rank_of(filter) == after.rank_of(filter):
                continue
            had = before.claims.get(filter)
            if filter not in after.claims:
                if had is not None and self.node in after.losers(filter):
                    found.add(had.node)
            elif after.claims[filter].node == self.node:
                found |= before.losers(filter) if had is None else {had.node}
        if before.rest != after.rest == self.node:
            found.add(before.rest)
        return found

    # ---- the view ------------------------------------------------------------------------------------------------

    def target(self) -> Table:
        """The table as all is known now. What was claimed by a node that has not been heard of since the start is as it
        was."""
        claims = [Claim(each.filter, each.epoch, self.node) for each in self.claims.values()]
        for node, declaration in self.declared.items():
            claims += declaration.claims_of(node)
        members, dropped = set(self.members()), self._dropped()
        claims += [each for each in self.view.table if each.node in members and each.node not in self.declared]
        claims = [each for each in claims if each.epoch == BY_SETTINGS or each.rank > dropped.get(each.filter, NOBODY)]
        return Table(claims, self._rest(members))

    def _dropped(self) -> dict[str, tuple[int, str]]:
        """Ranks of claims that were absorbed, by filter: those before them are void as well, though it may not
        have been heard yet of who made these that they have ended."""
        found: dict[str, tuple[int, str]] = {}
        for node, ended in [(self.node, self.ended), *((node, each.ended) for node, each in self.declared.items())]:
            for claim in _dropped_by(node, ended):
                found[claim.filter] = max(found.get(claim.filter, NOBODY), claim.rank)
        return found

    def _rest(self, members: set[str]) -> str:
        part, now = self.part, self.view.table.rest
        if not part.keeps:
            return ""
        if part.delivers:
            return self.node
        found = [node for node, each in self.declared.items() if DELIVERY in each.roles and each.edge == part.edge]
        if now in members and now not in self.declared:  # it has not been heard of since the start
            found.append(now)
        return min(found, default="")

    def next_view(self) -> View | None:
        """Change the view by one filter; None: it is as it should be. Whoever calls this tells all, in this turn."""
        target, now = self.target(), self.view.table
        changed = [each for each in target if now.rank_of(each.filter) != each.rank]
        if changed:
            first = min(changed, key=lambda each: (each.rank, each.filter))
            table = now.with_claim(first) if now.rank_of(first.filter) < first.rank else self._replaced(now, first)
            if first.node != self.node:
                self._loses(first)
        else:
            gone = sorted(each for each in now if each.filter not in target.claims)
            if gone:
                table = now.without(gone[0].filter)
                self._regains(gone[0], table)
            elif now.rest != target.rest:
                table = now.with_rest(target.rest)
            else:
                return None
        self.view = View(self.view.number + 1, table)
        return self.view

    def _replaced(self, table: Table, claim: Claim) -> Table:
        """By a claim of a lower rank, as that of a node that is gone was the higher one."""
        return table.without(claim.filter).with_claim(claim)

    def _loses(self, claim: Claim) -> None:
        if any(has_part(row, claim.filter) for row in self.rows):
            self.endings[claim] = None

    def _regains(self, claim: Claim, after: Table) -> None:
        """Nobody claims it any more: what ended for it may go on. If some node may still send topics of it elsewhere,
        they end when it does not."""
        if claim.node == self.node:
            return
        rest = [Claim(EVERYTHING, 0, self.node)] if self.part.keeps and self.part.delivers else []
        found, others = regained(self.rows, claim, [*after, *rest], self.node, set(self.ended))
        self.rows += found
        self.endings.update(dict.fromkeys(others))
        self._forget_rows()

    def owner(self, topic: str) -> str:
        """Of what is published here."""
        return self.view.table.owner(topic)

    # ---- claiming ------------------------------------------------------------------------------------------------

    def check(self, filter: str, linked: Iterable[str]) -> set[str]:
        """The nodes that have its topics now. Raises Refused, or InvalidTopicFilter."""
        check_owned(filter)
        table = self.target()
        if not self.part.delivers:
            raise Refused(f"node {self.node} is no delivery node: it stores nothing (edge.roles)")
        owner = table.claims.get(filter)
        if owner is not None and owner.node == self.node:
            raise Refused(f"node {self.node} has {filter} already")
        wider = table.wider(filter)
        if owner is None and wider is not None and table.losers(filter) == {self.node}:
            raise Refused(f"node {self.node} has all topics of {filter} already, by a wider filter")
        unheard = sorted(set(self.members()) - self.declared.keys())
        if unheard:
            raise Refused(
                f"node {self.node} has not heard of node {unheard[0]} since its start: try again, or have that node "
                f"forgotten (headwater cluster forget {unheard[0]})"
            )
        self._check_still(filter)
        if len(self.claims) >= MOST_OWNED:
            raise Refused(f"node {self.node} has {MOST_OWNED} filters; no node may have more")
        sources = table.losers(filter) - {self.node}
        away = sorted(sources - set(linked))
        if away:
            raise Refused(
                f"node {away[0]}, which has topics of {filter}, is not linked with node {self.node}: bring it back, or "
                f"have it forgotten (headwater cluster forget {away[0]})"
            )
        return sources

    def _check_still(self, filter: str) -> None:
        for node, declaration in [*self.declared.items(), (self.node, self.declaration())]:
            for claim in declaration.claims:
                if claim.step and overlap(claim.filter, filter):
                    waits = f", and waits for {', '.join(claim.waits)}" if claim.waits else ""
                    raise Refused(f"{claim.filter} is on its way to node {node}{waits}")

    def claim(self, filter: str, joins: bool, linked: Iterable[str], position: int, now: float) -> None:
        """This is the step that decides; `position` is the next one of the store. Raises Refused."""
        self.check(filter, linked)
        claims, rows = dict(self.claims), list(self.rows)
        self._claim(filter, self._top + 1, self._sources(filter), joins, position, now)
        try:
            encode_declaration(self.declaration(), 0)
        except TooLarge as error:
            self.claims, self.rows = claims, rows
            raise Refused(str(error)) from None

    def _sources(self, filter: str) -> tuple[str, ...]:
        """Nodes whose rows have topics of it: they end."""
        return tuple(
            sorted(
                node
                for node, declaration in self.declared.items()
                if node != self.node and any(has_part(row, filter) for row in declaration.rows)
            )
        )

    def _claim(self, filter: str, epoch: int, sources: tuple[str, ...], joins: bool, position: int, now: float) -> None:
        self._top = max(self._top, epoch)
        self.claims[filter] = OwnClaim(filter, epoch, now, sources, joins)
        self.rows.append(Row(filter, epoch, position, None, filter))
        self._close(filter, epoch, position - 1)

    def _forget_rows(self) -> None:
        found = [row for row in self.rows if row.last is not None]
        found += [row for row in self.rows if row.last is None and row.filter != row.claim]
        for row in found[: max(0, len(self.rows) - MOST_ROWS)]:
            self.rows.remove(row)

    # ---- how far moves are ---------------------------------------------------------------------------------------

    def look(self, position: int) -> bool:
        """Whether something has changed that is to be kept and told. `position` is the next one of the store."""
        members, target, changed = set(self.members()), self.target(), False
        for ending in list(self.endings):
            if target.rank_of(ending.filter) < ending.rank:  # who claimed it is gone
                del self.endings[ending]
                changed = True
            elif not self._unswitched(ending.filter, ending.rank, members) and not self._lags(ending.filter, members):
                del self.endings[ending]
                self._end(ending, position)
                changed = True
        for claim in list(self.claims.values()):
            if not claim.is_settled and not self.waits_of(claim, members)[1]:
                claim.is_settled = changed = True
            if claim.is_settled and claim.joins and self._is_spare(claim, target) and self._absorb(claim, target):
                changed, target = True, self.target()
        return changed

    def _absorb(self, claim: OwnClaim, target: Table) -> bool:
        """From now on its topics are this node's by other filters; False: so many rows could not be told."""
        claims, rows = dict(self.claims), list(self.rows)
        del self.claims[claim.filter]
        self.rows = handed_over(rows, claim.filter, target)
        self._forget_rows()
        try:
            encode_declaration(self.declaration(), 0)
        except TooLarge:
            self.claims, self.rows = claims, rows
            return False
        self.ended = [*self.ended, Claim(claim.filter, claim.epoch, self.node)][-MOST_ENDED:]
        return True

    def _is_spare(self, claim: OwnClaim, target: Table) -> bool:
        found = target.claims.get(claim.filter)
        if found is None or found.node != self.node or not target.is_spare(found):
            return False
        return not any(each.filter == claim.filter for of in self.declared.values() for each in of.claims)

    def _unswitched(self, filter: str, rank: tuple[int, str], members: set[str]) -> list[str]:
        """Nodes whose messages may still go to an owner before that one."""
        found = [node for node in members if node not in self.heard or self.heard[node].table.rank_of(filter) < rank]
        if self.view.table.rank_of(filter) < rank:
            found.append(self.node)
        return sorted(found)

    def _lags(self, filter: str, members: set[str]) -> bool:
        """Whether some node still sends topics of it here by a claim that this node has no more: what is told of two
        nodes is heard in any order, so that the wider filter may have gone from here already in its view."""
        views = [self.heard[node].table for node in members if node in self.heard]
        return any(
            each.node == self.node and each.filter not in self.claims and overlap(each.filter, filter)
            for table in [self.view.table, *views]
            for each in table
        )

    def _end(self, ending: Claim, position: int) -> None:
        filter, last = ending.filter, position - 1
        own = self.claims.get(filter)
        if own is not None and (own.epoch, self.node) < ending.rank:
            del self.claims[filter]
        self.ended = [*self.ended, ending][-MOST_ENDED:]
        self._close(filter, ending.epoch, last)

    def _close(self, filter: str, epoch: int, last: int) -> None:
        """Rows of claims with lower epochs have nothing of this filter behind that position."""
        self.rows = closed(self.rows, filter, epoch, last)
        self._forget_rows()

    def waits_of(self, claim: OwnClaim, members: set[str]) -> tuple[str, list[str]]:
        """The step that its move is at, and for whom it waits; nobody: it is settled."""
        rank = (claim.epoch, self.node)
        waits = self._unswitched(claim.filter, rank, members)
        if waits:
            return SWITCHING, waits
        waits = [
            node
            for node in claim.sources
            if node in members and node in self.declared and Claim(claim.filter, *rank) not in self.declared[node].ended
        ]
        return ENDING, waits

    # ---- what is told --------------------------------------------------------------------------------------------

    def declaration(self, store: str = "", rest: str = "") -> Declaration:
        members = set(self.members())
        claims = []
        for claim in self.claims.values():
            step, waits = ("", []) if claim.is_settled else self.waits_of(claim, members)
            claims.append(
                DeclaredClaim(*(claim.filter, claim.epoch, claim.since, claim.sources, step, tuple(waits[:MOST_WAITS])))
            )
        return Declaration(
            *(self.part.edge, self.part.roles, store, rest),
            *(tuple(claims), tuple(self.rows), tuple(self.ended)),
        )


def _dropped_by(node: str, ended: Iterable[Claim]) -> list[Claim]:
    """Of what a node says has ended, its own claims: it has absorbed them."""
    return [each for each in ended if each.node == node]
