"""Which objects of object storage hold which positions of a store: its manifest.

Theory. What is in history is what the manifest says, and nothing else: an object is written and looked at first, then a
new manifest names it, then the node may drop its block. Whoever is killed in between leaves an object that nobody
names, which is removed later (`sweep`). A manifest is only replaced if it is still the one that was read; so of two
writers one is told, and reads what the other has done.

    STORE/manifest.json                    the pages and the entries behind them
    STORE/index/SHA.json                   a page: older entries, many in one, so that the manifest stays small
    STORE/messages/FIRST-END-SHA.parquet   the messages with FIRST ≤ position < END

Names of pages and objects end with a hash of what is in them: another content is another object, and writing one again
changes nothing. Needs nothing but the standard library: executors import it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from time import time
from typing import Any, Final, NamedTuple

from headwater.disk.crash_points import crash_point
from headwater.objects import Missing, Place, PlaceError

FORMAT: Final = "headwater-history"
SCHEMA: Final = 1
RECENT: Final = 512
"""Entries of a manifest besides its pages; above, the older half becomes a page."""
CACHED: Final = 8
"""Pages that are kept in memory."""
ORPHAN_AFTER: Final = 86_400.0
"""Seconds after which an object that no manifest names is removed: somebody may be about to name it."""


class Entry(NamedTuple):
    """An object: the messages with `first` ≤ position < `end`, times of measurement from `earliest` to `latest`;
    `newest` is the last arrival. `checksum` is the SHA-256 of its `size` bytes."""

    name: str
    first: int
    end: int
    rows: int
    size: int
    checksum: str
    earliest: int
    latest: int
    newest: int


class Page(NamedTuple):
    """Entries that follow each other, in an object of their own."""

    name: str
    first: int
    end: int
    objects: int
    rows: int
    size: int
    newest: int


class Manifest(NamedTuple):
    """`end` is behind the last position that ever was in history; `etag` is that of its object, None if there is none
    yet."""

    store: str
    version: int = 0
    end: int = 0
    pages: tuple[Page, ...] = ()
    entries: tuple[Entry, ...] = ()
    etag: str | None = None

    @property
    def first(self) -> int:
        return self.pages[0].first if self.pages else self.entries[0].first if self.entries else self.end

    @property
    def objects(self) -> int:
        return sum(page.objects for page in self.pages) + len(self.entries)

    @property
    def rows(self) -> int:
        return sum(page.rows for page in self.pages) + sum(entry.rows for entry in self.entries)

    @property
    def size(self) -> int:
        return sum(page.size for page in self.pages) + sum(entry.size for entry in self.entries)

    def pack(self) -> bytes:
        head = {"format": FORMAT, "schema": SCHEMA, "store": self.store, "version": self.version, "end": self.end}
        return json.dumps({**head, "pages": self.pages, "entries": self.entries}).encode()

    @staticmethod
    def unpack(content: bytes, etag: str) -> Manifest:
        """Raises PlaceError."""
        try:
            found = json.loads(content)
            if found["format"] != FORMAT:
                raise ValueError("not ours")
            if found["schema"] != SCHEMA:
                raise PlaceError(f"the history has schema {found['schema']}, this version of Headwater knows {SCHEMA}")
            pages = tuple(Page(*each) for each in found["pages"])
            return Manifest(found["store"], found["version"], found["end"], pages, _entries(found["entries"]), etag)
        except (ValueError, KeyError, TypeError) as error:
            raise PlaceError(f"a manifest of the history is damaged ({error})") from None


class Conflict(Exception):
    """Somebody else has written a manifest since this one was read."""


class Catalog:
    """The history of a store in a place."""

    def __init__(self, place: Place, store: str) -> None:
        self.place = place
        self.store = store
        self._name = f"{store}/manifest.json"
        self._pages: OrderedDict[str, tuple[Entry, ...]] = OrderedDict()

    # ---- reading -----------------------------------------------------------------------------------------------

    def load(self) -> Manifest:
        """As it is now; an empty one if there is none. Raises PlaceError."""
        try:
            content = self.place.get(self._name)
        except Missing:
            return Manifest(self.store)
        found = Manifest.unpack(content.data, content.item.etag)
        if found.store != self.store:
            raise PlaceError(f"{self.place.url}/{self._name} is of the store {found.store}, not of {self.store}")
        return found

    def entries(self, manifest: Manifest, after: int | None = None, before: int | None = None) -> Iterator[Entry]:
        """Those with a position behind `after` and before `before`, in order. Raises PlaceError; Missing if the page of
        an older manifest is gone."""
        low, high = -1 if after is None else after + 1, before

        def has(each: Entry | Page) -> bool:
            return each.end > low and (high is None or each.first < high)

        for page in filter(has, manifest.pages):
            yield from filter(has, self._entries_of(page))
        yield from filter(has, manifest.entries)

    def _entries_of(self, page: Page) -> tuple[Entry, ...]:
        found = self._pages.get(page.name)
        if found is None:
            found = _entries(json.loads(self.place.get(page.name).data))
            self._pages[page.name] = found
            if len(self._pages) > CACHED:
                self._pages.popitem(last=False)
        return found

    # ---- writing -----------------------------------------------------------------------------------------------

    def add(self, manifest: Manifest, entry: Entry) -> Manifest:
        """The new manifest, which names the object, too. Raises Conflict, PlaceError."""
        entries = (*manifest.entries, entry)
        pages = manifest.pages
        if len(entries) > RECENT:
            old, entries = entries[: RECENT // 2], entries[RECENT // 2 :]
            pages = (*pages, self._page(old))
        return self._commit(manifest._replace(pages=pages, entries=entries, end=entry.end))

    def drop_before(self, manifest: Manifest, newest: int) -> Manifest:
        """The new manifest without the first objects, all of whose messages arrived before `newest`; the same one if
        there is nothing to drop. The objects are deleted then; one that is left by a kill goes with `sweep`."""
        gone: list[str] = []
        pages, entries = list(manifest.pages), list(manifest.entries)
        while pages and pages[0].newest < newest:
            gone += [pages[0].name, *(entry.name for entry in self._entries_of(pages.pop(0)))]
        if pages:
            old = self._entries_of(pages[0])
            left = [entry for entry in old if entry.newest >= newest]
            if len(left) < len(old):
                gone += [pages[0].name, *(entry.name for entry in old if entry.newest < newest)]
                pages[0] = self._page(left)
        while not pages and entries and entries[0].newest < newest:
            gone.append(entries.pop(0).name)
        if not gone:
            return manifest
        changed = self._commit(manifest._replace(pages=tuple(pages), entries=tuple(entries)))
        crash_point("history-before-delete")
        self.place.delete(gone)
        return changed

    def replace(self, manifest: Manifest, old: Entry, new: Entry) -> Manifest:
        """The new manifest with another object for the same positions; the old one is deleted. Raises Conflict,
        PlaceError."""
        pages = [
            self._page(_replaced(self._entries_of(page), old, new)) if page.first <= old.first < page.end else page
            for page in manifest.pages
        ]
        entries = _replaced(manifest.entries, old, new)
        changed = self._commit(manifest._replace(pages=tuple(pages), entries=entries))
        crash_point("history-before-delete")
        gone = {page.name for page in manifest.pages} - {page.name for page in pages}
        self.place.delete([*gone, old.name])
        return changed

    def sweep(self, manifest: Manifest, older: float = ORPHAN_AFTER) -> int:
        """Remove objects and pages that it does not name; how many. It has just been read or written."""
        named = {page.name for page in manifest.pages} | {entry.name for entry in self.entries(manifest)}
        before = time() - older
        found = [
            each.name
            for kind in ("messages", "index")
            for each in self.place.list(f"{self.store}/{kind}")
            if each.name not in named and each.modified <= before
        ]
        if found and self.load().etag != manifest.etag:
            return 0  # somebody else writes, too: next time
        self.place.delete(found)
        return len(found)

    def object_name(self, first: int, end: int, checksum: str) -> str:
        return f"{self.store}/messages/{first:020d}-{end:020d}-{checksum[:16]}.parquet"

    def _page(self, entries: Sequence[Entry]) -> Page:
        content = json.dumps(entries).encode()
        name = f"{self.store}/index/{sha256(content).hexdigest()[:32]}.json"
        self.place.put(name, content)
        self._pages[name] = tuple(entries)
        rows, size = sum(entry.rows for entry in entries), sum(entry.size for entry in entries)
        newest = max(entry.newest for entry in entries)
        return Page(name, entries[0].first, entries[-1].end, len(entries), rows, size, newest)

    def _commit(self, manifest: Manifest) -> Manifest:
        changed = manifest._replace(version=manifest.version + 1)
        content = changed.pack()
        crash_point("history-before-commit")
        if manifest.etag is None:
            etag = self.place.put_if_absent(self._name, content)
        else:
            etag = self.place.put_if_match(self._name, content, manifest.etag)
        if etag is None:
            raise Conflict(f"{self.place.url}/{self._name} was written by somebody else")
        crash_point("history-after-commit")
        return changed._replace(etag=etag)


def _entries(rows: Sequence[Any]) -> tuple[Entry, ...]:
    return tuple(Entry(*row) for row in rows)


def _replaced(entries: Sequence[Entry], old: Entry, new: Entry) -> tuple[Entry, ...]:
    return tuple(new if entry == old else entry for entry in entries)
