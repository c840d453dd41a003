"""The stores behind a source: which answer now, what they hold, and where each begins and ends.

Theory. An address is not a store: a node may move, and another store may answer where one was. So offsets name stores
by id, and each look asks every address whose store it has. A store that does not answer keeps its offset: it is told
of, others go on, and it is read when it is back. A store that nobody has seen before begins with its first message, as
it was not there when `startingOffsets` was meant.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.pipeline.options import OptionError
from headwater.pipeline.source.addresses import Addresses
from headwater.pipeline.source.settings import Settings, Start
from headwater.store.direct import Place, place_in
from headwater.store.reader import Refused, StoreReader, Unreachable

LOOK_TIMEOUT: Final = 5.0
"""Seconds for an answer when a store is only looked at."""
BETWEEN_LOOKS: Final = 0.5
OVERHEAD: Final = 64.0
"""Bytes of a message on the wire beside its payload, roughly."""
Offsets = dict[str, int]
"""For each store the last position that belongs to it; 0: none."""

log = logging.getLogger(__name__)


class DataLoss(Exception):
    """Messages that were to be read are not there any more."""


@dataclass(frozen=True)
class StoreNow:
    """What a store holds: `[first, next)`. `mean_size` is bytes of a message on the wire, roughly; `place` where its
    older positions are in object storage."""

    id: str
    url: str
    first: int
    next: int
    mean_size: float
    place: Place | None = None

    @property
    def last(self) -> int:
        return self.next - 1


class Stores:
    """Addresses and what answers there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._silent: dict[str, str] = {}
        """Addresses that do not answer, and why: each is told once."""
        self._urls: dict[str, str] = {}
        self._places: dict[str, Place | None] = {}
        self._addresses = Addresses(settings)

    def look(self) -> dict[str, StoreNow]:
        """The stores that answer now, by id. Raises Refused if one answers that we may not ask, OptionError if the file
        of addresses cannot be read at first."""
        found: dict[str, StoreNow] = {}
        addresses = self._addresses.now()
        self._silent = {url: why for url, why in self._silent.items() if url in addresses}
        for url in addresses:
            now = self._ask(url)
            if now is not None and self.settings.store in (None, now.id):
                found.setdefault(now.id, now)
        self._urls |= {id: now.url for id, now in found.items()}
        self._places |= {id: now.place for id, now in found.items()}
        return found

    def look_until_all_answer(self, passed: Mapping[str, int] | None = None) -> dict[str, StoreNow]:
        """Waits as long as the settings say, but not for stores that have ended no further than `passed` says that they
        are read (None: not for any that has ended). Raises Unreachable."""
        found = self._look_until(lambda found: not self._missed(passed))
        if self.settings.store is not None and not found:
            log.warning("the store %s is at none of the addresses; it is the only one to be read", self.settings.store)
        return found

    def look_until_any_answers(self) -> dict[str, StoreNow]:
        """Those that answer, when one does: waits as long as the settings say. Raises Unreachable."""
        found = self._look_until(lambda found: bool(found) or not self._silent)
        for url, why in self._silent.items():
            log.warning("going on without the store at %s, which begins with its first message (%s)", url, why)
        return found

    def look_for(self, ids: Collection[str]) -> dict[str, StoreNow]:
        """Those that answer, when these do: waits as long as the settings say. Raises Unreachable; DataLoss: every
        address answers, and one of the stores is at none."""
        found = self._look_until(lambda found: not self._silent or all(id in found for id in ids))
        for id in ids:
            if id not in found:
                raise DataLoss(
                    f"the store {id}, of which there is something to read, is at none of the addresses now "
                    f"({', '.join(self._addresses.now())}). Start its node, or name its address."
                )
        return found

    @property
    def ends(self) -> dict[str, int]:
        """Of the stores that are meant and have ended: their last positions."""
        only = self.settings.store
        return {id: end for id, end in self._addresses.ends.items() if only in (None, id)}

    def _missed(self, passed: Mapping[str, int] | None) -> list[str]:
        """Addresses where nothing answers, and where something is to be read, perhaps."""
        ends = self.ends
        ended = {url: self._addresses.ended_at(url) for url in self._silent}
        return [
            url
            for url, id in ended.items()
            if id is None or (passed is not None and id in ends and passed.get(id, -1) < ends[id])
        ]

    def _look_until(self, is_enough: Callable[[dict[str, StoreNow]], bool]) -> dict[str, StoreNow]:
        began = time.monotonic()
        while True:
            found = self.look()
            if is_enough(found):
                return found
            if time.monotonic() - began >= self.settings.patience:
                raise Unreachable(
                    f"no answer for {self.settings.patience:g} s (waitForStore): {'; '.join(self._silent.values())}"
                )
            time.sleep(BETWEEN_LOOKS)

    def url_of(self, id: str) -> str | None:
        """Where the store was seen last; None if it has not been, or nothing answers there now."""
        url = self._urls.get(id)
        return None if url in self._silent else url

    def place_of(self, id: str) -> Place | None:
        """Where its older positions are in object storage, if they are to be read from there."""
        return self._places.get(id) if self.settings.is_direct else None

    @property
    def silent(self) -> list[str]:
        """Addresses where nothing answered at the last look."""
        return sorted(self._silent)

    def _ask(self, url: str) -> StoreNow | None:
        try:
            return self._now(url)
        except (Unreachable, ValueError) as error:
            if url not in self._silent:
                log.warning("the store at %s does not answer; it is waited for (%s)", url, error)
            self._silent[url] = str(error)
            return None

    def _now(self, url: str) -> StoreNow:
        """Raises Unreachable, ValueError: that is no address."""
        status = self.settings.client(url, retries=0, timeout=LOOK_TIMEOUT).status()
        try:
            on_disk = status["next"] - status.get("disk_first", status["first"])
            mean = status["payload_size"] / max(1, on_disk) + OVERHEAD
            now = StoreNow(status["id"], url, status["first"], status["next"], mean, place_in(status))
        except (KeyError, TypeError):
            raise Unreachable(f"{url}: something else answers there") from None
        if self._silent.pop(url, None) is not None:
            log.warning("the store at %s answers again", url)
        return now


