"""Whom to dial, and when again.

Theory. A neighbour that is known and not linked is dialed, again and again with growing pauses: by the one of the two
with the smaller id at once, by the other one a little later, in case the first cannot. So are the addresses to join,
until there is a link with whoever is there. A pause belongs to an address, not to a node: one that moves is dialed at
once. It is short again when a link has come up and lasted; one that came up and ended soon after does not count.

Where members are, they tell themselves, or others tell of them: one that is mistaken or hostile can name any host and
port, and another one as often as it likes. So of one member, and of all together, a few different addresses are tried
in a minute (`_Novelty`), the pause grows longer where nobody was ever linked, few are dialed at a time, and those that
nobody has any more are forgotten. Paths of Unix sockets are only believed where the operator has some, too. Addresses
to join are the operator's and have no such bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from headwater.node.links.dialing import Dialer, refusal
from headwater.node.links.gossiping import Gossiping, is_gone
from headwater.node.links.history import LinkHistory
from headwater.node.links.link import ALREADY, LOST, Link
from headwater.node.links.links import Links
from headwater.node.links.seeking import Seeking
from headwater.node.transports.tls import Tls

if TYPE_CHECKING:
    from headwater.node.plane.channel import Channel, Transport

log = logging.getLogger("headwater.cluster")

LOOK: Final = 0.1
"""Seconds between two looks for nodes to dial."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts at one address: the pause doubles."""
LONGEST_PAUSE_OF_STRANGERS: Final = 30.0
"""The same for a member that was never linked."""
STEADY: Final = 1.0
"""Seconds that a link lasts at least if the next pause is to be a short one."""
SECOND: Final = 1.0
"""Seconds after which the node with the larger id dials, too."""
MOST_DIALED: Final = 64
"""Addresses that are dialed at a time."""
MOST_ADDRESSES: Final = 1024
"""Addresses of which is remembered who was there, or how dialing ended; beyond, only of those that are in use."""
AFTER_TLS: Final = "right after TLS: the log of the other node may say what it has against this node's certificate"
MINUTE: Final = 60.0
MOST_OF_ONE_MEMBER: Final = 4
"""Different addresses of one member that are tried in a minute."""
MOST_OF_ALL_MEMBERS: Final = 256
"""The same of all members together: as many as a cluster has nodes."""


class _Attempts:
    """At one address."""

    def __init__(self) -> None:
        self.next = 0.0
        self.pause = self.before = FIRST_PAUSE
        """The next one, and what it was before the link came up."""
        self.is_under_way = False
        self.reason = ""
        self.transport: Transport | None = None
        """Of the connection that is no link yet. In TLS 1.3 the other node may refuse this one's certificate only then,
        which TLS knows and the link does not."""
        self.is_of_a_stranger = False
        """Whether others told of it, and who is said to be there was never linked."""


class _Novelty:
    """Which addresses of members were tried for the first time in the last minute."""

    def __init__(self) -> None:
        self._tried: dict[tuple[str, str], float] = {}
        """(node, address): when, the oldest first."""

    def allows(self, node: str, address: str, now: float) -> bool:
        """Whether this node's address may be tried; it counts as tried then."""
        tried = self._tried
        while tried and (oldest := next(iter(tried))) and tried[oldest] <= now - MINUTE:
            del tried[oldest]
        if (node, address) in tried:
            return True
        if len(tried) >= MOST_OF_ALL_MEMBERS or sum(each == node for each, _ in tried) >= MOST_OF_ONE_MEMBER:
            return False
        tried[node, address] = now
        return True


