"""A bucket or container of a store, as a place: S3 and what speaks it, Azure, Google, and the memory of this process.

What is behind it is obstore, Python's door to the library that deltalake reaches stores by: the same options, and puts
under a condition where the store has them (`If-None-Match`, `If-Match`; generations on Google).
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from headwater.objects.place import PART, Content, Denied, Item, Level, Missing, Place, PlaceError, Sink, checked
from headwater.objects.settings import Reach, scheme_of, without_secrets

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_memories: Final[dict[str, ObjectStore]] = {}
"""Of `memory://NAME`, by name: the same one for all of this process."""


class Remote(Place):
    """Raises PlaceError if the URL or an option is none; nothing is asked of the store yet."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self._scheme = scheme_of(url) or ""
        self.url = re.sub("^s3a:", "s3:", url.rstrip("/"))
        self._reach = Reach(self._scheme, options)
        self._prefix = ""
        self._store = self._opened()

    def _opened(self) -> ObjectStore:
        try:
            from obstore.store import MemoryStore, from_url
        except ImportError:
            raise PlaceError(f"{self._scheme}:// needs obstore: pip install 'headwater[objects]'") from None
        if self._scheme == "memory":
            name, _, self._prefix = self.url.removeprefix("memory://").partition("/")
            self._prefix += "/" if self._prefix else ""
            return _memories.setdefault(name, MemoryStore())
        retries: Any = {
            "max_retries": self._reach.most_retries,
            "retry_timeout": timedelta(seconds=self._reach.retry_seconds),
        }
        try:
            return from_url(  # type: ignore[no-any-return, call-overload]
                self.url, config=self._reach.store, client_options=self._reach.client, retry_config=retries
            )
        except Exception as error:
            raise PlaceError(f"{self.url}: {without_secrets(str(error), self._reach)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Remote, (self.url, dict(self._reach.given))

    @property
    def options(self) -> Mapping[str, str]:
        return self._reach.for_delta()

    def below(self, folder: str) -> Remote:
        return Remote(f"{self.url}/{checked(folder)}", self._reach.given)

    # ---- writing -----------------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> str:
        return self._put(name, data, "overwrite")

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        try:
            return self._put(name, data, "create")
        except _Refused:
            return self._already(name, data)

    def put_if_match(self, name: str, data: bytes, etag: str) -> str | None:
        try:
            return self._put(name, data, {"e_tag": etag})
        except _Refused:
            return self._already(name, data)

    def _already(self, name: str, data: bytes) -> str | None:
        """The etag of what is there, if a put whose answer was lost has put it."""
        try:
            there = self.get(name)
        except Missing:
            return None
        return there.item.etag if there.data == data else None

    def _put(self, name: str, data: bytes, mode: Any) -> str:
        import obstore

        with self._asking(name):
            done = obstore.put(self._store, self._key(name), data, mode=mode, use_multipart=False)
            return done["e_tag"] or ""

    def put_file(self, name: str, file: Path) -> str:
        import obstore

        with self._asking(name):
            done = obstore.put(self._store, self._key(name), file, chunk_size=PART, max_concurrency=4)
            return done["e_tag"] or ""

    def sink(self, name: str) -> Sink:
        import obstore

        with self._asking(name):
            return _RemoteSink(self, name, obstore.open_writer(self._store, self._key(name), buffer_size=PART))

    def delete(self, names: Iterable[str]) -> None:
        import obstore

        keys = [self._key(name) for name in names]
        if keys:
            with self._asking(""), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, keys)

    # ---- reading -----------------------------------------------------------------------------------------------

    def get(self, name: str) -> Content:
        import obstore

        with self._asking(name):
            found = obstore.get(self._store, self._key(name))
            return Content(bytes(found.bytes()), self._item(found.meta))

    def read(self, name: str, start: int, length: int) -> bytes:
        import obstore

        if length <= 0:
            return b""
        try:
            with self._asking(name):
                return bytes(obstore.get_range(self._store, self._key(name), start=start, length=length))
        except Missing:
            raise
        except PlaceError:
            found = self.head(name)
            if found is not None and start >= found.size:  # stores refuse what is all behind the end
                return b""
            raise

    def open(self, name: str, size: int | None = None) -> BinaryIO:
        if size is None:
            found = self.head(name)
            if found is None:
                raise Missing(f"{self.url}: there is no {name}")
            size = found.size
        return cast(BinaryIO, RangeReader(self, name, size))

    def head(self, name: str) -> Item | None:
        import obstore

        try:
            with self._asking(name):
                return self._item(obstore.head(self._store, self._key(name)))
        except Missing:
            return None

    def list(self, folder: str = "", after: str | None = None) -> Iterator[Item]:
        import obstore

        with self._asking(folder):
            prefix = self._key(folder) if folder else self._prefix
            offset = None if after is None else self._prefix + after
            for each in obstore.list(self._store, prefix or None, offset=offset):
                yield from map(self._item, each)

    def level(self, folder: str = "") -> Level:
        import obstore

        with self._asking(folder):
            prefix = self._key(folder) if folder else self._prefix
            found = obstore.list_with_delimiter(self._store, prefix or None)
            folders = [each.removeprefix(self._prefix).rstrip("/") for each in found["common_prefixes"]]
            return Level([self._item(each) for each in found["objects"]], folders)

    # ---- what the library says ---------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return self._prefix + checked(name)

    def _item(self, meta: Any) -> Item:
        name = str(meta["path"]).removeprefix(self._prefix)
        return Item(name, meta["size"], meta["last_modified"].timestamp(), meta["e_tag"] or meta["version"] or "")

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise Missing(f"{self.url}: there is no such bucket") from None
            raise Missing(f"{self.url}: there is no {name}") from None
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise _Refused(f"{self.url}: {name} is not as it was to be") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            raise Denied(f"{self.url}: {without_secrets(str(error), self._reach)}") from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            if "NoSuchBucket" in str(error):
                raise Missing(f"{self.url}: there is no such bucket") from None
            raise PlaceError(f"{self.url}: {without_secrets(str(error), self._reach)}") from None


class _Refused(PlaceError):
    """A condition did not hold."""


class _RemoteSink:
    def __init__(self, place: Remote, name: str, writer: Any) -> None:
        self._place = place
        self._name = name
        self._writer = writer

    def write(self, data: bytes, /) -> int:
        with self._place._asking(self._name):
            return int(self._writer.write(data))

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: object) -> None:
        writer, self._writer = self._writer, None
        if error and error[0] is not None:
            return  # not closed, it does not appear; the store forgets parts by its own rules
        with self._place._asking(self._name):
            writer.close()


class RangeReader(io.RawIOBase):
    """An object as a file to read and seek in: each read is one request for just that range."""

    def __init__(self, place: Place, name: str, size: int) -> None:
        self._place = place
        self._name = name
        self._size = size
        self._at = 0
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        with self._lock:
            left = max(0, self._size - self._at)
            wanted = left if size is None or size < 0 else min(size, left)
            data = self._place.read(self._name, self._at, wanted) if wanted else b""
            self._at += len(data)
            return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
