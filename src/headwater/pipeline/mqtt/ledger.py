"""Which rows of a batch the broker has acknowledged, so that a batch that is written again does not send them again.

    folder/<query>/<batch>/<partition>-<attempt>.sent       names of rows, one behind the other, 16 bytes each

A row is named by what it says, and by how many equal ones of its partition came before it: so it is known again even
if the rows come in another order, and a row that says something else is never taken for it. Each attempt of a task has
a file of its own. Nothing is synced: what a power cut takes is sent again. Batches before the last one are removed,
since Spark repeats none but the last.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final, Self

NAME_BYTES: Final = 16


class Ledger:
    """Of one task: `query`, `batch`, `partition` and `attempt` say which. Without a folder it knows nothing."""

    def __init__(self, folder: Path | None, query: str, batch: int, partition: int, attempt: int) -> None:
        self._folder = folder and folder / query / str(batch)
        self._partition = partition
        self._attempt = attempt
        self._file: IO[bytes] | None = None
        self._sent: set[bytes] = set()

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._remove_older()
            for path in self._folder.glob(f"{self._partition}-*.sent"):
                self._sent |= _names(path.read_bytes())
            self._file = (self._folder / f"{self._partition}-{self._attempt}.sent").open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __contains__(self, name: bytes) -> bool:
        return name in self._sent

    def note(self, names: Iterable[bytes]) -> None:
        """The broker has acknowledged these rows."""
        if self._file is not None:
            self._file.write(b"".join(names))

    def _remove_older(self) -> None:
        assert self._folder is not None
        for other in self._folder.parent.iterdir():
            if other.name.isdigit() and int(other.name) < int(self._folder.name) - 1:
                with contextlib.suppress(OSError):  # another task may be doing the same
                    shutil.rmtree(other)


def _names(data: bytes) -> set[bytes]:
    """A name that was cut is none."""
    whole = len(data) - len(data) % NAME_BYTES
    return {data[at : at + NAME_BYTES] for at in range(0, whole, NAME_BYTES)}
