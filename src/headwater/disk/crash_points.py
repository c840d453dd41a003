"""Places where a test kills the process, to show that no moment is a bad one for a power cut.

`HEADWATER_CRASH_AT=after-write:3` in the environment sends SIGKILL to this process when the place `after-write` is
reached for the third time. Without it a place costs one comparison, and there are only a few for each commit.

A place may say what it is about, such as a table: `pipeline-before-commit/gold:2` is the second commit to that one.

Where many processes of a program come and go, an order is for the first of them that gets there, and is carried out
once: `HEADWATER_CRASH_AT=@FILE` names a file of orders, one in each line, that may change at any time. Orders carried
out are in FILE.done, one in each line, with the id of the process. An order that ends with `~` does not kill: the
process waits there until there is a FILE.go. (SIGSTOP would not do: the kernel ends who is stopped when its parent is
gone.)
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import Final

VARIABLE: Final = "HEADWATER_CRASH_AT"
LOOK: Final = 0.05
"""Seconds between two looks of who waits."""

BROKER_POINTS: Final = (
    "before-write",  # changes are known, nothing of them was handed to the operating system
    "after-write",  # the batch is the operating system's, not yet the disk's
    "after-sync",  # on disk, and nobody was told
    "before-acknowledge",  # the loop knows that it is on disk
    "after-acknowledge",  # acknowledgements were sent
    "in-recovery",  # a start after a crash is cut off itself
    "after-recovery",
)

STORE_POINTS: Final = (
    "store-before-append",  # records are known, nothing of them was handed to the operating system
    "store-after-append",  # they are the operating system's, not yet the disk's
    "store-after-sync",  # on disk, and nobody was told
    "store-in-seal",  # the pages of a block are written, the block is not there yet
    "store-after-seal",
    "store-before-trim",  # what is too old is known, all of it is there
    "store-after-trim",
)

ERASE_POINTS: Final = (
    "store-before-erase",  # a block without some messages is made, and nothing of it is on disk
    "store-after-erase",  # it is the operating system's; what it was may be in files yet
)

EDGE_POINTS: Final = (
    "edge-before-claim",  # a filter is to be this node's, and nothing of that is known anywhere
    "edge-claimed",  # on disk, and nobody was told
    "edge-before-switch",  # a claim is known, and messages still go to the owner before it
    "edge-switched",  # they go to the new owner, and nothing of that is on disk
    "edge-view-taken",  # another node's messages are stored by its new view, and nothing of that is on disk
    "edge-before-end",  # nothing of the filter can come any more, and that is not on disk
)

HAND_OVER_POINTS: Final = (
    "hand-over-frozen",  # the source takes nothing more, and nothing of that is on disk
    "hand-over-before-fence",  # the target has all of it, and the source has the right to go on
    "hand-over-fenced",  # the source has given up its right, and has told nobody
    "hand-over-in-copy",  # some files are at the target, and not all
    "hand-over-copied",  # a round is done
    "hand-over-checked",  # the last copy is whole, and that is not on disk
    "hand-over-ready",  # it is on disk that the target has all of it
    "hand-over-before-adopt",  # the source has said that it is fenced
    "hand-over-adopted",  # the store is the target's, and nobody was told
)

PIPELINE_POINTS: Final = (
    "pipeline-before-read",  # a range is planned, nothing of it is read
    "pipeline-before-file",  # rows are on their way to an executor that writes
    "pipeline-after-file",  # a file is on disk, and no commit names it
    "pipeline-before-commit",  # all files of a batch are known to the driver
    "pipeline-after-commit",  # the table has them, and Spark was not told
    "pipeline-after-names",  # the name of a store is known, and no commit is about it
    "pipeline-after-columns",  # a table has new columns, and no rows that have them
    "pipeline-in-tidy",  # files are replaced by larger ones, and all of them are there
    "pipeline-before-reader",  # Spark is done with a batch, and the store was not told
    "pipeline-after-reader",
)

ICEBERG_POINTS: Final = (
    "iceberg-before-commit",  # a snapshot is ready, and the catalog does not know of it
    "iceberg-after-commit",  # it has it, and nobody was told
)

FORWARD_POINTS: Final = (
    "forward-before-save",  # what is to go, or has arrived, is known here only
    "forward-after-save",
    "forward-before-send",  # packet ids are on disk, and nothing was sent under them
    "forward-after-send",
    "forward-after-answer",  # the target has confirmed messages, and that is not on disk
    "forward-after-release",  # it is, and PUBREL is on its way
)

HISTORY_POINTS: Final = (
    "history-before-put",  # a block is Parquet, and nothing of that is in object storage
    "history-after-put",  # the object is there, and no manifest names it
    "history-before-commit",  # a manifest is to be replaced
    "history-after-commit",  # it is, and the node was not told
    "history-before-delete",  # objects are there that it does not name any more
)

POINTS: Final = (
    *(
        *BROKER_POINTS,
        *STORE_POINTS,
        *ERASE_POINTS,
        *EDGE_POINTS,
        *HAND_OVER_POINTS,
        *PIPELINE_POINTS,
        *ICEBERG_POINTS,
        *FORWARD_POINTS,
        *HISTORY_POINTS,
    ),
)


class _Order:
    """`point[/about][:count][~]`."""

    def __init__(self, text: str) -> None:
        self.is_wait = text.endswith("~")
        self.place, _, count = text.rstrip("~").partition(":")
        self.left = int(count or 1)
        point = self.place.partition("/")[0]
        if point not in POINTS:
            raise ValueError(f"{VARIABLE}: there is no point {point!r}; there are {', '.join(POINTS)}")

    def is_due(self, point: str, about: str) -> bool:
        """Reaching the point counts."""
        if self.place not in (point, f"{point}/{about}"):
            return False
        self.left -= 1
        return self.left == 0

    def __str__(self) -> str:
        return f"{self.place}:{self.left}{'~' if self.is_wait else ''}"


class _Orders:
    """Of a file that many processes read."""

    def __init__(self, path: str) -> None:
        self._path = path

    def wait(self) -> None:
        while not os.path.exists(f"{self._path}.go"):
            time.sleep(LOOK)

    def due(self, point: str, about: str) -> _Order | None:
        """The order that is to be carried out now; then it is no longer in the file."""
        try:
            file = open(self._path, "r+", encoding="utf-8")  # noqa: SIM115
        except FileNotFoundError:
            return None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            orders = [_Order(line) for line in file.read().split()]
            found = [order for order in orders if order.is_due(point, about)]
            file.seek(0)
            file.truncate()
            file.write("".join(f"{order}\n" for order in orders if order.left > 0))
            if not found:
                return None
            with open(f"{self._path}.done", "a", encoding="utf-8") as done:
                done.write(f"{point} {about or '-'} {os.getpid()}\n")
            return found[0]


class _Armed:
    def __init__(self, text: str) -> None:
        self._order = None if text.startswith("@") else _Order(text)
        self._orders = _Orders(text[1:]) if text.startswith("@") else None

    def strike(self, point: str, about: str) -> None:
        if self._orders is None:
            is_due = self._order is not None and self._order.is_due(point, about)
        else:
            order = self._orders.due(point, about)
            if order is not None and order.is_wait:
                self._orders.wait()
                return
            is_due = order is not None
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)


def _armed_by(text: str) -> _Armed | None:
    return _Armed(text) if text else None


_armed = _armed_by(os.environ.get(VARIABLE, ""))


def crash_point(name: str, about: str = "") -> None:
    """Die here, if this is the place and the time."""
    if _armed is not None:
        _armed.strike(name, about)
