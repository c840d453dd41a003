"""A place as a file system of Arrow: for Parquet that is read from it, and datasets."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from headwater.objects.place import Level, Missing, Place, Sink


def filesystem(place: Place) -> fs.FileSystem:
    """Names are those of the place; a folder's are read by Arrow itself."""
    if place.folder is not None:
        return fs.SubTreeFileSystem(str(place.folder), fs.LocalFileSystem())
    return fs.PyFileSystem(_Handler(place))


def source(place: Place, name: str) -> str | pa.NativeFile:
    """One file, for who reads Parquet."""
    return str(place.folder / name) if place.folder is not None else filesystem(place).open_input_file(name)


def output(sink: Sink) -> pa.NativeFile:
    """For who writes Parquet: to close it does not end the object, which is the sink's to do."""
    return pa.PythonFile(_Output(sink), mode="w")


class _Output:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._at = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._at += self._sink.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Parts go when they are full."""

    def close(self) -> None:
        self.closed = True


class _Handler(fs.FileSystemHandler):  # type: ignore[misc] # pyarrow has no types
    """Reading only: what is written goes through the place itself."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other.place.url == self.place.url

    def __hash__(self) -> int:
        return hash(self.place.url)

    def get_type_name(self) -> str:
        return "headwater"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path.strip("/")) for path in paths]

    def _info(self, path: str) -> Any:
        found = self.place.head(path) if path else None
        if found is not None:
            return fs.FileInfo(path, fs.FileType.File, size=found.size, mtime=found.modified)
        is_folder = not path or next(self.place.list(path), None) is not None
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        base = selector.base_dir.strip("/")
        if selector.recursive:
            items, folders = Level(list(self.place.list(base)), [])
        else:
            items, folders = self.place.level(base)
        found = [fs.FileInfo(each.name, fs.FileType.File, size=each.size, mtime=each.modified) for each in items]
        return found + [fs.FileInfo(str(PurePosixPath(each)), fs.FileType.Directory) for each in folders]

    def open_input_file(self, path: str) -> Any:
        try:
            return pa.PythonFile(self.place.open(path), mode="r")
        except Missing as error:
            raise FileNotFoundError(str(error)) from None

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _no(self, *_: object) -> Any:
        raise NotImplementedError("this view of a place is for reading")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _no
    move = copy_file = open_output_stream = open_append_stream = _no
