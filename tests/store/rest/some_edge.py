"""An edge of some nodes in this process: what each would know of the others from its cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from headwater.store.directory import Holding, Move, Place
from headwater.store.memory import MemoryStore
from headwater.store.reader import StoreReader
from headwater.store.rest.others import Peers
from headwater.store.store import Store
from tests.store.messages import MICROSECONDS
from tests.store.rest.served import EVERYTHING, Served, serving

TIMEOUT = 3.0
ROW = ("id", "node", "url", "filters", "from", "to", "epoch")


class SomeEdge(Peers):
    """Shows the token of `EVERYTHING`, unless a test says otherwise."""

    def __init__(self) -> None:
        self.holdings: list[Holding] = []
        self.moves: list[Move] = []
        self.token = EVERYTHING
        self.more: dict[str, Any] = {}
        """What else nodes say."""

    def status(self, node: str) -> dict[str, Any] | None:
        """As the node says it."""
        if not self.holdings and not self.more:
            return None
        rows = [dict(zip(ROW, (*each[:3], list(each.filters), *each[4:]), strict=True)) for each in self.holdings]
        moves = [{**each._asdict(), "from": list(each.sources), "to": "x"} for each in self.moves]
        return {"node": node, "stores": rows, "moves": moves, **self.more}

    def client(self, place: Place) -> StoreReader:
        return StoreReader(place.url, token=self.token, retries=0, timeout=TIMEOUT)

    def holds(self, served: Served, *filters: str, first: int = 1, last: int | None = None, epoch: int = 0) -> None:
        id = served.store.id
        self.holdings.append(Holding(id, f"node-{id}", served.url, filters, first, last, epoch))


def _in_memory(id: str) -> Store:
    return MemoryStore(id, MICROSECONDS)


@contextlib.contextmanager
def an_edge(*ids: str, make: Callable[[str], Store] = _in_memory) -> Iterator[tuple[SomeEdge, list[Served]]]:
    """Nodes with empty stores of these ids, which know the same."""
    edge = SomeEdge()
    with contextlib.ExitStack() as stack:
        nodes = []
        for id in ids:
            served = stack.enter_context(serving(make(id), peers=edge))
            served.gate.status = partial(edge.status, f"node-{id}")
            served.context.others.known_for = 0.0
            nodes.append(served)
        yield edge, nodes