def check_named(found: Mapping[str, StoreNow], settings: Settings, silent: Collection[str] = ()) -> None:
    """Raises OptionError if offsets name a store that is at none of the addresses, unless one of those does not answer:
    what a wrong name was to leave out would be read."""
    if silent or settings.unknown_stores == "keep":
        return
    for option, said in (("startingOffsets", settings.start), ("endingOffsets", settings.end)):
        named = said if isinstance(said, dict) else {}
        unknown = sorted(id for id in named if id not in found and settings.store in (None, id))
        if unknown:
            raise OptionError(
                f"{option} names the store {', '.join(unknown)}, which is at none of the addresses; there are "
                f"{', '.join(sorted(found)) or 'none'}"
            )


def beginnings(found: Mapping[str, StoreNow], start: Start, settings: Settings) -> Offsets:
    """Where reading begins in each store, by what `startingOffsets` says. Stores that it names and that are not here
    keep what it says, for when they come."""
    begin = {id: _boundary(now, start, settings.client(now.url), 0) for id, now in found.items()}
    if isinstance(start, dict):
        away = {id: position for id, position in start.items() if id not in found and settings.store in (None, id)}
        for id, position in away.items():
            log.warning("startingOffsets names the store %s (%d), which is at none of the addresses", id, position)
        begin |= away
    return dict(sorted(begin.items()))


def ends(found: Mapping[str, StoreNow], end: Start, settings: Settings) -> Offsets:
    """Where a batch read ends, by what `endingOffsets` says."""
    return {id: min(now.last, _boundary(now, end, settings.client(now.url), now.last)) for id, now in found.items()}


def _boundary(now: StoreNow, said: Start, client: StoreReader, otherwise: int) -> int:
    """A last position: what is behind it is on the other side."""
    if isinstance(said, datetime):
        return client.position_at(said) - 1
    if isinstance(said, dict):
        return said.get(now.id, now.first - 1 if otherwise == 0 else otherwise)
    return now.last if said == "latest" else now.first - 1


__all__ = ["DataLoss", "Offsets", "Refused", "StoreNow", "Stores", "beginnings", "check_named", "ends"]
