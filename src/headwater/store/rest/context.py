"""What all routes share: the store, the gate, threads, limits; and who calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request

from headwater.disk.errors import StorageError
from headwater.store.rest.answers import Answers
from headwater.store.rest.errors import gone
from headwater.store.rest.gate import Approach, Caller, Gate, Refused
from headwater.store.rest.others import Others, Peers
from headwater.store.rest.streaming import Threads
from headwater.store.rest.tails import Tails
from headwater.store.store import PositionGone, Store

PAGES: Final = 4
"""Pages that are made at a time."""
Found = TypeVar("Found")


class Limits(NamedTuple):
    """`page`: messages of a page of JSON; `tails`: live tails at a time; `streams`: of these and others, in all and for
    an address; `memory`: bytes that are made and not read."""

    page: int = 10_000
    tails: int = 32
    streams: int = 48
    streams_per_address: int = 32
    memory: int = 128 << 20


class Context:
    def __init__(self, store: Store, gate: Gate, limits: Limits, peers: Peers) -> None:
        self.store = store
        self.gate = gate
        self.limits = limits
        self.threads = Threads()
        self.tails = Tails(store, limits.tails)
        self.answers = Answers(limits.streams, limits.streams_per_address, limits.memory)
        self.pages = asyncio.Semaphore(PAGES)
        self.erasing = asyncio.Lock()
        self.others = Others(gate, peers)

    @property
    def own(self) -> str:
        """The id of the store that this node has; "": it has none, or it went to another node, as it said last."""
        return "" if self.others.has_gone(self.store.id) else self.store.id

    async def ask(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Something of the store, in a thread; what it raises becomes an answer."""
        with answering(self.store):
            return await self.threads.run(work, *arguments)


@contextlib.contextmanager
def answering(store: Store) -> Iterator[None]:
    """What the store raises, as answers."""
    try:
        yield
    except PositionGone as error:
        raise gone(error, store) from None
    except StorageError as error:
        raise Refused(503, "unavailable", f"the store cannot be used: {error}") from error


def context_in(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


async def context_of(request: Request) -> Context:
    """As a dependency: one that is not a coroutine would be asked in another thread."""
    return context_in(request)


async def caller_of(request: Request) -> Caller:
    headers = request.headers
    host, port = request.client or ("", 0)
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise Refused(403, "forbidden", "cross-origin requests are refused")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    approach = Approach(headers.get("authorization"), address, headers.get("host", ""))
    return await context_in(request).gate.authenticate(approach)


async def operator_of(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
    """Somebody who may know of everything."""
    if not caller.sees_all:
        raise Refused(403, "forbidden", "this needs the right to read every topic, or the token of `rest.token`")
    return caller


TheContext = Annotated[Context, Depends(context_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
TheOperator = Annotated[Caller, Depends(operator_of)]
