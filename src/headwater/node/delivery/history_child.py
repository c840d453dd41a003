"""The process that brings sealed blocks to object storage: of the lowest priority, and without the node's lock.

It is given its settings as a line of JSON, credentials with them, so that they stand in no list of processes; it
answers with a line after each step. It ends when the node does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from headwater.disk.errors import StorageError
from headwater.objects import PlaceError, open_place
from headwater.store.history.manifest import Catalog, Conflict
from headwater.store.history.mover import Mover
from headwater.store.history.sealed import SealedBlocks
from headwater.store.history.writing import Unequal

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds until object storage that is away is tried again."""
SHORTEST_LOOK: Final = 0.2
LONGEST_LOOK: Final = 60.0
"""Seconds between two looks for blocks."""
NICE: Final = 19


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's are for the node
    with contextlib.suppress(OSError, AttributeError):  # the node's policy is not ours
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(NICE)
    settings = json.loads(sys.stdin.readline())
    following = _Following(settings["next"])
    try:
        _move(settings, following)
    except (StorageError, PlaceError, Unequal) as error:
        _tell(failure=str(error), for_good=True)
        sys.exit(1)


class _Following(threading.Thread):
    """What the node says: how far its store goes. When it says nothing more, it has ended, and so does this process."""

    def __init__(self, next: int) -> None:
        super().__init__(name="headwater-node", daemon=True)
        self.next = next
        self.start()

    def run(self) -> None:
        for line in sys.stdin:
            self.next = json.loads(line)["next"]
        os._exit(0)


def _move(settings: dict[str, Any], following: _Following) -> None:
    folder = Path(settings["folder"])
    catalog = Catalog(open_place(settings["url"], settings["options"]), settings["store"])
    blocks = SealedBlocks(folder / "db", folder / "history-follower")
    mover = Mover(catalog, blocks, settings["after"], settings["keep"])
    look = min(LONGEST_LOOK, max(SHORTEST_LOOK, settings["after"] / 4e6))
    pause = FIRST_PAUSE
    while True:
        try:
            for step in mover.run(time.time_ns() // 1000, following.next):
                _tell(**step._asdict())
            pause = FIRST_PAUSE
            time.sleep(look)
        except Conflict:
            time.sleep(SHORTEST_LOOK)  # somebody has removed messages from the history: it is read again
        except PlaceError as error:
            _tell(failure=str(error), for_good=False)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _tell(**said: Any) -> None:
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()
