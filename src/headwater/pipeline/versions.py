"""Which Spark the formats need.

Theory. An offset of ours has the last position of every store, also of one that does not answer now. So the next offset
is made from the one before (`latestOffset(start, limit)`), which Spark gives to Python sources from 4.2 on. Spark 4.0
and 4.1 ask `latestOffset()` of a source that may just have been started again: stores that are away would be left out
of the offset, and what they had would be skipped when they are back. They also have no limits for a batch, no
`availableNow` of the source's own, and 4.0 has neither pushed conditions nor a sink of streams that takes Arrow.
"""

from __future__ import annotations

import re
from typing import Final

OLDEST: Final = (4, 2)


class OldSpark(ImportError):
    """The text says why, and what to install."""


def check_version(version: str) -> None:
    """Of PySpark. Raises OldSpark."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        raise OldSpark(
            f"PySpark {version} does not tell Python sources where a stream is (latestOffset has no start before 4.2): "
            "messages of a store that is away for a while would be skipped. Install PySpark 4.2 or newer"
        )
