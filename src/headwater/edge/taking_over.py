"""A delivery store comes from a node that runs into a folder here: its id and its positions stay.

    took = take_over(Path("data/messages"), HttpSource("http://old:18830", token), "new-node")

Theory. The source's copies are consistent, and most of their files never change. So the store is fetched in rounds,
each with what has come since the last, until a round is small; then the source is frozen, and the last round is what
publishers wait for. It is checked (each file's SHA-256, then the store's id, first and next position), that it is
whole is written down, and the source is asked to give up its right. When it has, the store is ours
(store/hand_over.py). Killed at any moment, here or there, the same call goes on: before the source's fence with another
round, after it with the last step. What was fetched already is not fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from headwater.disk.crash_points import crash_point
from headwater.disk.files import sync_folder
from headwater.disk.lock import make_folder
from headwater.store.disk_store import DiskStore
from headwater.store.hand_over import (
    COPYING,
    READY,
    Fence,
    TakeOver,
    adopt,
    read_fence,
    read_take_over,
    write_take_over,
)

log = logging.getLogger("headwater.edge")

SMALL: Final = 4 << 20
"""Bytes of a round after which the source is frozen."""
MOST_ROUNDS: Final = 12
"""Rounds after which it is frozen in any case: more comes than can be fetched."""
LAST_ROUNDS: Final = 5
"""Rounds while it is frozen."""
FREEZE: Final = 10.0
"""Seconds for which publishers wait at most."""
SORTED: Final = ".sst"
DESCRIPTION: Final = "messages.json"


class TakeOverError(Exception):
    """It came to nothing, and the store is the source's as before, unless the text says otherwise."""


class SourceRefuses(TakeOverError):
    """Not now, or not so."""


class SourceAway(TakeOverError):
    """It does not answer."""


class Source(Protocol):
    """A node that has the store. Raises SourceRefuses, SourceAway."""

    url: str

    def ask(self, path: str, order: dict[str, Any] | None = None) -> dict[str, Any]:
        """Below /v1/hand-over; an order is posted."""

    def fetch(self, hand_over: str, name: str) -> Iterator[bytes]:
        """A file of the last copy."""


class Took(NamedTuple):
    """`pause` is how long the source took nothing, in seconds, until the store was open here; 0: it went before."""

    store: str
    hand_over: str
    position: int
    messages: int
    rounds: int
    fetched: int
    pause: float


def take_over(
    folder: Path,
    source: Source,
    node: str,
    *,
    freeze: float = FREEZE,
    tell: Callable[[str], None] = log.info,
    fence: Fence | None = None,
) -> Took:
    """Make the source's store the one in `folder`, which is not there, or what a call before this one has left. The
    source's publishers wait until it is told to release them. `fence` is the source's word if it cannot be asked (its
    handed-over.json). Raises TakeOverError, StorageError."""
    try:
        return _TakeOver(folder, source, node, freeze, tell).run(fence)
    except (KeyError, TypeError, AttributeError) as error:
        raise TakeOverError(f"{source.url} answers something else than a hand-over has ({error!r})") from error
    except OSError as error:
        raise TakeOverError(f"cannot write {folder}: {error.strerror or error}") from error


