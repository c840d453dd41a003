"""What a node owned goes to the node that has its delivery store now (node/delivery/handing_over.py).

From the fence on this node is no delivery node any more, but owns its topics until somebody else does: nothing is
stored meanwhile, so who is connected is not read from, and whoever comes waits. The heir is known by the store that it
declares. It is asked to own each filter, one after the other, and takes over the rows of the store with the first one
(edge/owners.py `inherit`). When nothing that is published here would be stored here, all go on.

Killed in between, the node finds the fence on its disk at the next start (store/hand_over.py), and goes on with that:
it takes clients when it has yielded. Other nodes that send messages here to be stored
are an obstacle: what is on its way from them when the store goes would have no store. So then nothing is handed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headwater.edge.owners import Owners
from headwater.node.hooks import Refusal
from headwater.node.links.entry import Entry
from headwater.store.hand_over import Fence
from headwater.wire.reasons import SERVER_UNAVAILABLE

log = logging.getLogger("headwater.edge")

WAIT: Final = 10.0
"""Seconds for which a client that comes meanwhile waits at most."""


class Yielding:
    """`is_linked` says whether a node can be asked, `order` asks it to own a filter, and tells what has come of it."""

    def __init__(
        self,
        owners: Owners,
        entry: Entry,
        is_linked: Callable[[str], bool],
        order: Callable[[str, str, Callable[[bool, str], None]], None],
    ) -> None:
        self.fence: Fence | None = None
        """Of the store that has gone."""
        self.is_on = False
        self._owners = owners
        self._entry = entry
        self._is_linked = is_linked
        self._order = order
        self._done: Callable[[], None] = _nothing
        self._is_asking = False
        self._said = ""

    def check(self) -> None:
        """Raises ValueError."""
        senders = self._owners.senders()
        if senders:
            raise ValueError(
                f"node {senders[0]} sends messages here to be stored, and what is on its way would have no store: give "
                "the topics of this node to another one instead (headwater edge split FILTER --to NODE)"
            )

    def begin(self, fence: Fence, done: Callable[[], None]) -> None:
        """The store has gone; `done` is told when all topics have."""
        self._done = done
        self._owners.gives_up_delivering()
        self.resume(fence)
        self.let_wait()
        if not self.is_on:
            done()

    def resume(self, fence: Fence) -> None:
        """It has gone, maybe before this process began."""
        self.fence = fence
        self.is_on = self._owners.has_topics

    def let_wait(self) -> None:
        """Who comes waits as long as there is something to yield; at the start too, if the store had gone before."""
        if self.is_on:
            self._entry.close(WAIT, _refusal)

    def go_on(self) -> bool:
        """From time to time; whether this has come to its end now."""
        fence = self.fence
        if fence is None or not self.is_on:
            return False
        heir = self._heir(fence.store)
        if heir and not self._owners.has_topics:
            self._end(heir)
            return True
        if heir and not self._is_asking:
            filter = self._owners.next_of_own()
            if filter:
                self._is_asking = True
                self._order(heir, filter, self._answered)
        return False

    def _heir(self, store: str) -> str:
        for node, declared in self._owners.declared.items():
            if declared.store == store and self._is_linked(node):
                return node
        return ""

    def _answered(self, is_done: bool, text: str) -> None:
        self._is_asking = False
        if text != self._said:
            log.info("with the store: %s", text)
        self._said = text

    def _end(self, heir: str) -> None:
        log.info("node %s has the store and all topics: messages are taken again", heir)
        self.is_on = False
        self._entry.open()
        self._done()


def _refusal(client_id: str) -> Refusal:
    return Refusal(SERVER_UNAVAILABLE, "this node's store is going to another node; try again later")


def _nothing() -> None:
    pass
