"""A node that starts takes clients when it has what the others have, and says so until then.

    retained messages   compared with one live member, completely
    sessions            it has heard who has which (sessions.py), so that no client begins anew that has one elsewhere

Theory. "Both have the same" never comes where something is published all the time. So a comparison is complete when all
that differed at its beginning is here: the peer has told of all branches that differ, and has dealt with all that this
node asked for. Nobody keeps anything about a conversation (peering/retained/reconciling.py); but frames come in order,
and heartbeats say how many of them the peer has dealt with, so a heartbeat behind an answer says that there is no more.
A peer tells part by part, and nothing while much waits for this node: after a round with much in it comes another one.

Who waits for nobody: a node without members on disk and without addresses to join. Where members are known, or
addresses to join, but nobody is reached for `cluster.catch_up_wait` seconds, the node takes clients without them: they
are gone, or it is the first of its cluster. The same holds for members that have not told of their sessions by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.node.hooks import Refusal
from headwater.node.links.entry import Entry
from headwater.node.links.retaining import MOST_WAITING, Comparison
from headwater.node.links.view import CATCHING_UP
from headwater.node.plane.timers import Timer
from headwater.peering.retained.reconciling import MOST, Branches
from headwater.wire.reasons import SERVER_UNAVAILABLE

if TYPE_CHECKING:
    from headwater.node.links.link import Link
    from headwater.node.links.links import Links

log = logging.getLogger("headwater.cluster")

PAUSE: Final = 0.05
"""Seconds between two looks."""
MUCH: Final = MOST_WAITING // 4
"""Bytes in one round, after which the peer may have kept something back."""


class _Round:
    """One comparison over one link; it is over when the peer has dealt with `until` frames."""

    def __init__(self, link: Link, comparison: Comparison) -> None:
        self.link = link
        self.comparison = comparison
        self.until = 0
        self.has_asked = False
        """What differs was asked for."""


class CatchingUp:
    """`is_alone` says whether there is nobody to look for; `changed` is told when the node takes clients."""

    def __init__(
        self, links: Links, entry: Entry, is_alone: Callable[[], bool], changed: Callable[[], None], wait: float
    ) -> None:
        self._links = links
        self._server = links.server
        self._entry = entry
        self._is_alone = is_alone
        self._changed = changed
        self._wait = wait
        self._began = 0.0
        self._rounds: dict[str, _Round] = {}
        self._has_compared = False
        self._timer: Timer | None = None

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    @property
    def why(self) -> str:
        """ "": this node takes clients."""
        if not self.is_on:
            return ""
        if not self._links.up:
            return f"{CATCHING_UP}: no other node is linked yet"
        what = "sessions" if self._has_compared else "retained messages"
        return f"{CATCHING_UP}: {what} of {', '.join(sorted(self._links.up))}"

    def start(self) -> None:
        """In a turn, when what is on disk has been recovered and links may come up."""
        self._began = self._server.hot.now
        if self._is_alone():
            self._is_first()
        if self._wait <= 0 or self._is_alone():
            return
        self._entry.close(min(self._wait, self._links.settings.session_wait), _refusal)
        self._look_again()
        self._changed()

    def stop(self) -> None:
        """It is not waited for any more; who lets clients in is somebody else's."""
        if self._timer is not None:
            self._server.timers.cancel(self._timer)
            self._timer = None
        self._links.retaining.comparisons.clear()
        self._rounds.clear()

    def _look_again(self) -> None:
        self._timer = self._server.timers.at(self._server.hot.now + PAUSE, self._look)

    def _look(self) -> None:
        links = self._links
        is_over = self._server.hot.now >= self._began + self._wait
        if self._is_alone():
            self._is_ready("")
            return
        if not links.up and is_over:
            self._is_ready(f"no other node was reached for {self._wait:g} s")
            return
        for link in list(links.up.values()):
            if not self._has_compared:
                self._compare(link)
        is_informed = self._is_informed
        if self._has_compared and (is_informed or is_over):
            what = "sessions and topics" if links.owning else "sessions"
            self._is_ready("" if is_informed else f"not all nodes told of their {what} in {self._wait:g} s")
        else:
            self._look_again()

    @property
    def _is_informed(self) -> bool:
        links = self._links
        if links.owning is not None and not links.owning.is_informed:
            return False
        return links.sessions is None or links.sessions.is_informed

    def _is_ready(self, although: str) -> None:
        self.stop()
        if not self._links.spooling.ends:
            self._is_first()
        if although:
            log.warning("takes clients although %s", although)
        else:
            log.info("has caught up, and takes clients")
        self._entry.open()
        self._changed()

    def _is_first(self) -> None:
        """Of its cluster: nobody has sessions that it does not know."""
        if self._links.sessions is not None:
            self._links.sessions.holding.is_first()

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def _compare(self, link: Link) -> None:
        found = self._rounds.get(link.node)
        if found is None or found.link is not link:
            self._begin(link)
        elif link.liveness.processed >= found.until:
            said = found.comparison
            if said.leaves and not found.has_asked:
                found.has_asked = True
                self._wait_for(found)
            elif said.leaves >= MOST or said.size > MUCH or said.is_skipped:
                self._begin(link)
            else:
                self._has_compared = True

    def _begin(self, link: Link) -> None:
        assert link.end is not None
        retaining = self._links.retaining
        found = self._rounds[link.node] = _Round(link, Comparison())
        retaining.comparisons[link.end] = found.comparison
        link.end.send(Branches(retaining.replica.branches()))
        self._wait_for(found)

    def _wait_for(self, found: _Round) -> None:
        """Until the peer has dealt with all that it was sent so far."""
        link, end = found.link, found.link.end
        assert end is not None
        found.until = end.frames_sent
        if link.dialed:  # the other side answers at once
            end.send(link.liveness.beat(link.reader.frames, self._server.hot.now))


def _refusal(client_id: str) -> Refusal:
    return Refusal(SERVER_UNAVAILABLE, "this node has just started and is catching up with the others; try again later")
