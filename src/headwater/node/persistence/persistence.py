"""The parts of persistence put together for one broker: opened, recovered from, closed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from headwater.disk.errors import StorageError
from headwater.disk.room import Room
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.committing import ThreadCommitter
from headwater.node.persistence.journal import NEVER_WITHHELD, Journal
from headwater.node.persistence.recovery import end_moves, recover
from headwater.node.protocol.server import Server
from headwater.store.store import Store

log = logging.getLogger("headwater.persistence")

LOOK_AGAIN: Final = 1.0
"""Seconds between two looks for room; while publishers are paused nobody else looks."""


class Persistence:
    """Keeps what has to outlive the process in `backend`, from now on; before, takes up what is there.

    StorageError: what is there cannot be used. `failed` is called if the disk fails later. With a `store`, messages go
    there first; it is closed with the rest. `room` is that of the disk; while it has too little, who publishes waits.
    """

    def __init__(
        self,
        server: Server,
        backend: Backend,
        failed: Callable[[StorageError], None],
        store: Store | None = None,
        room: Room | None = None,
    ) -> None:
        config = server.config
        self.server = server
        self.backend = backend
        self.room = server.room = room
        self.on_low: Callable[[], None] | None = None
        """Called when there is too little room: something may be able to make some."""
        self.committer = committer = ThreadCommitter(server, backend, failed, store, room)
        committer.room_changed = self._room_changed
        self.journal = committer.journal = Journal(server.hot, server.router.retained, server.budget, committer)
        self.journal.memory = config.queue_memory
        if config.durability == "async":
            self.journal.interval = config.commit_interval
            server.hot.durable = NEVER_WITHHELD
        server.keep_in(self.journal)
        if store is not None:
            settings = config.store
            server.store_by(Coordinator(store, settings.filters, settings.max_pending, settings.max_topics))
        started = time.monotonic()
        try:
            recovered = recover(server, backend, self.journal)
            if not config.cluster.enabled:
                end_moves(server)
        except BaseException:
            committer.close()
            raise
        log.info("recovered %s in %.1f s", recovered, time.monotonic() - started)
        if recovered.left_out:
            log.warning(
                "%d of %d retained messages are left on disk, as there is no room for them: max_retained = %d, "
                "max_retained_bytes = %d; they are back when a broker with more room starts",
                recovered.left_out,
                recovered.left_out + recovered.retained,
                config.max_retained,
                config.max_retained_bytes,
            )
        server.plane.listen(committer.descriptor, committer.ready, urgent=True)
        if room is not None:
            self._look_again()

    def _room_changed(self) -> None:
        """Who publishes has to wait from now on, or not any more."""
        hot, committer = self.server.hot, self.committer
        hot.no_room = committer.is_paused
        if not hot.no_room:
            log.warning("there is room on the disk again: publishers are read from")
            coordinator = self.server.coordinator
            if coordinator is None or not coordinator.too_much:
                self.server.store_keeps_up()
            return
        room = self.room
        where = "" if room is None else f": {room.seen:,} bytes are free, disk_reserve is {room.reserve:,}"
        why = "" if committer.full is None else f" ({committer.full})"
        log.error(
            "publishers are paused, as the disk has too little room%s%s; delete something, or have messages kept for "
            "less long (store.keep_for, store.keep_bytes); then they go on by themselves",
            *(where, why),
        )
        if self.on_low is not None:
            self.on_low()

    def _look_again(self) -> None:
        self.committer.look()
        self.server.timers.at(self.server.hot.now + LOOK_AGAIN, self._look_again)

    async def committed(self) -> None:
        """Return when all that has changed until now is on disk; with `async`, at once. StorageError: the disk has
        failed, and it may not be there."""
        on_disk = asyncio.Event()
        if self.committer.error is None:
            self.journal.tell_when_durable(on_disk.set)
            self.server.plane.wake()
            await on_disk.wait()
        if self.committer.error is not None:
            raise self.committer.error

    def settle(self) -> None:
        """Bring all changes to disk and send what waited for them, before anything else happens."""
        self.committer.settle()

    def close(self) -> None:
        self.server.plane.unlisten(self.committer.descriptor)
        self.committer.settle()
        self.committer.close()
