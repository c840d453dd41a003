"""A pipeline that follows the edge while its topics move: given one address, it finds the stores of all nodes.

It runs in a process of its own over the whole episode (pipeline_chaos/driver.py), with batches of a fraction of a
second, and is not killed itself: `pipeline-chaos` does that. In the end it is drained, and its tables are examined as
there: bronze is exactly what the stores have, each message once, and each table what a recomputation makes of the one
before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headwater_lab.pipeline_chaos.lives import Life, Stuck, kill
from headwater_lab.pipeline_chaos.orders import Orders
from headwater_lab.pipeline_chaos.storage import FOLDER, Storage

MASTER: Final = "local[2]"
HONEST: Final = "honest"
DRAINED_LIMIT: Final = 600.0
LISTEN: Final = 0.5


class Follower:
    def __init__(self, folder: Path, urls: Sequence[str]) -> None:
        """It is given the first of them; in the end all are asked for what they have."""
        self._log = folder / "driver.log"
        self._life = Life(folder, Storage(FOLDER, folder), urls[:1], MASTER, HONEST, Orders(folder), examined=urls)
        self.rows = 0
        """Of bronze, in the end."""

    def tend(self) -> None:
        """Hear what it tells, so that it need not wait. Raises Stuck."""
        self._life.listen(0.0)

    @property
    def rounds(self) -> int:
        return self._life.rounds

    @property
    def failures(self) -> int:
        """Times that the pipeline failed and was started again."""
        return len(self._life.failures)

    def finish(self) -> Iterator[str]:
        """What is wrong with the tables, all stores being served and quiet."""
        self._life.drain()
        deadline = time.monotonic() + DRAINED_LIMIT
        try:
            while (found := self._life.last_words()) is None:
                self._life.listen(LISTEN)
                if self._life.is_over() or time.monotonic() > deadline:
                    break
            found = self._life.last_words()
        except Stuck as error:
            yield f"stuck: {error}"
            return
        if found is None:
            yield f"stuck: it ended with {self._life.code}; {self._log.read_text(errors='replace')[-2000:]}"
            return
        self.rows = found["rows"].get("bronze", 0)
        yield from found["wrong"]

    def close(self) -> None:
        kill(*self._life.end())
