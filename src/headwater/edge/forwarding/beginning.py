"""Where a forward begins: what an earlier process has left, made to fit what is wished now and what there is."""

from __future__ import annotations

import logging
from typing import Final

from headwater.edge.forwarding.progress import Progress, ProgressFile
from headwater.edge.forwarding.ranges import Ranges
from headwater.edge.forwarding.source import Source
from headwater.edge.forwarding.wishes import Wishes

log: Final = logging.getLogger("headwater.forward")


def begin(name: str, file: ProgressFile, source: Source, wishes: Wishes, target: str) -> Progress:
    """Of the forward of this name, to this target. Raises StorageError."""
    progress = file.load()
    classes = len(wishes.priorities) + 1
    if progress is not None and progress.store != source.id:
        log.warning("forward %r: the store is another one (%s); it begins anew", name, source.id)
        progress = None
    if progress is None:
        known = source.committed()
        first = source.first if wishes.start == "first" else source.next
        progress = Progress(source.id, first if known is None else known + 1, [Ranges() for _ in range(classes)])
    elif progress.live > source.next:
        log.error(
            "forward %r: the store ends at %d, and %d was forwarded: it has gone back, perhaps to a backup; what comes "
            "now is forwarded",
            *(name, source.next - 1, progress.live - 1),
        )
        progress.cut_off(source.next)
    progress.wished([list(wishes.filters), list(wishes.priorities)], classes)
    progress.meant_for(target)
    return progress
