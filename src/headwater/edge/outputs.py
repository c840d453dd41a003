"""Where a mirror writes: a file, a folder of files, or a function.

Theory. Each message is to be there exactly once, whatever ends the process. A file grows, is brought to disk, and then
a small file beside it is replaced, which says up to which position and to which size the first one is right. After a
crash, what is behind that size is cut off, and the mirror goes on behind that position: both were said of the same
messages, so nothing is missing and nothing is there twice. A folder is the same with many files, of which all but the
last are never touched again. A file is named by
its first position, or, if that of another store is lower than the last file's name, by the number behind that.

    FILE  FILE.state                                  a file
    FOLDER/00000000000000000001.ndjson … FOLDER/state a folder; names are the first positions in the files
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from headwater.edge import state as states
from headwater.edge.copies import Copy
from headwater.edge.rendering import FORMATS, HEADS
from headwater.edge.state import OutputError, SavedState, State

PART: Final = 64 << 20
"""Bytes after which a folder gets another file."""
LOCK: Final = "lock"
OURS: Final = (LOCK, "state.new")
"""What a folder may hold in which a mirror had only just begun."""


class Output:
    """`resume` once, then `write` and `commit` in turn, then `close`. Raises OSError and OutputError."""

    def resume(self) -> State | None:
        """Where the last one ended; None if there was none."""
        raise NotImplementedError

    def write(self, copies: Sequence[Copy]) -> None:
        """In the order of positions; at least one."""
        raise NotImplementedError

    def commit(self, state: State) -> None:
        """What was written is there for good, and `state` is where to go on."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class FunctionOutput(Output):
    """Calls a function with some messages at a time. Whoever wants to go on after a restart keeps `state`."""

    def __init__(self, function: Callable[[Sequence[Copy]], None], state: State | None = None) -> None:
        self._function = function
        self.state = state

    def resume(self) -> State | None:
        return self.state

    def write(self, copies: Sequence[Copy]) -> None:
        self._function(copies)

    def commit(self, state: State) -> None:
        self.state = state

    def close(self) -> None:
        pass


class FileOutput(Output):
    """One file; `format` is one of FORMATS."""

    def __init__(self, path: Path, format: str = "ndjson") -> None:
        self._path = path
        self._state = path.with_name(f"{path.name}.state")
        self._format = format
        self._part: _Part | None = None

    def resume(self) -> State | None:
        is_ours = self._state.exists()
        if not is_ours and self._path.exists() and self._path.stat().st_size:
            raise OutputError(f"{self._path} exists and no mirror wrote it; name another file")
        part = self._part = _Part(self._path, self._format)
        kept = states.read(self._state)  # only now that nobody else writes it
        if kept is None:
            states.begin(self._state)
            part.start()
            return None
        part.go_on(kept.size)
        return kept.state

    def write(self, copies: Sequence[Copy]) -> None:
        assert self._part is not None
        self._part.write(copies)

    def commit(self, state: State) -> None:
        assert self._part is not None
        states.write(self._state, SavedState(state, self._path.name, self._part.synced()))

    def close(self) -> None:
        if self._part is not None:
            self._part.close()


class FolderOutput(Output):
    """Files of about `most` bytes in a folder."""

    def __init__(self, folder: Path, format: str = "ndjson", most: int = PART) -> None:
        self._folder = folder
        self._state = folder / "state"
        self._format = format
        self._most = most
        self._lock: BinaryIO | None = None
        self._part: _Part | None = None

    def resume(self) -> State | None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._state.exists() and any(path.name not in OURS for path in self._folder.iterdir()):
            raise OutputError(f"{self._folder} is not empty and no mirror wrote it; name another folder")
        self._lock = _locked(self._folder / LOCK)
        if not self._state.exists():
            states.begin(self._state)
        kept = states.read(self._state)
        last = kept.file if kept is not None else ""
        for path in self._folder.glob(f"*.{self._format}"):
            if path.name > last:
                path.unlink()
        if kept is not None and last:
            self._part = _Part(self._folder / last, self._format)
            self._part.go_on(kept.size)
        return None if kept is None else kept.state

    def write(self, copies: Sequence[Copy]) -> None:
        if self._part is None or self._part.size >= self._most:
            self._finish()
            self._part = _Part(self._folder / f"{self._number(copies[0].position):020d}.{self._format}", self._format)
            self._part.start()
        self._part.write(copies)

    def _number(self, position: int) -> int:
        """Of a new file: higher than all before, also if another store's positions are lower."""
        last = -1 if self._part is None else int(self._part.path.stem)
        return max(position, last + 1)

    def _finish(self) -> None:
        if self._part is not None:
            self._part.synced()
            self._part.close()

    def commit(self, state: State) -> None:
        part = self._part
        kept = SavedState(state, "", 0) if part is None else SavedState(state, part.path.name, part.synced())
        states.write(self._state, kept)

    def close(self) -> None:
        if self._part is not None:
            self._part.close()
        if self._lock is not None:
            self._lock.close()


class _Part:
    """A file that this process alone writes."""

    def __init__(self, path: Path, format: str) -> None:
        self.path = path
        self._render = FORMATS[format]
        self._head = HEADS[format]
        self._file = _locked(path)
        self.size = 0

    def start(self) -> None:
        self._file.truncate(0)
        self._file.write(self._head)
        self.size = len(self._head)

    def go_on(self, size: int) -> None:
        """Behind so many bytes, which are right."""
        there = self._file.seek(0, os.SEEK_END)
        if there < size:
            raise OutputError(f"{self.path} has {there} bytes, not {size} as it had; move it away with its state")
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size

    def write(self, copies: Sequence[Copy]) -> None:
        data = self._render(copies)
        self._file.write(data)
        self.size += len(data)

    def synced(self) -> int:
        """All of it is on disk; its size."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.size

    def close(self) -> None:
        self._file.close()


def _locked(path: Path) -> BinaryIO:
    """Open for reading and writing, made if need be, for this process alone."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OutputError(f"{path} is written by another mirror that runs; name another output") from None
    return file
