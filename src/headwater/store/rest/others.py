"""The other stores of a node's edge: where they are, and how they are asked.

Theory. Any node answers for all: what its own store has not, it asks other nodes for, by the same REST, page by page.
It asks in its own name and judges by its own rules what its caller may see, as it does with messages that come over
links; what a caller shows of itself goes to nobody else. Connections are bounded and have short times, and a store
that does not answer is an error that names it: what is missing is never left out without a word.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from headwater.store.directory import Directory, Place, directory_of
from headwater.store.rest.gate import Gate, Refused

CONNECTIONS: Final = 8
"""To other nodes, at a time; whoever wants more waits."""
TIMEOUT: Final = 10.0
"""Seconds without a word after which a node does not answer."""
KNOWN_FOR: Final = 0.2
"""Seconds for which what the node has said of its edge is used again."""
MERGES: Final = 4
"""Answers from several stores that are made at a time, besides streams."""
Found = TypeVar("Found")


class Peers:
    """How other nodes are asked. Used by several threads."""

    def client(self, place: Place) -> Any:
        """A `StoreReader` for another store's node, which makes no second try and waits at most `TIMEOUT`. Raises
        Refused if this node may not show there who it is."""
        raise Refused(503, "unavailable", f"this node does not ask {place.node or place.url}")


class Missing(NamedTuple):
    """A store that did not answer."""

    store: str
    node: str
    url: str
    why: str


class Incomplete(Refused):
    """Not all stores answered."""

    def __init__(self, missing: Iterable[Missing]) -> None:
        found = list(missing)
        said = "; ".join(f"the store {each.store} at {each.url or each.node}: {each.why}" for each in found)
        super().__init__(
            *(503, "incomplete", f"a part is missing: {said}. `partial=true` gives the rest"),
            missing=[each._asdict() for each in found],
        )
        self.missing = found


class Others:
    """The other nodes, asked in threads of their own: who waits for a node keeps nobody else here waiting."""

    def __init__(self, gate: Gate, peers: Peers) -> None:
        self._gate = gate
        self._peers = peers
        self.known_for = KNOWN_FOR
        self._known = Directory()
        self._known_until = 0.0
        self.merges = asyncio.Semaphore(MERGES)
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="rest-edge")

    async def directory(self) -> Directory:
        """What the node knows of its edge now; empty: it is of none. Raises Refused."""
        now = time.monotonic()
        if now >= self._known_until:
            found = await self._gate.edge()
            self._known = Directory() if found is None else directory_of(found)
            self._known_until = now + self.known_for
        return self._known

    def has_gone(self, store: str) -> bool:
        """Whether this node's own store went to another one, with id and positions: what is here ends somewhere."""
        place = self._known.places.get(store)
        return place is not None and bool(self._known.node) and place.node not in ("", self._known.node)

    async def ask(self, place: Place, question: Callable[[Any], Found]) -> Found:
        """`question` gets a reader of the store. Raises Incomplete, and Refused (410) if retention was faster."""
        if not place.url:
            raise Incomplete([missing(place, "its node does not say where its REST is")])
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked, place, question)

    def _asked(self, place: Place, question: Callable[[Any], Found]) -> Found:
        """In a thread."""
        from headwater.store.reader import Gone, StoreError  # it needs pyarrow, whose import takes a while

        try:
            return question(self._peers.client(place))
        except Gone as gone:
            more = {"first": gone.first, "next": gone.next, "lost": gone.lost}
            raise Refused(410, "gone", gone.detail, store=place.id, **more) from None
        except StoreError as error:
            raise Incomplete([missing(place, str(error))]) from None
        except Refused as refused:
            raise Incomplete([missing(place, refused.detail)]) from None

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def missing(place: Place, why: str) -> Missing:
    return Missing(place.id, place.node, place.url, why)
