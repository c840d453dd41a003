"""What a broker has on disk, sessions and messages: opened and recovered, looked after, copied, closed.

Whatever needs RocksDB is imported when there is something to keep: a broker without `data_dir` starts without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.node.protocol.server import Server

if TYPE_CHECKING:
    from headwater.disk.errors import StorageError
    from headwater.disk.room import Room
    from headwater.node.delivery.handing_over import HandingOver
    from headwater.node.delivery.history import HistoryProcess
    from headwater.node.delivery.trimming import Trimming
    from headwater.node.persistence.backend import Backend
    from headwater.node.persistence.backup import Snapshot
    from headwater.node.persistence.persistence import Persistence
    from headwater.store.store import Store


class Storage:
    """`backend` and `store` are used instead of those in `data_dir`, and closed with the rest."""

    def __init__(self, server: Server, backend: Backend | None, store: Store | None) -> None:
        self._server = server
        self._config = server.config
        self._backend = backend
        self.store = store
        self.persistence: Persistence | None = None
        self._trimming: Trimming | None = None
        self._handing_over: HandingOver | None = None
        self.history: HistoryProcess | None = None

    def open(self, failed: Callable[[StorageError], None]) -> None:
        """Take up what is there, if anything is to be kept, and keep it up to date from now on. Raises StorageError;
        `failed` is called with one if the disk fails later."""
        config = self._config
        if self._backend is None and (not config.data_dir or config.durability == "none"):
            return
        from headwater.node.persistence.persistence import Persistence
        from headwater.node.persistence.schema import open_folder

        backend = self._backend or open_folder(Path(config.data_dir))
        try:
            store = self._open_store()
            try:
                self.persistence = Persistence(self._server, backend, failed, store, self._room())
            except BaseException:
                if store is not None:
                    store.close()
                raise
        except BaseException:
            backend.close()
            raise
        self.store = store
        if store is not None:
            self._trim(store, self.persistence)
            self._move(store)

    def _room(self) -> Room | None:
        if not self._config.data_dir:
            return None
        from headwater.disk.room import Room

        return Room(Path(self._config.data_dir), self._config.disk_reserve)

    def _open_store(self) -> Store | None:
        config = self._config
        if self.store is not None or not config.store.enabled:
            return self.store
        from headwater.disk.room import check_size
        from headwater.node.delivery.opening import open_store

        if config.disk_reserve is None:
            check_size(Path(config.data_dir))
        return open_store(Path(config.data_dir), config.store)

    def _trim(self, store: Store, persistence: Persistence) -> None:
        from headwater.node.delivery.trimming import EVERY, LEAST, Trimming

        coordinator = self._server.coordinator
        assert coordinator is not None
        tell = partial(asyncio.get_running_loop().call_soon_threadsafe, coordinator.messages_were_removed)
        committer = persistence.committer
        history = self._config.store.history
        every = max(LEAST, min(EVERY, history.after / 2)) if history.url else EVERY
        self._trimming = Trimming(store, tell, every, is_low=lambda: committer.is_paused)
        persistence.on_low = self._trimming.hurry
        self._trimming.start()

    def _move(self, store: Store) -> None:
        """To object storage, if that is configured."""
        settings = self._config.store.history
        if not settings.url:
            return
        from headwater.node.delivery.history import HistoryProcess
        from headwater.store.disk_store import DiskStore

        if isinstance(store, DiskStore):
            self.history = HistoryProcess(store, settings)
            self.history.start()

    async def settle(self) -> None:
        """Who waits for an acknowledgement gets it, and nothing old is removed any more."""
        if self.persistence is not None:
            self.persistence.settle()
        if self._trimming is not None:
            await asyncio.to_thread(self._trimming.stop)
            self._trimming = None
        if self.history is not None:
            await asyncio.to_thread(self.history.stop)
            self.history = None

    def close(self) -> None:
        if self.persistence is not None:
            self.persistence.close()
            self.persistence = None

    async def committed(self) -> None:
        """As `Broker.committed`."""
        if self.persistence is not None:
            await self.persistence.committed()

    def handing_over(self) -> HandingOver | None:
        """As `Broker.handing_over`."""
        if self._handing_over is None and self.store is not None and self.persistence is not None:
            from headwater.node.delivery.handing_over import HandingOver
            from headwater.store.disk_store import DiskStore

            if isinstance(self.store, DiskStore) and self._config.data_dir:
                committer, data = self.persistence.committer, Path(self._config.data_dir)
                self._handing_over = HandingOver(self._server, self.store, committer, data)
        return self._handing_over

    async def snapshot(self) -> Snapshot:
        """As `Broker.snapshot`."""
        from headwater.node.persistence.backup import take_snapshot

        data = Path(self._config.data_dir)
        if self.persistence is None:
            return await asyncio.to_thread(take_snapshot, data, None)
        backend, between = self.persistence.backend, self.persistence.committer.between
        return await asyncio.to_thread(take_snapshot, data, backend, store=self.store, between=between)