class Redialing:
    """`own` says where others reach this node."""

    def __init__(
        self,
        links: Links,
        gossiping: Gossiping,
        seeking: Seeking,
        history: LinkHistory,
        dialer: Dialer,
        own: Callable[[], str],
    ) -> None:
        self._links = links
        self._gossiping = gossiping
        self._seeking = seeking
        self._history = history
        self._dialer = dialer
        self._own = own
        self._attempts: dict[str, _Attempts] = {}
        self._node_at: dict[str, str] = {}
        """Who was found at an address."""
        self._novelty = _Novelty()
        self._random = Random()
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._look()

    def stop(self) -> None:
        self._is_running = False
        self._dialer.close()

    def node_at(self, address: str) -> str:
        """Who was found there; "": nobody."""
        return self._node_at.get(address, "")

    def why_not(self, address: str) -> str:
        """Why there is no link with whoever is there; "": that is not known."""
        attempts = self._attempts.get(address)
        return "" if attempts is None else attempts.reason

    def again(self) -> None:
        """Without the pauses that are under way."""
        self._attempts.clear()

    def link_changed(self, link: Link, now: float) -> None:
        """It came up, or went down."""
        if not link.dialed:
            return
        attempts = self._attempts.setdefault(link.dialed, _Attempts())
        attempts.is_under_way = False
        transport, attempts.transport = attempts.transport, None
        if link.node:
            self._node_at[link.dialed] = link.node
        if link.why and link.why != ALREADY and link.node not in self._links.up:
            why = link.why if link.end is not None else _why(link.why, transport)
            if link.end is not None and now - link.since < STEADY:
                attempts.pause = attempts.before  # it will not be better at once
            self._failed(link.dialed, attempts, why, now)
        else:
            attempts.before = attempts.pause
            attempts.pause, attempts.reason = FIRST_PAUSE, ""

    def _failed(self, address: str, attempts: _Attempts, why: str, now: float) -> None:
        if why != attempts.reason and self._is_running:
            attempts.reason = why
            log.info("no link with %s: %s; trying again", address, why)
        attempts.next = now + attempts.pause * (0.5 + self._random.random())
        longest = LONGEST_PAUSE_OF_STRANGERS if attempts.is_of_a_stranger else LONGEST_PAUSE
        attempts.pause = min(2 * attempts.pause, longest)

    # ---- looking for somebody to dial ----------------------------------------------------------------------------

    def _look(self) -> None:
        if not self._is_running:
            return
        server = self._links.server
        now = server.hot.now
        if not self._links.has_left:
            self._dial_some(now)
        server.timers.at(now + LOOK, self._look)

    def _dial_some(self, now: float) -> None:
        wanted = list(self._to_dial(now).items())
        self._random.shuffle(wanted)
        under_way = sum(each.is_under_way for each in self._attempts.values())
        for address, node in wanted:
            attempts = self._attempts.get(address)
            if under_way >= MOST_DIALED or (attempts is not None and (attempts.is_under_way or now < attempts.next)):
                continue
            if node and not self._novelty.allows(node, address, now):
                continue
            if attempts is None:
                attempts = self._attempts[address] = _Attempts()
            attempts.is_of_a_stranger = bool(node) and not self._links.is_known(node)
            under_way += 1
            self._dial(address, attempts)
        if max(len(self._attempts), len(self._node_at)) > MOST_ADDRESSES:
            self._forget_addresses(now)

    def _to_dial(self, now: float) -> dict[str, str]:
        """Addresses, and the member who is said to be there; "": the operator says that somebody is."""
        links = self._links
        found: dict[str, str] = {}
        is_away = any(node not in links.up for node in links.spooling.ends)
        for member in self._gossiping.view(now) if is_away else ():  # it looks at all that it has heard of all
            node = member.node
            if node == links.node or node in links.up or not member.address or not links.is_neighbour(node):
                continue
            if is_gone(member):
                continue
            if links.node < node or now - self._history.of(node, now).since > SECOND:
                found[member.address] = node
        others = {address: node for node, address in links.spooling.members.items() if address and node not in links.up}
        others.update(dict.fromkeys(self._seeking.addresses, ""))
        for address, node in others.items():
            if self._node_at.get(address) not in (*links.up, links.node):
                found[address] = node
        found.pop(self._own(), None)
        return {each: node for each, node in found.items() if not node or self._may_be_local or not _is_path(each)}

    @property
    def _may_be_local(self) -> bool:
        """Whether nodes may be behind Unix sockets: else a member could have us connect to any on this machine."""
        return bool(self._links.settings.unix) or any(map(_is_path, self._seeking.addresses))

    def _dial(self, address: str, attempts: _Attempts) -> None:
        attempts.is_under_way = True

        def done(channel: Channel | None, reason: str) -> None:
            if channel is None:
                attempts.is_under_way = False
                self._failed(address, attempts, reason, self._links.server.hot.now)
            elif self._is_running:
                attempts.transport = channel.transport
                self._links.open(channel, address)

        self._dialer.dial(address, done)

    def _forget_addresses(self, now: float) -> None:
        """Those that are nobody's any more."""
        used = {each.address for each in self._gossiping.view(now)}
        used.update(self._seeking.addresses, [each.dialed for each in self._links.up.values()])
        self._attempts = {each: found for each, found in self._attempts.items() if found.is_under_way or each in used}
        self._node_at = {each: node for each, node in self._node_at.items() if each in used}


def _why(why: str, transport: Transport | None) -> str:
    if why != LOST or not isinstance(transport, Tls):
        return why
    return refusal(transport.failure) if transport.failure else f"{why} {AFTER_TLS}"


def _is_path(address: str) -> bool:
    return address.strip().startswith("unix:")
