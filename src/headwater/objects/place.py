"""What a place of objects promises, whatever is behind it: the contract of `tests/contract/test_places.py`.

Theory. An object appears whole or not at all, and who writes may say under which condition: if nothing has its name
(`put_if_absent`), or if it is still what was read (`put_if_match`). Of many that try, one gets it; that is all that
leases, logs and records need of a store.

An answer may be lost on its way. A put that is sent again then finds what it wrote itself, and would be refused by its
own object. So a refused put looks at what is there: if that is byte for byte what was to be put, it was put. Who has to
know whether it was *him* puts something that nobody else would write.

An etag stands for the content, on some stores only for that: two objects with the same bytes may have the same one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

PART: int = 8 << 20
"""Bytes of one part of a large object; S3 takes 5 MiB at least, and 10,000 parts."""


MOST_CHANGES: int = 100
"""Tries to change an object that others change as well."""


class PlaceError(Exception):
    """A place cannot be used, or did not do what it was asked for; the text says why, and has no secrets."""


class Missing(PlaceError):
    """There is no object of that name, or no such bucket."""


class Denied(PlaceError):
    """The store does not know who asks, or does not allow it."""


@dataclass(frozen=True)
class Item:
    """Of an object. `modified` is in seconds since 1970, by the store's clock."""

    name: str
    size: int
    modified: float
    etag: str


class Content(NamedTuple):
    data: bytes
    item: Item


class Level(NamedTuple):
    """Of one folder: the objects directly in it, and the names of the folders below it."""

    items: list[Item]
    folders: list[str]


class Sink(Protocol):
    """An object that is being written. It appears when the context is left, and does not if that is by an exception."""

    def write(self, data: bytes, /) -> int: ...

    def __enter__(self) -> Sink: ...

    def __exit__(self, *error: object) -> None: ...


class Place(ABC):
    """Objects below a URL. Names are relative, with slashes, such as `tables/gold/part-1.parquet`. It may be pickled
    and used by any thread; the options that it was made with go along."""

    url: str
    """Without a slash at the end."""

    @property
    def folder(self) -> Path | None:
        """Of this machine; None: it is elsewhere."""
        return None

    @property
    def name(self) -> str:
        """The last part of its URL."""
        return self.url.rpartition("/")[2]

    @property
    def where(self) -> str:
        """The folder or the URL, for people and for other libraries."""
        return self.url if self.folder is None else str(self.folder)

    @property
    def options(self) -> Mapping[str, str]:
        """With which it was opened: as `storage_options` of deltalake. They may be secret."""
        return {}

    @abstractmethod
    def below(self, folder: str) -> Place:
        """The part of it that is in a folder."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> str:
        """Its new etag. What was there is replaced."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> str | None:
        """Its etag; None: there is something else of that name."""

    @abstractmethod
    def put_if_match(self, name: str, data: bytes, etag: str) -> str | None:
        """Its new etag; None: it is not any more what has that etag."""

    @abstractmethod
    def put_file(self, name: str, file: Path) -> str:
        """A file of this machine, however large, in parts. What was there is replaced."""

    @abstractmethod
    def sink(self, name: str) -> Sink:
        """For an object of any size, which is written as it is made."""

    @abstractmethod
    def get(self, name: str) -> Content:
        """Whole. Raises Missing."""

    @abstractmethod
    def read(self, name: str, start: int, length: int) -> bytes:
        """A range, cut where the object ends. Raises Missing."""

    @abstractmethod
    def open(self, name: str, size: int | None = None) -> BinaryIO:
        """To read in and to seek in; `size` spares a question if it is known. Raises Missing, now or when it is
        read."""

    @abstractmethod
    def head(self, name: str) -> Item | None:
        """None: there is no object of that name."""

    @abstractmethod
    def list(self, folder: str = "", after: str | None = None) -> Iterator[Item]:
        """All that is in a folder and below it, in the order of their names; `after` is the full name of one that may
        or may not be there. The folder is whole parts of names: `a/b` has not `a/bc`."""

    @abstractmethod
    def level(self, folder: str = "") -> Level:
        """One folder, without what is below it."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Those that are there."""

    def change(self, name: str, changed: Callable[[bytes], bytes]) -> None:
        """Of what is there, or of nothing, make something else; what others put meanwhile is not lost. `changed` may be
        called more than once."""
        for _ in range(MOST_CHANGES):
            try:
                there = self.get(name)
            except Missing:
                done = self.put_if_absent(name, changed(b""))
            else:
                done = self.put_if_match(name, changed(there.data), there.item.etag)
            if done is not None:
                return
        raise PlaceError(f"{self.url}: {name} is changed by others all the time")

    def clear(self, folder: str = "") -> None:
        """Delete all that is in a folder and below it."""
        self.delete(each.name for each in self.list(folder))

    def check_conditions(self, name: str) -> None:
        """Put an object of this name, and others under conditions that do not hold: some stores take no notice of them.
        Raises PlaceError if this one does not."""
        etag = self.put(name, b"one")
        try:
            kept = self.put_if_absent(name, b"other") is None and self.put_if_match(name, b"other", f"{etag}-") is None
            if not kept or self.get(name).data != b"one":
                raise PlaceError(
                    f"{self.where}: the store puts an object also if the condition does not hold (If-None-Match, "
                    "If-Match), so two who write would replace what the other wrote"
                )
        finally:
            self.delete([name])

    def is_empty(self) -> bool:
        return next(self.list(), None) is None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def checked(name: str) -> str:
    """A name that is one on every store. Raises PlaceError."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(ord(each) < 32 or each == "\\" for each in name):
        raise PlaceError(f"{name!r} is no name of an object: it needs parts between slashes, none of them .. or empty")
    return name
