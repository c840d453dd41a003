"""The admin API of all workers: operations as one broker's desk has them (node/admin/desk.py), done at all of them.

Figures are added up. Lists are the first worker's, then the next one's: an `offset` counts from the beginning of a
worker's part, and says which one that is in its higher digits. What is asked of one client is asked of all, since any
may have it; what all have is asked of the first that is up. A worker that is being started again is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from headwater.disk.errors import StorageError
from headwater.metric import added
from headwater.node.admin.hand_over_desk import HandOverDesk
from headwater.node.admin.reach import BrokerStopped
from headwater.node.http.link import Link, LinkLost
from headwater.node.operations.seen import LagSeen, Seen
from headwater.node.operations.worker_figures import WorkerSeen
from headwater.node.protocol.group_view import merged_groups
from headwater.node.protocol.statistics import Statistics
from headwater.node.workers.process import WorkerProcess
from headwater.node.workers.totals import GROUPS, Totals

PART: Final = 1 << 25
"""Places of one worker's part of a list, by `offset`: 64 parts are below 2^31."""
SESSIONS: Final = 10_000_000
"""The same for `after` of subscriptions, which has nine digits."""

_SEEN: Final = TypeAdapter(Seen)

Fields = dict[str, Any]


class NodeDesk(HandOverDesk):
    """Asked on the supervisor's loop. Operations have the arguments and answers of `Desk`."""

    def __init__(self, workers: Sequence[WorkerProcess], totals: Totals) -> None:
        self._workers = workers
        self._totals = totals
        self._dispatchers: dict[str, str] = {}
        """By patterns, in the order in which they were ordered."""
        self._traces: dict[int, _Trace] = {}
        self._trace_number = 0

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def leave(self) -> None:
        """Who has asked until now has gone."""
        for trace in self._traces.values():
            trace.cancel()
        self._traces.clear()

    def why_not_ready(self) -> str:
        return "" if self.is_ready() else "no worker takes clients yet"

    def is_ready(self) -> bool:
        return any(each.link is not None for each in self._workers)

    async def teach(self, worker: WorkerProcess) -> None:
        """One that was started again: the orders that its predecessor had."""
        link = worker.link
        try:
            for pattern, dispatcher in self._dispatchers.items():
                if link is not None:
                    await link.ask("use_dispatcher", pattern=pattern, dispatcher=dispatcher)
            for ban in (await self.bans(0, PART))["items"] if link is not None else ():
                assert link is not None
                order = {"kind": ban["kind"], "value": ban["value"], "reason": ban["reason"]}
                await link.ask("ban", seconds=ban["remaining"], **order)
        except (LinkLost, BrokerStopped):
            return

    # ---- asking ------------------------------------------------------------------------------------------------

    async def _all(self, operation: str, /, **arguments: Any) -> list[Any]:
        """The answers of those that are up. Raises what one of them raises."""
        asked = [_asked(each.link, operation, arguments) for each in self._workers if each.link is not None]
        found = [answer for answer in await asyncio.gather(*asked) if answer is not _GONE]
        if not found:
            raise BrokerStopped
        return found

    async def _first(self, operation: str, /, **arguments: Any) -> Any:
        """The answer of the first that is up."""
        for worker in self._workers:
            if worker.link is not None:
                answer = await _asked(worker.link, operation, arguments)
                if answer is not _GONE:
                    return answer
        raise BrokerStopped

    async def _page(self, operation: str, number: int, /, **arguments: Any) -> tuple[int, Fields]:
        """Of the first worker that is up, from this one on, and which that is."""
        for worker in self._workers[number:]:
            if worker.link is not None:
                answer = await _asked(worker.link, operation, arguments)
                if answer is not _GONE:
                    return worker.number, from_json(answer)
            arguments |= {"offset": 0} if "offset" in arguments else {"after": "0:0"}
        return len(self._workers), {"items": [], "next": None}

    # ---- figures -----------------------------------------------------------------------------------------------

    async def statistics(self) -> Statistics:
        await self._totals.look()
        return self._totals.statistics()

    async def workers(self) -> list[WorkerSeen]:
        await self._totals.look()
        return self._totals.workers()

    async def seen(self) -> Seen:
        await self._totals.look()
        parts = [_SEEN.validate_python(each) for each in await self._all("seen")]
        stores = [each.store for each in parts if each.store is not None]
        lags = [each.lag for each in parts if each.lag is not None]
        first = parts[0]
        return Seen(
            self._totals.of([each.statistics for each in parts]),
            [],
            [bridge for each in parts for bridge in each.bridges],
            None,
            added(stores) if stores else None,
            _lag_of(lags) if lags else None,
            first.process,
            sum(each.tasks for each in parts),
            sum(each.timers for each in parts),
            sum(each.memory_blocks for each in parts),
            forwards=[forward for each in parts for forward in each.forwards],
            workers=self._totals.workers(),
        )

    async def groups(self) -> bytes:
        parts = [GROUPS.validate_json(each) for each in await self._all("groups")]
        # Members elsewhere are those of other workers, which are among the members here.
        return to_json(merged_groups([replace(group, elsewhere=[]) for part in parts for group in part]))

    async def bridges(self) -> list[Any]:
        return [each for part in await self._all("bridges") for each in part]

    async def forwards(self) -> list[Any]:
        return [each for part in await self._all("forwards") for each in part]

    async def advice(self) -> list[Any]:
        return []

    async def use_dispatcher(self, pattern: str, dispatcher: str) -> int:
        changed = await self._all("use_dispatcher", pattern=pattern, dispatcher=dispatcher)
        self._dispatchers.pop(pattern, None)
        self._dispatchers[pattern] = dispatcher
        return sum(changed)

    # ---- clients and sessions ----------------------------------------------------------------------------------

    async def clients(self, offset: int, limit: int) -> bytes:
        return await self._listed("clients", offset, limit)

    async def sessions(self, offset: int, limit: int) -> bytes:
        return await self._listed("sessions", offset, limit)

    async def _listed(self, operation: str, offset: int, limit: int) -> bytes:
        number, within = divmod(offset, PART)
        number, page = await self._page(operation, number, offset=within, limit=limit)
        if page["next"] is not None:
            page["next"] += number * PART
        elif number + 1 < len(self._workers):
            page["next"] = (number + 1) * PART
        return to_json(page)

    async def subscriptions(self, client_id: str | None, after: str, limit: int) -> bytes:
        place, _, within = after.partition(":")
        number, start = divmod(int(place), SESSIONS)
        number, page = await self._page(
            "subscriptions", number, client_id=client_id, after=f"{start}:{within}", limit=limit
        )
        if page["next"] is not None:
            place, _, within = page["next"].partition(":")
            page["next"] = f"{int(place) + number * SESSIONS}:{within}"
        elif number + 1 < len(self._workers):
            page["next"] = f"{(number + 1) * SESSIONS}:0"
        return to_json(page)

    async def client(self, client_id: str) -> Fields | None:
        return next(filter(None, await self._all("client", client_id=client_id)), None)

    async def session(self, client_id: str) -> Fields | None:
        return next(filter(None, await self._all("session", client_id=client_id)), None)

    async def kick(self, **order: Any) -> bool:
        return any(await self._all("kick", **order))

    async def end_session(self, client_id: str) -> bool:
        return any(await self._all("end_session", client_id=client_id))

    # ---- bans --------------------------------------------------------------------------------------------------

    async def bans(self, offset: int, limit: int) -> Fields:
        """Of all; one that several have is one."""
        found: dict[tuple[str, str], Fields] = {}
        for part in await self._all("bans", offset=0, limit=offset + limit + 1):
            for ban in part["items"]:
                found.setdefault((ban["kind"], ban["value"]), ban)
        items = list(found.values())
        return {
            "items": items[offset : offset + limit],
            "next": offset + limit if len(items) > offset + limit else None,
        }

    async def ban(self, **order: Any) -> Fields:
        found: Fields = (await self._all("ban", **order))[0]
        return found

    async def lift_ban(self, **order: Any) -> bool:
        return any(await self._all("lift_ban", **order))

    # ---- data and messages: what all have ----------------------------------------------------------------------

    async def snapshot(self) -> Fields:
        raise StorageError(
            "a broker with workers has a data folder for each: stop it, and back up each folder worker-… by itself "
            "(docs/workers.md)"
        )

    async def retained(self, **arguments: Any) -> Any:
        return await self._first("retained", **arguments)

    async def retained_message(self, topic: str) -> Any:
        return await self._first("retained_message", topic=topic)

    async def delete_retained(self, topic: str) -> Any:
        return await self._first("delete_retained", topic=topic)

    async def publish(self, **arguments: Any) -> Any:
        return await self._first("publish", **arguments)

    # ---- traces ------------------------------------------------------------------------------------------------

    async def trace_to_log(self, **order: Any) -> None:
        await self._all("trace_to_log", **order)

    async def start_trace(self, **order: Any) -> int:
        """At all: the client may connect to any."""
        links = [each.link for each in self._workers if each.link is not None]
        self._trace_number += 1
        numbers = await asyncio.gather(*(_asked(link, "start_trace", order) for link in links))
        self._traces[self._trace_number] = _Trace(
            {link: number for link, number in zip(links, numbers, strict=True) if number is not _GONE}
        )
        return self._trace_number

    async def taken(self, number: int) -> list[Any]:
        trace = self._traces.get(number)
        return [] if trace is None else await trace.taken()

    async def end_trace(self, number: int) -> None:
        trace = self._traces.pop(number, None)
        if trace is not None:
            await trace.end()

    # ---- a cluster: workers are none to the outside ------------------------------------------------------------

    def cluster(self) -> None:
        return None

    def cluster_routes(self, topic: str) -> None:
        return None

    def cluster_join(self, addresses: list[str]) -> bool:
        return False

    def cluster_leave(self) -> bool:
        return False

    def cluster_forget(self, node: str) -> bool:
        return False

    def cluster_method(self, method: str) -> bool:
        return False

    def cluster_drain(self, node: str, stay: bool) -> bool:
        return False

    def cluster_undrain(self, node: str) -> bool:
        return False

    def edge(self) -> None:
        return None

    def edge_split(self, filter: str, to: str, dry_run: bool) -> None:
        return None

    def edge_join(self, filter: str, dry_run: bool) -> None:
        return None


