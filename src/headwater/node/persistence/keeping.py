"""The parts of persistence put together for one broker: opened, recovered from, closed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from headwater.disk.errors import StorageError
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.committing import ThreadCommitter
from headwater.node.persistence.journal import NEVER_WITHHELD, Journal
from headwater.node.persistence.recovery import recover
from headwater.node.server import Server
from headwater.store.store import Store

log = logging.getLogger("headwater.persistence")


class Keeping:
    """Keeps what has to outlive the process in `backend`, from now on; before, takes up what is there.

    StorageError: what is there cannot be used. `failed` is called if the disk fails later. With a `store`, messages go
    there first; it is closed with the rest.
    """

    def __init__(
        self,
        server: Server,
        backend: Backend,
        failed: Callable[[StorageError], None],
        store: Store | None = None,
    ) -> None:
        config = server.config
        self.server = server
        self.backend = backend
        self.committer = committer = ThreadCommitter(server, backend, failed, store)
        self.journal = committer.journal = Journal(server.hot, server.router.retained, server.budget, committer)
        self.journal.memory = config.queue_memory
        if config.durability == "async":
            self.journal.interval = config.commit_interval
            server.hot.durable = NEVER_WITHHELD
        server.keep_in(self.journal)
        if store is not None:
            settings = config.store
            server.store_by(Coordinator(server, store, settings.filters, settings.max_pending, settings.max_topics))
        started = time.monotonic()
        try:
            recovered = recover(server, backend, self.journal)
        except BaseException:
            committer.close()
            raise
        log.info("took up %s in %.1f s", recovered, time.monotonic() - started)
        if recovered.left_out:
            log.warning(
                "%d of %d retained messages are left on disk, as there is no room for them: max_retained = %d, "
                "max_retained_bytes = %d; they are back when a broker with more room starts",
                recovered.left_out,
                recovered.left_out + recovered.retained,
                config.max_retained,
                config.max_retained_bytes,
            )
        server.plane.listen(committer.descriptor, committer.ready)

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
