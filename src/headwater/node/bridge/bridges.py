"""All bridges of a broker: started, kept running, changed on reload, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from headwater.node.bridge.bridge import Bridge
from headwater.node.bridge.orphans import remove_orphans
from headwater.node.bridge.preparing import Prepared
from headwater.node.bridge.view import BridgeView, Figures
from headwater.node.protocol.server import Server

log: Final = logging.getLogger("headwater.bridge")

START_PATIENCE: Final = 5.0


class Bridges:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._running: dict[str, Bridge] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._figures: dict[str, Figures] = {}
        self._turn = asyncio.Lock()
        self._is_over = False

    async def use(self, wanted: Iterable[Prepared]) -> None:
        """Have these and no others. Bridges that do not change go on undisturbed."""
        async with self._turn:
            if self._is_over:
                return
            named = {each.settings.name: each for each in wanted}
            for name, bridge in list(self._running.items()):
                if name not in named:
                    await self._stop(name, forget=True)
                elif named[name] != bridge.prepared:
                    await self._stop(name, forget=_goes_elsewhere(bridge.prepared, named[name]))
                    await self._start(named[name], bridge.prepared.remote_filters)
            remove_orphans(self._server, named)
            for name, prepared in named.items():
                if name not in self._running:
                    await self._start(prepared, [])

    async def stop(self) -> None:
        """All of them; their sessions are kept."""
        async with self._turn:
            self._is_over = True
            await asyncio.gather(*(self._stop(name, forget=False) for name in list(self._running)))

    def views(self) -> list[BridgeView]:
        return [self._view(bridge) for _, bridge in sorted(self._running.items())]

    async def _start(self, prepared: Prepared, former: list[str]) -> None:
        """Returns when no message that is published from then on can pass the bridge by."""
        name = prepared.settings.name
        bridge = self._make(prepared, former)
        self._tasks[name] = asyncio.get_running_loop().create_task(self._keep(bridge))
        with contextlib.suppress(TimeoutError):  # it fails, and is tried again
            await asyncio.wait_for(bridge.keeps.wait(), START_PATIENCE)

    def _make(self, prepared: Prepared, former: list[str]) -> Bridge:
        name = prepared.settings.name
        stale = [each for each in former if each not in prepared.remote_filters]
        bridge = Bridge(self._server, prepared, self._figures.setdefault(name, Figures()), stale)
        self._running[name] = bridge
        return bridge

    async def _keep(self, bridge: Bridge) -> None:
        """A bridge ends only by being cancelled, or by a mistake of ours, which must not be its last."""
        while True:
            try:
                await bridge.run()
            except Exception:
                self._server.stats.failures += 1
                settings = bridge.prepared.settings
                log.exception("bridge %r failed; it begins anew in %g s", settings.name, settings.reconnect_longest)
                await asyncio.sleep(settings.reconnect_longest)
            bridge = self._make(bridge.prepared, [])

    async def _stop(self, name: str, *, forget: bool) -> None:
        bridge = self._running.pop(name)
        bridge.is_to_be_forgotten = forget
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _view(self, bridge: Bridge) -> BridgeView:
        settings = bridge.prepared.settings
        figures = self._figures[settings.name]
        session = self._server.sessions.get(bridge.local_id)
        return BridgeView(
            settings.name,
            settings.addresses,
            bridge.prepared.client_id,
            "" if bridge.is_up else bridge.error,
            bridge.is_up,
            0 if session is None else session.outbound.waiting() + len(session.outbound.flights),
            figures.sent,
            figures.received,
        )


def _goes_elsewhere(before: Prepared, after: Prepared) -> bool:
    """Whether the session at the remote will not be used any more."""
    return before.client_id != after.client_id or before.settings.addresses != after.settings.addresses
