"""A folder of this machine, or one that machines share, as a place.

An object is a file that is written under another name, brought to disk and renamed: readers see the old or the new one,
and a power cut leaves one of them. Two that put under a condition are kept apart by a lock on the object's folder,
which the kernel opens again when a process dies. Names that begin with `.put-` are of objects that are not there yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from headwater.objects.place import PART, Content, Item, Level, Missing, Place, PlaceError, Sink, checked

UNBORN: Final = ".put-"


class Folder(Place):
    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()
        self.url = self._folder.as_uri()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def name(self) -> str:
        return self._folder.name

    def below(self, folder: str) -> Folder:
        return Folder(self._folder / checked(folder))

    def put(self, name: str, data: bytes) -> str:
        with self._new(name) as (new, path), _alone(path.parent):
            _write(new, data)
            _replace(new, path)
            return _tag(path)

    def put_if_absent(self, name: str, data: bytes) -> str | None:
        with self._new(name) as (new, path), _alone(path.parent):
            _write(new, data)
            try:
                os.link(new, path)
            except FileExistsError:
                return _tag(path) if path.read_bytes() == data else None
            return _tag(path)

    def put_if_match(self, name: str, data: bytes, etag: str) -> str | None:
        with self._new(name) as (new, path), _alone(path.parent):
            if not path.is_file() or _tag(path) != etag:
                return None
            _write(new, data)
            new.replace(path)
            return _tag(path)

    def put_file(self, name: str, file: Path) -> str:
        with file.open("rb") as source, self.sink(name) as sink:
            while data := source.read(PART):
                sink.write(data)
        return _tag(self._path(name))

    def sink(self, name: str) -> Sink:
        return _FileSink(self._path(name))

    def get(self, name: str) -> Content:
        with _found(name), self._path(name).open("rb") as file:
            return Content(file.read(), _item(name, os.fstat(file.fileno())))

    def read(self, name: str, start: int, length: int) -> bytes:
        with _found(name), self._path(name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def open(self, name: str, size: int | None = None) -> BinaryIO:
        with _found(name):
            return self._path(name).open("rb")

    def head(self, name: str) -> Item | None:
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_file():
                return _item(name, path.stat())
        return None

    def list(self, folder: str = "", after: str | None = None) -> Iterator[Item]:
        home = self._path(folder) if folder else self._folder
        names = []
        for at, _, files in os.walk(home):
            within = Path(at).relative_to(self._folder).as_posix()
            prefix = "" if within == "." else f"{within}/"
            names += [prefix + each for each in files if not each.startswith(UNBORN)]
        for name in sorted(names, key=str.encode):
            if after is None or name.encode() > after.encode():
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    yield _item(name, (self._folder / name).stat())

    def level(self, folder: str = "") -> Level:
        found = Level([], [])
        prefix = f"{folder}/" if folder else ""
        try:
            entries = sorted(os.scandir(self._path(folder) if folder else self._folder), key=lambda each: each.name)
        except (FileNotFoundError, NotADirectoryError):
            return found
        for each in entries:
            with contextlib.suppress(FileNotFoundError):
                if each.is_dir():
                    found.folders.append(prefix + each.name)
                elif not each.name.startswith(UNBORN):
                    found.items.append(_item(prefix + each.name, each.stat()))
        return found

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._path(name).unlink()

    def clear(self, folder: str = "") -> None:
        shutil.rmtree(self._path(folder) if folder else self._folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self._folder / checked(name)

    @contextlib.contextmanager
    def _new(self, name: str) -> Iterator[tuple[Path, Path]]:
        """Where it is written, and where it is to be."""
        path = self._path(name)
        new = _unborn(path)
        try:
            yield new, path
        finally:
            new.unlink(missing_ok=True)


class _FileSink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = _unborn(path)
        self._file = self._new.open("xb")

    def write(self, data: bytes, /) -> int:
        return self._file.write(data)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with self._file:
                if error and error[0] is not None:
                    return
                self._file.flush()
                os.fsync(self._file.fileno())
            with _alone(self._path.parent):
                _replace(self._new, self._path)
        finally:
            self._new.unlink(missing_ok=True)


def _unborn(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise PlaceError(f"{path.parent} is a file, and was to be a folder") from None
    return path.with_name(f"{UNBORN}{uuid.uuid4().hex}")


def _replace(new: Path, path: Path) -> None:
    try:
        new.replace(path)
    except IsADirectoryError:
        raise PlaceError(f"{path} is a folder, and was to be a file") from None


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other put into this folder, of this process or another, meanwhile; its names are on disk afterwards."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _found(name: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise Missing(f"there is no {name}") from None
    except PermissionError as error:
        raise PlaceError(f"cannot read {name}: {error.strerror}") from None


def _item(name: str, found: os.stat_result) -> Item:
    return Item(name, found.st_size, found.st_mtime_ns / 1e9, _tag_of(found))


def _tag(path: Path) -> str:
    return _tag_of(path.stat())


def _tag_of(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
