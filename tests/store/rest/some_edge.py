"""An edge of some nodes in this process: what each would know of the others from its cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from headwater.store.directory import Holding, Move, Place
from headwater.store.memory import MemoryStore
from headwater.store.reader import StoreReader
from headwater.store.rest.others import Edge
from headwater.store.store import Store
from tests.store.messages import MICROSECONDS
from tests.store.rest.served import EVERYTHING, Served, serving

TIMEOUT = 3.0
ROW = ("id", "node", "url", "filters", "from", "to", "epoch")


class SomeEdge(Edge):
    """Shows the token of `EVERYTHING`, unless a test says otherwise."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []
        self.moves: list[Move] = []
        self.token = EVERYTHING

    async def status(self) -> dict[str, Any] | None:
        if not self.holdings:
            return None
        rows = [dict(zip(ROW, (*each[:3], list(each.filters), *each[4:]), strict=True)) for each in self.holdings]
        moves = [{**each._asdict(), "from": list(each.sources), "to": "x"} for each in self.moves]
        return {"node": "", "stores": rows, "moves": moves}

    def client(self, place: Place) -> StoreReader:
        return StoreReader(place.url, token=self.token, retries=0, timeout=TIMEOUT)

    def holds(self, served: Served, *filters: str, first: int = 1, last: int | None = None, epoch: int = 0) -> None:
        id = served.store.id
        self.holdings.append(Holding(id, f"node-{id}", served.url, filters, first, last, epoch))


class OfNode(Edge):
    """The same, as a node says it."""

    def __init__(self, edge: SomeEdge, node: str) -> None:
        self._edge = edge
        self._node = node

    async def status(self) -> dict[str, Any] | None:
        found = await self._edge.status()
        return None if found is None else {**found, "node": self._node}

    def client(self, place: Place) -> StoreReader:
        return self._edge.client(place)


def _in_memory(id: str) -> Store:
    return MemoryStore(id, MICROSECONDS)


@contextlib.contextmanager
def an_edge(*ids: str, make: Callable[[str], Store] = _in_memory) -> Iterator[tuple[SomeEdge, list[Served]]]:
    """Nodes with empty stores of these ids, which know the same."""
    edge = SomeEdge()
    with contextlib.ExitStack() as stack:
        yield edge, [stack.enter_context(serving(make(id), edge=OfNode(edge, f"node-{id}"))) for id in ids]
