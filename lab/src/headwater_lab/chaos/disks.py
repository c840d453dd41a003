"""Brokers for an episode: the real one, and ones whose disk or promises are worse, to see that it is found.

SIGKILL takes nothing from the operating system, so what was written and not synced is still there. `UnsyncedIsLost`
makes each kill a power cut: batches stay in the process until they are synced, apart from some that the system wrote
early.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from headwater.node.broker import Broker
from headwater.node.config import Config, load_config
from headwater.node.delivery.serving import Rest
from headwater.node.persistence import persistence, recovery
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.schema import open_folder
from headwater.node.plane.selector import run
from headwater.node.run import run_broker
from headwater.store.disk_store import DiskStore
from headwater.store.intake import Taken
from headwater.store.rest import app
from headwater_lab.chaos.lives import Serve, Settings
from headwater_lab.chaos.stored import FOLDER

LOADED: Final = (persistence, recovery, app)
"""What a broker loads when it needs it; here it is loaded once, before it is forked."""
BLOCK: Final = 64
"""Messages of a block in the delivery store: few, so that blocks are made all the time."""
EARLY: Final = 0.2
"""How likely it is that the system has written all there is before it was asked to."""

Batch = tuple[list[tuple[bytes, bytes]], list[bytes]]


class UnsyncedIsLost(Backend):
    """A store that forgets, when its process dies, what was not synced. One that `lies` syncs only by chance."""

    def __init__(self, store: Backend, random: Random, lies: bool = False) -> None:
        self.store = store
        self.random = random
        self.lies = lies
        self._batches: list[Batch] = []
        self._unsynced: dict[bytes, bytes | None] = {}

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        self._batches = [*self._batches, (puts, deletes)]
        # A new dictionary, because the other thread may be reading this one.
        self._unsynced = {**self._unsynced, **dict.fromkeys(deletes), **dict(puts)}
        if self.random.random() < EARLY:
            self._write_all()

    def sync(self) -> None:
        if not self.lies:
            self._write_all()

    def _write_all(self) -> None:
        for puts, deletes in self._batches:
            self.store.write(puts, deletes)
        self.store.sync()
        self._batches = []
        self._unsynced = {}

    def get(self, key: bytes) -> bytes | None:
        unsynced = self._unsynced
        return unsynced[key] if key in unsynced else self.store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        unsynced = self._unsynced
        there = {key: value for key, value in self.store.scan(prefix) if key not in unsynced}
        there |= {key: value for key, value in unsynced.items() if value is not None and key.startswith(prefix)}
        return iter(sorted(there.items()))

    def close(self) -> None:
        self._write_all()
        self.store.close()


class Torn(Backend):
    """A store whose batches can be cut in the middle: each change is one of its own."""

    def __init__(self, store: Backend) -> None:
        self.store = store

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        for put in puts:
            self.store.write([put], [])
        for key in deletes:
            self.store.write([], [key])

    def sync(self) -> None:
        self.store.sync()

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.store.scan(prefix)

    def close(self) -> None:
        self.store.close()


def _config(port: int, data: Path, settings: Settings, durability: str = "sync") -> Config:
    given = {"port": port, "data_dir": str(data), "durability": durability, "sys_interval": 0, "log_level": "error"}
    return load_config(None, {**given, **settings}, {})


def serve_durably(port: int, data: Path, settings: Settings) -> int:
    """What `headwater broker --data-dir DATA --durability sync` does."""
    return run_broker(_config(port, data, settings))


def serve_async(port: int, data: Path, settings: Settings) -> int:
    """Acknowledges before it has written."""
    return run_broker(_config(port, data, settings, "async"))


def _serve_on(backend: Backend, config: Config, store: DiskStore | None = None) -> int:
    async def serve() -> int:
        broker = Broker(config, backend=backend, store=store)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await broker.start()
        rest = None if store is None else Rest(broker, store)
        if rest is not None:
            await rest.start()
        await stop.wait()
        if rest is not None:
            await rest.stop()
        await broker.stop()
        return 0

    return run(serve())


def serve_with_power_cuts(port: int, data: Path, settings: Settings) -> int:
    return _serve_on(UnsyncedIsLost(open_folder(data), Random(port)), _config(port, data, settings))


def serve_on_a_disk_that_lies(port: int, data: Path, settings: Settings) -> int:
    """It says that something is on disk, and it is not."""
    return _serve_on(UnsyncedIsLost(open_folder(data), Random(port), lies=True), _config(port, data, settings))


def serve_with_torn_batches(port: int, data: Path, settings: Settings) -> int:
    return _serve_on(Torn(open_folder(data)), _config(port, data, settings))


# ---- with a delivery store ---------------------------------------------------------------------------------------


class ForgetfulStore(DiskStore):
    """A store whose process keeps what was not synced, apart from some that the system wrote early. One that `lies`
    syncs only by chance."""

    def __init__(self, path: Path, random: Random, lies: bool) -> None:
        super().__init__(path, block_messages=BLOCK)
        self.random = random
        self.lies = lies
        self._kept: list[tuple[Taken, bytes]] = []

    def append(self, taken: Taken, note: bytes = b"") -> None:
        self._kept.append((taken, note))
        if self.random.random() < EARLY:
            self._append_all()

    def sync(self) -> None:
        if not self.lies:
            self._append_all()
        super().sync()

    def _append_all(self) -> None:
        for taken, note in self._kept:
            super().append(taken, note)
        self._kept = []

    def close(self) -> None:
        self._append_all()
        super().close()


def _serve_stored(port: int, data: Path, settings: Settings, durability: str) -> int:
    backend = open_folder(data)
    return _serve_on(backend, _config(port, data, settings, durability), DiskStore(data / FOLDER, block_messages=BLOCK))


def serve_stored(port: int, data: Path, settings: Settings) -> int:
    """What `headwater node` does, with smaller blocks."""
    return _serve_stored(port, data, settings, "sync")


def serve_stored_async(port: int, data: Path, settings: Settings) -> int:
    return _serve_stored(port, data, settings, "async")


def _serve_forgetful(port: int, data: Path, settings: Settings, lies: bool) -> int:
    backend = UnsyncedIsLost(open_folder(data), Random(port))
    return _serve_on(backend, _config(port, data, settings), ForgetfulStore(data / FOLDER, Random(port + 1), lies))


def serve_stored_with_power_cuts(port: int, data: Path, settings: Settings) -> int:
    return _serve_forgetful(port, data, settings, False)


def serve_stored_early(port: int, data: Path, settings: Settings) -> int:
    """Its store says that messages are on disk, and they are not; the sessions' are."""
    return _serve_forgetful(port, data, settings, True)


BROKERS: Final[dict[str, Serve]] = {
    "sync": serve_durably,
    "power-cuts": serve_with_power_cuts,
    "async": serve_async,
    "lying-disk": serve_on_a_disk_that_lies,
    "torn-batches": serve_with_torn_batches,
    "stored": serve_stored,
    "stored-power-cuts": serve_stored_with_power_cuts,
    "stored-async": serve_stored_async,
    "stored-early": serve_stored_early,
}
