"""Who the members are: rounds of gossip over the links, and what changes by them.

    heartbeat -> a round (peering/membership) -> Gossip frames to a few linked nodes -> changes -> joined or forgotten

Theory. Membership says who is there and where; whoever is known is a member for the links, so that messages wait for
it while it is away. It is owed nothing any more when it is forgotten, has left, or is dead and cannot come back.
Members that were linked once are kept on disk for the next start; of others this node has only been told.

What a node tells of itself is that its data plane makes progress: its loop runs, and its disk takes commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final

from headwater.build_info import version_line
from headwater.node.links.link import Link
from headwater.node.links.links import Links
from headwater.node.links.view import MQTT_KEY, PHASE_KEY
from headwater.peering.frames.frame import Gossip
from headwater.peering.membership.membership import Membership, MemberView, Outgoing
from headwater.peering.membership.messages import MalformedGossip
from headwater.peering.membership.roster import State, Timing

log = logging.getLogger("headwater.cluster")

SOFTWARE_KEY: Final = "software"
PASSING_KEY: Final = "passing"
"""In the map of a node that cannot come back: who holds it for dead forgets it at once."""


class Gossiping:
    """`forgotten` is told of a node that is no member any more; `node_at` says who was found at an address."""

    def __init__(self, links: Links, address: str, is_kept: bool, forgotten: Callable[[str], None]) -> None:
        """`address` is where others reach this node, `is_kept` whether it can come back."""
        self.node_at: Callable[[str], str] = _nobody
        self.looked: Callable[[list[MemberView]], None] | None = None
        """Told what is known, when it may have changed (owning.py)."""
        self._links = links
        self._server = links.server
        self._forgotten = forgotten
        self._declared: dict[str, bytes] = {}
        self._address = address
        self._is_kept = is_kept
        self._mqtt = ""
        self._phase = ""
        self._random = Random()
        self._membership = self._new_membership(links.boot)
        self._rounds = 0
        self._commit = 0
        self._is_running = False

    def _new_membership(self, generation: int) -> Membership:
        links = self._links
        timing = Timing(interval=links.settings.heartbeat)
        found = Membership(links.settings.name, links.node, generation, self._address, self._random, timing)
        found.set(SOFTWARE_KEY, version_line().encode()[:64])
        if not self._is_kept:
            found.set(PASSING_KEY, b"1")
        if self._mqtt:
            found.set(MQTT_KEY, self._mqtt.encode())
        if self._phase:
            found.set(PHASE_KEY, self._phase.encode())
        for key, value in self._declared.items():
            found.set(key, value)
        return found

    # ---- from start to stop --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._is_running = True
        self._round()

    def stop(self) -> None:
        if self._is_running and not self._is_kept:
            self._send(self._membership.leave())
        self._is_running = False

    def leave(self) -> None:
        """Say good-bye; nobody is a member any more."""
        self._send(self._membership.leave())
        self._links.leave()
        self._links.spooling.keep_members({})
        self._membership.take_changes()

    def come_back(self) -> None:
        """After `leave`."""
        self._membership = self._new_membership(self._membership.generation + 1)

    def serves_at(self, address: str) -> None:
        """Where this node's clients connect, for others to show."""
        self._mqtt = address
        self._membership.set(MQTT_KEY, address.encode())

    def declare(self, values: dict[str, bytes]) -> None:
        """What is told of this node's part in an edge, in place of what was told before; at once."""
        for key in self._declared.keys() - values.keys():
            self._membership.delete(key, self._server.hot.now)
        for key, value in values.items():
            if self._declared.get(key) != value:
                self._membership.set(key, value)
        self._declared = dict(values)
        if self._is_running:
            greeting = self._membership.greeting(self._server.hot.now)
            for link in self._links.up.values():
                if link.end is not None:
                    link.end.send(Gossip(greeting))

    def is_in(self, phase: str) -> None:
        """What this node does instead of taking clients; "": it takes them."""
        if phase != self._phase:
            self._phase = phase
            if phase:
                self._membership.set(PHASE_KEY, phase.encode())
            else:
                self._membership.delete(PHASE_KEY, self._server.hot.now)

    def others_that_serve(self) -> dict[str, str]:
        """Live members that take clients, each with where they connect; "" where it is not known."""
        return {
            each.node: each.values.get(MQTT_KEY, b"").decode(errors="replace")
            for each in self._membership.view(self._server.hot.now)
            if each.node != self._links.node and each.state == State.LIVE and PHASE_KEY not in each.values
        }

    def seek(self, addresses: list[str]) -> None:
        self._membership.seek(addresses)

    # ---- what is known -------------------------------------------------------------------------------------------

    def view(self, now: float) -> list[MemberView]:
        return self._membership.view(now)

    def address_of(self, node: str) -> str:
        for each in self._membership.view(self._server.hot.now):
            if each.node == node:
                return each.address
        return ""

    def forget(self, node: str) -> None:
        """Raises ValueError if it is not known, or live."""
        links = self._links
        is_only_remembered = node not in links.up and node in links.spooling.members
        if is_only_remembered and self._membership.state_of(node) is None:  # nobody has told of it since the start
            self._keep_no_longer(node)
            links.forget(node)
            self._forgotten(node)
        else:
            self._membership.forget(node, self._server.hot.now)
            self._see_changes()

    def node_left(self, node: str) -> None:
        """It has said so itself."""
        self._membership.parted(node, self._server.hot.now)
        self._links.forget(node)
        self._keep_no_longer(node)
        self._see_changes()

    def _keep_no_longer(self, node: str) -> None:
        kept = self._links.spooling.members
        self._links.spooling.keep_members({each: kept[each] for each in kept if each != node})

    # ---- rounds --------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        if not self._is_running:
            return
        now = self._server.hot.now
        self._server.timers.at(now + self._links.settings.heartbeat, self._round)
        self._send(self._membership.tick(now, self._progress()))
        self._see_changes()
        if not self._links.has_left:  # addresses come later than the first news of a node
            view = self._membership.view(now)
            self._keep_members(dict(self._links.spooling.members), view)
            self._show(view)

    def _progress(self) -> int:
        """Grows unless one commit has been under way since the last round."""
        journal = self._server.journal
        sequence = journal.sequence if journal is not None and journal.running else 0
        if not sequence or sequence != self._commit:
            self._rounds += 1
        self._commit = sequence
        return self._rounds

    def _send(self, messages: list[Outgoing]) -> None:
        up = self._links.up
        for node, address, data in messages:
            link = up.get(node or self.node_at(address))
            if link is None and self._links.relays and up:
                link = self._random.choice(list(up.values()))  # what is said is not for one alone
            if link is not None and link.end is not None:
                link.end.send(Gossip(data))

    def linked(self, link: Link) -> None:
        """Who has just been linked need not wait for the next round."""
        now = self._server.hot.now
        if link.end is not None:
            link.end.send(Gossip(self._membership.greeting(now)))
        self._keep_members(dict(self._links.spooling.members), self._membership.view(now))

    def heard(self, link: Link, data: bytes) -> None:
        if self._links.has_left:
            return
        try:
            answer = self._membership.receive(data, self._server.hot.now, link.node)
        except MalformedGossip as error:
            link.failed(str(error))
            return
        if answer is not None and link.end is not None:
            link.end.send(Gossip(answer))
        self._see_changes()
        if self.looked is not None:
            self._show(self._membership.view(self._server.hot.now))

    def _show(self, view: list[MemberView]) -> None:
        if self.looked is not None:
            self.looked([member for member in view if not is_gone(member)])

    # ---- changes -------------------------------------------------------------------------------------------------

    def _see_changes(self) -> None:
        links = self._links
        changes = self._membership.take_changes()
        if not changes or links.has_left:  # then they are nothing to this node any more
            return
        view = {each.node: each for each in self._membership.view(self._server.hot.now)}
        members = dict(links.spooling.members)
        for change in changes:
            log.info("node %s is %s (%s)", change.node, change.after or "forgotten", change.reason)
            if is_gone(view.get(change.node)):
                links.forget(change.node)
                members.pop(change.node, None)
                self._forgotten(change.node)
            else:
                links.join(change.node)
        self._keep_members(members, list(view.values()))

    def _keep_members(self, members: dict[str, str], view: list[MemberView]) -> None:
        """For the next start: those that are known already, and those that were linked meanwhile."""
        links = self._links
        for member in view:
            is_kept = not is_gone(member) and PASSING_KEY not in member.values and links.is_known(member.node)
            if member.node != links.node and is_kept:
                members[member.node] = member.address or members.get(member.node, "")
        links.spooling.keep_members(members)


def is_gone(member: MemberView | None) -> bool:
    """Whether nothing is owed to it any more: it is forgotten, has left, or is dead and cannot come back."""
    if member is None or member.state == State.LEFT:
        return True
    return member.state == State.DEAD and PASSING_KEY in member.values


def _nobody(address: str) -> str:
    return ""
