"""A lease on a lake that is no folder: who may write, and how the next one knows that it may.

Theory. Nothing tells the keeper of objects that a process is dead, so whoever writes says again and again that it
lives, and a lease that was silent for `EXPIRY` can be taken over. A process that was only paused does not know that.
So leases are numbered (epochs), and each table is told the number (`Log.fence`) before its new writer does anything
else: a commit of an older epoch is refused by the table itself, also one that was on its way.

    leases/000000000007         who it is; put if absent, so of many that try one gets it
    leases/000000000007.alive   put again every `BEAT` seconds; its age is that by the store's clock
    leases/000000000007.over    it was given back

The lease is the one with the greatest number. Who has made one looks once more: if there is a greater one meanwhile, it
has lost. No clocks of two machines are compared: the store's time is that of an object put for it. A holder that was a
process of this machine is asked for directly, so a restart after a crash does not wait.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from typing import Final

from headwater.objects import Item, Missing, Place, PlaceError
from headwater.pipeline.lake.holder import Holder
from headwater.pipeline.lake.log import LakeError

FOLDER: Final = "leases"
EXPIRY: Final = 60.0
"""Seconds of silence after which a holder is taken for dead."""
BEATS: Final = 6
"""Signs of life in this time."""
KEPT: Final = 8
"""Old leases that stay, for people."""
ALIVE: Final = ".alive"
OVER: Final = ".over"
log = logging.getLogger(__name__)


class Held(LakeError):
    """Somebody else has the lease; the text says who."""


class Lease:
    """To be taken by one process, once. `expiry` has to be the same for all."""

    def __init__(self, place: Place, what: str, expiry: float = EXPIRY) -> None:
        self._place = place
        self._holder = Holder.me(what)
        self._expiry = expiry
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.epoch = 0
        self.lost: str | None = None
        """Who has taken it over, in words."""

    def take(self) -> int:
        """Its epoch. Raises Held."""
        now = self.check_free()
        self._check_store()
        epoch = now.epoch + 1
        mine = self._place.put_if_absent(name(epoch), self._holder.written()) is not None
        now = Leases(self._place)
        if not mine or now.epoch > epoch:
            raise self._held(now)
        self.epoch = epoch
        self.beat()
        self._forget(now)
        self._thread = threading.Thread(target=self._live, name="lease", daemon=True)
        self._thread.start()
        return epoch

    def check_free(self) -> Leases:
        """Raises Held."""
        now = Leases(self._place)
        if now.epoch and not now.is_over and not self._is_dead(now):
            raise self._held(now)
        return now

    def beat(self) -> None:
        """A sign of life; and who has taken over is noted."""
        self._place.put(name(self.epoch) + ALIVE, uuid.uuid4().hex.encode())
        now = Leases(self._place)
        if now.epoch > self.epoch:
            self.lost = str(now.holder() or "another pipeline")

    def check(self) -> None:
        """Raises Held if it is known that somebody has taken over. What decides is what tables say at each commit."""
        if self.lost is not None:
            raise Held(f"{self._place.where} was taken over by {self.lost}, as this pipeline gave no sign of life")

    def give_back(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.epoch and self.lost is None:
            with contextlib.suppress(PlaceError):  # then it expires
                self._place.put(name(self.epoch) + OVER, b"")

    def _live(self) -> None:
        while not self._ended.wait(self._expiry / BEATS) and self.lost is None:
            try:
                self.beat()
            except PlaceError as error:
                log.warning("no sign of life could be given: %s", error)

    def _is_dead(self, now: Leases) -> bool:
        holder = now.holder()
        return holder is None or holder.is_gone or self._time() - now.seen() > self._expiry

    def _check_store(self) -> None:
        try:
            self._place.check_conditions(f"{FOLDER}/.check-{uuid.uuid4().hex}")
        except PlaceError as error:
            raise LakeError(f"{error}: it cannot have a lake") from None

    def _time(self) -> float:
        """By the store's clock."""
        probe = f"{FOLDER}/.now-{uuid.uuid4().hex}"
        self._place.put(probe, b"")
        try:
            found = self._place.head(probe)
        finally:
            self._place.delete([probe])
        if found is None:
            raise PlaceError(f"{self._place.where}: what was put is not there")
        return found.modified

    def _held(self, now: Leases) -> Held:
        holder = now.holder() or "another pipeline"
        ago = max(0.0, self._time() - now.seen())
        return Held(
            f"another pipeline writes into {self._place.where}: {holder}, seen {ago:.0f} s ago; stop it, or choose "
            f"another lake. If it is dead, the lake is free when it was not seen for {self._expiry:.0f} s"
        )

    def _forget(self, now: Leases) -> None:
        old = [each.name for each in now.items if number(each) <= self.epoch - KEPT]
        self._place.delete(old)


class Leases:
    """As they are now."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.items = [each for each in place.level(FOLDER).items if number(each) > 0]
        self.epoch = max((number(each) for each in self.items if "." not in each.name), default=0)
        """Of the lease; 0: there is none."""

    @property
    def is_over(self) -> bool:
        return any(each.name == name(self.epoch) + OVER for each in self.items)

    def holder(self) -> Holder | None:
        try:
            return Holder.read(self._place.get(name(self.epoch)).data)
        except Missing:
            return None

    def seen(self) -> float:
        """When it gave a sign of life last, by the store's clock."""
        ours = (name(self.epoch), name(self.epoch) + ALIVE)
        return max((each.modified for each in self.items if each.name in ours), default=0.0)


def name(epoch: int) -> str:
    return f"{FOLDER}/{epoch:012d}"


def number(item: Item) -> int:
    """Of the epoch; 0: the object is of none."""
    digits = item.name.rpartition("/")[2].partition(".")[0]
    return int(digits) if digits.isdecimal() else 0
