"""All forwards of a broker: started, kept running, changed on reload, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from headwater.client import V5, V311, Client, MqttError, Properties, Reconnect
from headwater.edge.forwarding.forwarder import Forwarder, Target
from headwater.edge.forwarding.lanes import Bounds
from headwater.edge.forwarding.progress import ProgressFile
from headwater.edge.forwarding.refusals import DeadLetters
from headwater.edge.forwarding.source import Source
from headwater.edge.forwarding.wishes import Counts, Wishes
from headwater.node.bridge.path import BRIDGE
from headwater.node.forwarding.converting import Converting
from headwater.node.forwarding.preparing import Prepared
from headwater.node.forwarding.settings import ForwardSettings
from headwater.node.forwarding.using import FOLDER, READER
from headwater.node.forwarding.view import ForwardView
from headwater.node.protocol.server import Server
from headwater.store.store import Store

log: Final = logging.getLogger("headwater.forward")


class Forwards:
    def __init__(self, server: Server, store: Store) -> None:
        self._server = server
        self._store = store
        self._running: dict[str, tuple[Prepared, Forwarder]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._counts: dict[str, Counts] = {}
        self._turn = asyncio.Lock()
        self._is_over = False

    async def use(self, wanted: Iterable[Prepared]) -> None:
        """Have these and no others. Forwards that do not change go on undisturbed. Returns when it is settled from
        where on the new ones forward: what is published from then on does not pass them by."""
        async with self._turn:
            if self._is_over:
                return
            named = {each.settings.name: each for each in wanted}
            for name, (prepared, _) in list(self._running.items()):
                if named.get(name) != prepared:
                    await self._stop(name)
            for name, prepared in named.items():
                if name not in self._running:
                    self._make(prepared)
                    self._tasks[name] = asyncio.get_running_loop().create_task(self._keep(name))
            for _, forwarder in self._running.values():
                await forwarder.has_begun.wait()

    async def stop(self) -> None:
        async with self._turn:
            self._is_over = True
            await asyncio.gather(*(self._stop(name) for name in list(self._running)))

    def views(self) -> list[ForwardView]:
        return [self._view(*found) for _, found in sorted(self._running.items(), key=lambda each: each[0])]

    def _make(self, prepared: Prepared) -> None:
        settings, store = prepared.settings, self._store
        name = settings.name
        client_id = client_id_of(settings, store)
        data = Path(self._server.config.data_dir) / FOLDER
        forwarder = Forwarder(
            name,
            Target(
                f"{client_id}@{','.join(settings.addresses)}",
                lambda changed: self._client(prepared, client_id, changed),
                Converting(settings, self._server.broker_id, store.id),
            ),
            wishes_of(settings),
            Source(store, READER + name),
            ProgressFile(data / f"{name}.json"),
            self._counts.setdefault(name, Counts()),
            DeadLetters(Path(settings.dead_letters) if settings.dead_letters else None, settings.dead_letters_bytes),
        )
        self._running[name] = prepared, forwarder

    def _client(self, prepared: Prepared, client_id: str, changed: Callable[[MqttError | None], None]) -> Client:
        settings = prepared.settings
        first, *others = settings.places
        is_v5 = settings.protocol == "5.0"
        ours = Properties(user_properties=[(BRIDGE, self._server.broker_id)])
        return Client(
            first.host,
            first.port,
            fallbacks=others,
            tls=prepared.context or False,
            transport="websocket" if settings.websocket_path else "tcp",
            websocket_path=settings.websocket_path,
            client_id=client_id,
            version=V5 if is_v5 else V311,
            username=settings.username,
            password=prepared.password,
            clean_start=False,
            session_expiry=settings.session_expiry,
            keep_alive=settings.keep_alive,
            properties=ours if is_v5 else None,
            max_inflight=settings.max_inflight,
            reconnect=Reconnect(settings.reconnect_first, settings.reconnect_longest, from_start=True, always=True),
            keeps_record=settings.qos == 2,
            on_change=changed,
        )

    async def _keep(self, name: str) -> None:
        """A forward ends only by being cancelled, or by a disk that is full, or a mistake of ours: it begins anew where
        it was last saved."""
        while True:
            prepared, forwarder = self._running[name]
            try:
                await forwarder.run()
            except Exception:
                self._server.stats.failures += 1
                again = prepared.settings.reconnect_longest
                log.exception("forward %r failed; it begins anew in %g s", name, again)
                await asyncio.sleep(again)
            self._make(prepared)

    async def _stop(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        del self._running[name]

    def _view(self, prepared: Prepared, forwarder: Forwarder) -> ForwardView:
        settings, counts, lanes = prepared.settings, forwarder.counts, forwarder.lanes
        return ForwardView(
            name=settings.name,
            addresses=settings.addresses,
            client_id=client_id_of(settings, self._store),
            store=self._store.id,
            position=0 if lanes is None else lanes.progress.position,
            error="" if forwarder.is_up else forwarder.error,
            up=forwarder.is_up,
            behind=forwarder.behind,
            seconds_behind=forwarder.seconds_behind,
            ranges=0 if lanes is None else lanes.ranges(),
            under_way=0 if lanes is None else lanes.under_way,
            parked=0 if lanes is None else lanes.parked,
            backlog_window=0 if lanes is None else int(lanes.pace.window),
            lost=counts.lost,
            bytes_forwarded=counts.bytes_forwarded,
            forwarded=counts.forwarded,
            sent_again=counts.sent_again,
            refused=counts.refused,
            given_up=counts.given_up,
            skipped=dict(counts.skipped),
        )


def client_id_of(settings: ForwardSettings, store: Store) -> str:
    return settings.client_id or f"{store.id}.{settings.name}"


def wishes_of(settings: ForwardSettings) -> Wishes:
    return Wishes(
        filters=tuple(settings.filters),
        priorities=tuple(settings.priorities),
        qos=settings.qos,
        rate=settings.rate,
        rate_bytes=settings.rate_bytes,
        delay=settings.backlog_delay,
        start=settings.start,
        retry_for=settings.retry_for,
        bounds=Bounds(
            most_under_way=settings.max_inflight,
            most_bytes_under_way=settings.max_inflight_bytes,
            most_bytes_queued=settings.max_queued_bytes,
            most_ranges=settings.max_ranges,
            live_within=settings.live_within,
            in_order=settings.order == "strict",
        ),
    )
