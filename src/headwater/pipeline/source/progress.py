"""How far behind a stream is, by the progress that Spark reports of it.

Spark asks a source for `metrics` through a Java interface (`ReportsSourceMetrics`) that the classes behind Python data
sources do not have (Spark 4.3), so there are none in `query.lastProgress`. But it has the offsets: where the last batch
ended, and where the stores did. The rest is asked of the stores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headwater.pipeline.source.settings import Settings, read_settings
from headwater.pipeline.source.stores import Offsets, Stores


@dataclass(frozen=True)
class Behind:
    """`messages` of each store that have not been read, and for how many seconds the oldest of them has waited; None:
    its store does not answer."""

    messages: dict[str, int]
    seconds: float | None


def offsets(progress: Any, name: str = "endOffset") -> Offsets:
    """Of our source in a query's progress; `name` is startOffset, endOffset or latestOffset. Empty if there is none."""
    for source in () if progress is None else progress["sources"]:
        found = source[name] if isinstance(source, Mapping) else getattr(source, name)
        given = json.loads(found) if isinstance(found, str) else found
        if isinstance(given, Mapping):
            return {str(store): int(position) for store, position in given.items()}
    return {}


def behind(progress: Any, options: Mapping[str, str]) -> Behind:
    """Of `query.lastProgress`; `options` are those of the source. Raises OptionError."""
    settings = read_settings(options)
    ends = offsets(progress)
    found = Stores(settings).look()
    counts = {store: max(0, now.last - ends.get(store, now.first - 1)) for store, now in found.items()}
    waits = [_waited(settings, now.url, ends.get(id, 0)) for id, now in found.items() if counts[id]]
    return Behind(counts, max(waits, default=0.0) if found.keys() >= ends.keys() else None)


def _waited(settings: Settings, url: str, after: int) -> float:
    """Since the first message behind this position arrived."""
    client = settings.client(url, retries=1, timeout=5.0)
    after = max(after, client.status()["first"] - 1)
    for message in client.messages(after=after, limit=1):
        arrived = datetime.fromisoformat(message["arrival"])
        return max(0.0, (datetime.now(UTC) - arrived).total_seconds())
    return 0.0