class _TakeOver:
    def __init__(self, folder: Path, source: Source, node: str, freeze: float, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._source = source
        self._node = node
        self._freeze = freeze
        self._tell = tell
        self._id = ""
        self._rounds = 0
        self._fetched = 0
        self._store = ""
        self._sorted: set[tuple[str, int, str]] = set()
        """Files that are here, whole, and never change."""

    def run(self, fence: Fence | None) -> Took:
        taking = self._begun()
        if taking is not None and taking.step == READY:
            fence = fence or self._fence_there()
            if fence is not None and fence.hand_over == taking.hand_over:
                if (fence.store, fence.position) != (taking.store, taking.position):
                    raise TakeOverError(f"the fence is of {fence.store}:{fence.position}, and not of what was copied")
                with contextlib.closing(self._opened()) as store:
                    return self._adopted(taking, store)
            self._tell("the source has kept its store: what has come since is fetched")
        if fence is not None:
            raise TakeOverError(f"the store {fence.store} was handed over to {fence.to}, not in this hand-over")
        begun = self._source.ask("", {"to": self._node})
        self._id, self._store = begun["hand_over"], begun["store"]
        make_folder(self._folder)
        write_take_over(self._folder, TakeOver(self._store, self._id, self._source.url, COPYING))
        try:
            return self._go()
        except BaseException:
            self._let_go()
            raise

    def _begun(self) -> TakeOver | None:
        if not self._folder.exists():
            return None
        fenced = read_fence(self._folder)
        if fenced is not None:
            raise TakeOverError(
                f"the store in {self._folder} was handed over to {fenced.to} itself; name another folder"
            )
        taking = read_take_over(self._folder)
        if taking is None and any((self._folder / name).exists() for name in (DESCRIPTION, "db")):
            raise TakeOverError(f"there is a store in {self._folder} already; name another folder")
        return taking

    def _fence_there(self) -> Fence | None:
        found = self._source.ask("")["fence"]
        return None if found is None else Fence(**found)

    def _go(self) -> Took:
        while True:
            size, _ = self._round()
            if size <= SMALL or self._rounds >= MOST_ROUNDS:
                break
        began = time.monotonic()
        self._source.ask(f"/{self._id}/freeze", {"seconds": self._freeze})
        for _ in range(LAST_ROUNDS):
            _, copied = self._round()
            with contextlib.closing(self._opened()) as store:
                taking = self._checked(store, copied)
                crash_point("hand-over-checked")
                write_take_over(self._folder, taking)
                crash_point("hand-over-ready")
                try:
                    self._source.ask(f"/{self._id}/fence", {"position": taking.position})
                except SourceRefuses as error:
                    self._tell(f"{error}; once more")
                    write_take_over(self._folder, taking._replace(step=COPYING))
                    continue
                crash_point("hand-over-before-adopt")
                return self._adopted(taking, store, began)
        raise TakeOverError("more came with every round, though the source is frozen; the store is the source's")

    # ---- copying -------------------------------------------------------------------------------------------------

    def _round(self) -> tuple[int, dict[str, Any]]:
        """How many bytes were fetched, and what the copy is."""
        self._rounds += 1
        copied = self._source.ask(f"/{self._id}/copy", {})
        wanted = {each["name"]: each for each in copied["files"]}
        size = 0
        for name, each in wanted.items():
            path = self._path_of(name)
            if not self._is_there(path, each):
                self._fetch(name, path, each)
                size += each["size"]
                crash_point("hand-over-in-copy")
        for path in [each for each in self._folder.glob("db/*") if each.is_file()]:
            if f"db/{path.name}" not in wanted:
                path.unlink()
        for folder in (self._folder / "db", self._folder):
            sync_folder(folder)
        self._fetched += size
        self._tell(f"round {self._rounds}: {size:,} bytes, up to position {copied['next'] - 1:,}")
        crash_point("hand-over-copied")
        return size, copied

    def _is_there(self, path: Path, wanted: dict[str, Any]) -> bool:
        """From an earlier round. Sorted files never change, so they are read once: publishers may be waiting."""
        key = (wanted["name"], wanted["size"], wanted["sha256"])
        try:
            is_whole: bool = path.stat().st_size == wanted["size"]
            is_whole = is_whole and (key in self._sorted or _sum_of(path) == key[2])
        except FileNotFoundError:
            return False
        if is_whole and path.suffix == SORTED:
            self._sorted.add(key)
        return is_whole

    def _path_of(self, name: str) -> Path:
        parts = name.split("/")
        known = parts == [DESCRIPTION] or (len(parts) == 2 and parts[0] == "db" and parts[1] not in ("", ".", ".."))
        if not known or "\0" in name:
            raise TakeOverError(f"the source names a file {name!r}, which no store has")
        if len(parts) == 2:
            make_folder(self._folder / "db")
        return self._folder / name

    def _fetch(self, name: str, path: Path, wanted: dict[str, Any]) -> None:
        sha256 = hashlib.sha256()
        size = 0
        unfinished = path.with_name(f"{path.name}.unfinished")
        with open(unfinished, "wb") as file:
            for data in self._source.fetch(self._id, name):
                sha256.update(data)
                size += len(data)
                if size > wanted["size"]:
                    break
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if size != wanted["size"] or sha256.hexdigest() != wanted["sha256"]:
            raise TakeOverError(f"the source's file {name} came damaged: {size} bytes, not {wanted['size']}, or others")
        os.replace(unfinished, path)
        if path.suffix == SORTED:
            self._sorted.add((name, wanted["size"], wanted["sha256"]))

    def _checked(self, store: DiskStore, copied: dict[str, Any]) -> TakeOver:
        """That the copy is a store with all that it should have."""
        expected = (self._store, copied["first"], copied["next"])
        if (store.id, store.first, store.next) != expected:
            raise TakeOverError(
                f"the copy is of {store.id}, positions {store.first} to {store.next - 1}; expected were "
                f"{expected[0]}, {expected[1]} to {expected[2] - 1}"
            )
        if store.note():
            store.forget_note()
        return TakeOver(self._store, self._id, self._source.url, READY, copied["next"] - 1)

    def _opened(self) -> DiskStore:
        return DiskStore(self._folder, create=False, seal_in_background=False, is_taker=True)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _adopted(self, taking: TakeOver, store: DiskStore, began: float = 0.0) -> Took:
        """The store is open, and from now on ours."""
        adopt(self._folder)
        crash_point("hand-over-adopted")
        pause = time.monotonic() - began if began else 0.0
        count = store.next - store.first
        took = Took(taking.store, taking.hand_over, taking.position, count, self._rounds, self._fetched, pause)
        self._tell(
            f"the store {took.store} is here, up to {took.position:,}; the source took nothing for {pause:.3f} s"
        )
        return took

    def _let_go(self) -> None:
        """What fails leaves the source as it was, unless it is fenced: then it has nothing to let go of."""
        try:
            if self._fence_there() is None:
                self._source.ask(f"/{self._id}/release", {})
        except TakeOverError as error:
            log.warning("the source could not be released, and goes on by itself soon: %s", error)


def _sum_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
