"""How far time has come in each store, as far as a table knows everything of it.

Theory. A store says: everything that arrived before T has a position before n (`/v1/store/clock`). If the table has all
positions before n, its clock for that store is T. If it has not, or the store does not answer, everything before the
arrival of the last message that the table has is there, as arrivals never go back: its clock is that. What needs all
stores goes by the slowest.

If more addresses do not answer than there are stores of which the table has something and which have not answered, one
of them is of a store that the table knows nothing of, and which may have messages from any time: it has no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.snapshot import Snapshot
from headwater.pipeline.source.addresses import Addresses
from headwater.store.reader import StoreError

Answers = dict[str, tuple[datetime, int]]
"""Of each store a moment, and the position before which everything lies that arrived before it."""
UNKNOWN: Final = "a store that has not answered yet"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clock:
    """Of a store: what arrived before `moment` is in the table. `lag` is how many messages it has not got yet, if the
    store has answered."""

    store: str
    moment: datetime | None
    lag: int | None


def clocks(
    bronze: Snapshot,
    there: Positions,
    asked: Answers,
    without: Collection[str] = (),
    silent: Collection[str] = (),
) -> list[Clock]:
    """Of each store of which the table has anything, and of those that were `asked`; but not of those left out. `there`
    says how far the table goes, which may be less than bronze does; it is looked at after the stores were asked, of
    which those at the addresses `silent` did not answer."""
    found = []
    for store in sorted({*there, *asked} - set(without)):
        moment, next = asked.get(store, (None, None))
        has = there.get(store, 0)
        if next is None or next - 1 > has:
            moment = bronze.arrival_of(store, has) if has else None
        found.append(Clock(store, moment, None if next is None else max(0, next - 1 - has)))
    if len(silent) > len(({*there, *without}) - asked.keys()):
        found.append(Clock(UNKNOWN, None, None))
    return found


def ask(addresses: Addresses, silent: dict[str, str] | None = None) -> Answers:
    """What the stores that answer say; `silent` gets the addresses of the others, with why. One that has ended need not
    answer: nothing more comes to it. OptionError: there are no addresses yet."""
    found: Answers = {}
    source = addresses.settings
    for url in addresses.now():
        try:
            client = source.client(url, retries=0, timeout=5.0)
            id = client.store_id()
            if source.store in (None, id):
                found[id] = client.clock()
        except (StoreError, ValueError) as error:  # ValueError: that is no address
            log.debug("no clock of the store at %s: %s", url, error)
            ended = addresses.ended_at(url)
            if ended is not None:
                found[ended] = (datetime.now(UTC), addresses.ends[ended] + 1)
            elif silent is not None:
                silent[url] = str(error)
    return found


def slowest(found: Collection[Clock]) -> datetime | None:
    """None: there is no store, or one of which nothing is known yet."""
    moments = [each.moment for each in found]
    known = [each for each in moments if each is not None]
    return min(known) if known and len(known) == len(moments) else None
