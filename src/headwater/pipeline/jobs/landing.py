"""Where landing begins, and under which name stores know the lake.

Theory. Retention waits for named readers, so two lakes must not share a name: what one has read, the other would lose.
A lake has an id, and its reader's name ends with it. Lakes from before were all known by the bare name; `take_over`
moves each to its own, at what its bronze contains, and removes the bare one unless somebody else is further with it.

A new lake notes in bronze where each store begins before anything is read: so it is known how far the lake is also of
a store that has nothing to give (`starting = "latest"`, or retention has removed everything).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from headwater.objects import Missing
from headwater.pipeline.jobs.bronze import APP
from headwater.pipeline.jobs.settings import Settings
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.sink import FIRST
from headwater.pipeline.source.stores import Stores, beginnings
from headwater.pipeline.tables import BRONZE
from headwater.store.reader import StoreError

FORMER: Final = "former-readers"
"""A file in the lake: stores at which the bare name has not been taken over yet, one in each line."""
log = logging.getLogger(__name__)


def named(lake: Lake, settings: Settings) -> Settings:
    """The settings, with the reader's name that is the lake's own."""
    if lake.id() is None:
        known = lake.log(BRONZE).positions(APP) if lake.exists() else {}
        if known:
            lake.place.put(FORMER, _lines(known))
        lake.make_id()
    return replace(settings, reader=f"{settings.reader}-{lake.id()}")


def take_over(lake: Lake, bare: str, settings: Settings) -> None:
    """Of the stores that answer, where it has not been done yet; `settings` have the new name."""
    try:
        wanted = set(lake.place.get(FORMER).data.decode().split())
    except Missing:
        return
    source = settings.source()
    known = lake.log(BRONZE).positions(APP)
    for id, now in Stores(source).look().items():
        if id not in wanted:
            continue
        client = source.client(now.url, retries=1, timeout=5.0)
        try:
            client.commit(settings.reader, f"{id}:{min(known.get(id, 0), now.last)}")
            former = client.reader(bare)
            if former is not None and former["position"] > known.get(id, 0):
                log.warning(
                    "the reader %s of the store %s is further than this lake: another one uses the name, and it stays. "
                    "When nobody does: headwater store readers --forget %s",
                    *(bare, id, bare),
                )
            elif former is not None:
                client.forget(bare)
            wanted.discard(id)
        except StoreError as error:
            log.warning("the store %s still knows this lake as %s: %s", id, bare, error)
    if wanted:
        lake.place.put(FORMER, _lines(sorted(wanted)))
    else:
        lake.place.delete([FORMER])


def _lines(stores: Iterable[str]) -> bytes:
    return "".join(f"{store}\n" for store in stores).encode()


def begin(lake: Lake, settings: Settings) -> None:
    """Of a new lake, note where the stores begin that answer now. One that does not begins with its first message."""
    bronze = lake.log(BRONZE)
    if bronze.positions(APP) or lake.checkpoint("bronze").exists():
        return
    source = settings.source()
    found = Stores(source).look()
    begins = {id: position for id, position in beginnings(found, source.start, source).items() if id in found}
    if begins:
        bronze.commit([], {f"{FIRST}/{id}": last + 1 for id, last in begins.items()}, job=APP, positions=begins)
