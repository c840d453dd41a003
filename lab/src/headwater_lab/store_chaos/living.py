"""The process that is killed: it writes, makes blocks, trims, reads and commits, and tells what it was promised."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from headwater.store import disk_store
from headwater.store.disk_store import DiskStore
from headwater.store.intake import Intake
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.shelf import Records, Shelf
from headwater.store.store import PositionGone, UnknownReader
from headwater_lab.chaos.listened import tell
from headwater_lab.store_chaos.account import FORGOTTEN
from headwater_lab.store_chaos.messages import EXTRACTION, message_at, take

READERS: Final = ("spark", "mirror", "backup")
PAUSE: Final = 0.01
"""Seconds between the actions of a thread, at most."""


class Settings(NamedTuple):
    """Of an episode. `kind` is one of KINDS."""

    kind: str
    seed: int
    block_messages: int
    largest_commit: int
    size: int
    hard_size: int | None

    @property
    def retention(self) -> Retention:
        return Retention(size=self.size, hard_size=self.hard_size)


def newest_log(database: Path) -> Path:
    return max(database.glob("*.log"), key=lambda path: path.name)


class TellingShelf(Shelf):
    """Tells how much of the log is surely on disk."""

    def sync(self) -> None:
        log = newest_log(self.path)
        size = log.stat().st_size
        super().sync()
        tell(f"synced {log.name} {size}")


class LyingShelf(Shelf):
    """Says that all is on disk, and does nothing for it."""

    def sync(self) -> None:
        pass


class TornShelf(TellingShelf):
    """A block and the end of its messages in the log are two things."""

    def write(self, puts: Records, deletes: object = (), pages: Records | None = None) -> None:
        gone = list(deletes)  # type: ignore[call-overload]
        if gone:
            super().write([], gone)
        super().write(puts, (), pages)


KINDS: Final[dict[str, type[Shelf]]] = {
    "kills": TellingShelf,
    "power-cuts": TellingShelf,
    "early": TellingShelf,  # acknowledges before it has synced
    "lying-disk": LyingShelf,
    "torn-blocks": TornShelf,
}
WITH_POWER: Final = ("kills",)
"""Kinds that lose nothing but what the process had."""


def opened(path: Path, settings: Settings, shelf: type[Shelf] = Shelf, seal: bool = True) -> DiskStore:
    """In a process of one's own: the shelf is that of all stores in it. Without `seal` it stays as it is found."""
    disk_store.__dict__["Shelf"] = shelf
    return DiskStore(
        path,
        extraction=EXTRACTION,
        retention=settings.retention,
        cache=1 << 20,
        block_messages=settings.block_messages,
        seal_in_background=seal,
    )


class Living:
    def __init__(self, folder: Path, settings: Settings, life: int) -> None:
        self.settings = settings
        self.life = life
        self.store = opened(folder, settings, KINDS[settings.kind])
        self.over = threading.Event()

    def run(self) -> int:
        """Until it is killed; if it ends, something is wrong."""
        tell(f"begin {self.store.next}")
        for act in (self.trim, self.look, self.commit):
            threading.Thread(target=self._guarded, args=(self._at_intervals, act), daemon=True).start()
        self._guarded(self._write)
        return 1

    def _guarded(self, run: Callable[..., None], *arguments: object) -> None:
        try:
            run(*arguments)
        except BaseException:
            tell("wrong ended: " + " | ".join(traceback.format_exc().splitlines()))
            self.over.set()

    def _random(self, name: str) -> Random:
        return Random(f"{self.settings.seed} {self.life} {name}")

    def _at_intervals(self, act: Callable[[Random], None]) -> None:
        random = self._random(act.__name__)
        while not self.over.wait(random.uniform(0, PAUSE)):
            act(random)

    def _write(self) -> None:
        random = self._random("write")
        intake = Intake(self.store.next)
        while not self.over.is_set():
            for _ in range(random.choice((1, 1, 2))):
                for _ in range(random.randint(1, self.settings.largest_commit)):
                    take(intake, self.settings.seed, self.life)
                taken = intake.hand_over()
                assert taken is not None
                self.store.append(taken)
            if self.settings.kind == "early":
                tell(f"acknowledged {intake.next}")
            self.store.sync()
            tell(f"acknowledged {intake.next}")

    def trim(self, random: Random) -> None:
        tell(f"trimmed {self.store.trim(0).first}")

    def look(self, random: Random) -> None:
        """What can be read is as it was written, whoever writes and removes meanwhile."""
        store = self.store
        after = random.randint(store.first - 1, store.next - 1)
        topic = random.choice((None, None, "always/#", f"life/{self.life}/+", "always/3"))
        last = after
        try:
            for chunk in store.select(Query(filter=topic, after=after, limit=random.choice((None, 100)))):
                for entry in chunk.entries():
                    if entry.position <= last:
                        tell(f"wrong doubled: {entry.position} came after {last}")
                    elif topic is None and entry.position != last + 1:
                        tell(f"wrong gap: {entry.position} came after {last}")
                    last = entry.position
                    if entry != message_at(self.settings.seed, life_in(entry.payload), last):
                        tell(f"wrong changed: {entry}")
            store.latest("always/1")
            store.topics("life/#")
        except PositionGone:
            pass
        tell(f"seen {last + 1}")

    def commit(self, random: Random) -> None:
        store = self.store
        name = random.choice(READERS)
        try:
            if random.random() < 0.05:
                store.reader(name)
                tell(f"reader {name} {FORGOTTEN}")
                store.forget(name)
            else:
                position = random.randint(max(store.first - 1, store.next - 200), store.next - 1)
                tell(f"reader {name} {position}")
                store.commit(name, position)
            tell(f"committed {name}")
        except (PositionGone, UnknownReader):
            pass


def life_in(payload: bytes) -> int:
    return int(payload.partition(b'"life":')[2].partition(b",")[0] or b"-1")
