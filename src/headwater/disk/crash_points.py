"""Places where a test kills the process, to show that no moment is a bad one for a power cut.

`HEADWATER_CRASH_AT=after-write:3` in the environment sends SIGKILL to this process when the place `after-write` is
reached for the third time. Without it a place costs one comparison, and there are only a few for each commit.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "HEADWATER_CRASH_AT"

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

PIPELINE_POINTS: Final = (
    "pipeline-before-read",  # a range is planned, nothing of it is read
    "pipeline-before-file",  # rows are on their way to an executor that writes
    "pipeline-after-file",  # a file is on disk, and no commit names it
    "pipeline-before-commit",  # all files of a batch are known to the driver
    "pipeline-after-commit",  # the table has them, and Spark was not told
    "pipeline-before-reader",  # Spark is done with a batch, and the store was not told
    "pipeline-after-reader",
)

POINTS: Final = (*BROKER_POINTS, *STORE_POINTS, *PIPELINE_POINTS)


class _Armed:
    def __init__(self, text: str) -> None:
        self.point, _, count = text.partition(":")
        self.left = int(count or 1)
        if self.point and self.point not in POINTS:
            raise ValueError(f"{VARIABLE}: there is no point {self.point!r}; there are {', '.join(POINTS)}")


_armed = _Armed(os.environ.get(VARIABLE, ""))


def crash_point(name: str) -> None:
    """Die here, if this is the place and the time."""
    if _armed.point == name:
        _armed.left -= 1
        if _armed.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