class _Trace:
    """The same one at several workers, by its number at each."""

    def __init__(self, numbers: dict[Link, int]) -> None:
        self._numbers = numbers
        self._tasks = {link: self._ask(link) for link in numbers}

    def _ask(self, link: Link) -> asyncio.Future[Any]:
        return asyncio.ensure_future(_asked(link, "taken", {"number": self._numbers[link]}))

    async def taken(self) -> list[Any]:
        """What has come since the last time, anywhere; nothing: it has ended. It ends everywhere when it ends at one:
        the client is there."""
        while self._tasks:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            found: list[Any] = []
            for link, task in list(self._tasks.items()):
                if task.done():
                    del self._tasks[link]
                    records = task.result()
                    if records and records is not _GONE:
                        found += records
                        self._tasks[link] = self._ask(link)
                        if "ended" in records[-1]:
                            self.cancel()
                            return found
            if found:
                return found
        return []

    async def end(self) -> None:
        self.cancel()
        await asyncio.gather(*(_asked(link, "end_trace", {"number": each}) for link, each in self._numbers.items()))

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()


_GONE: Final = object()
"""The answer of a worker that ended before it had one."""


async def _asked(link: Link, operation: str, arguments: Fields) -> Any:
    body = arguments.get("body", b"")
    try:
        return await link.ask(operation, body, **{name: each for name, each in arguments.items() if name != "body"})
    except LinkLost:
        return _GONE


def _lag_of(lags: list[LagSeen]) -> LagSeen:
    return LagSeen(
        [sum(counts) for counts in zip(*(each.counts for each in lags), strict=True)],
        sum(each.seconds for each in lags),
    )
