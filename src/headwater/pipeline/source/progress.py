"""How far behind a stream is, by the progress that Spark reports of it.

Spark asks a source for `metrics` through a Java interface (`ReportsSourceMetrics`) that the classes behind Python data
sources do not have (Spark 4.2 and 4.3), so there are none in `query.lastProgress`. But it has the offsets: where the
last batch ended, and where the stores did. From them `with_metrics` makes the progress that Spark would have made, with
the names of Kafka's source, and `MetricsListener` does so for every query of a session. What is not in the offsets is
asked of the stores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headwater.pipeline.source.settings import Settings, read_settings
from headwater.pipeline.source.stores import Offsets, Stores

BEHIND: Final = "offsetsBehindLatest"
"""Of one store: `offsetsBehindLatest.4f1c0d2ab9e7`."""
SECONDS: Final = "secondsBehindLatest"


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


def metrics(source: Mapping[str, Any]) -> dict[str, str]:
    """Of a source in a query's progress: how many messages its last batch was behind the ends of the stores, as Spark
    has metrics, text by name. Empty if it is no source of ours."""
    ends, latest = (_numbers(source.get(name)) for name in ("endOffset", "latestOffset"))
    if not ends or not latest:
        return {}
    behind = {store: max(0, latest.get(store, end) - end) for store, end in ends.items()}
    return {
        "avgOffsetsBehindLatest": str(sum(behind.values()) / len(behind)),
        "maxOffsetsBehindLatest": str(max(behind.values())),
        "minOffsetsBehindLatest": str(min(behind.values())),
        **{f"{BEHIND}.{store}": str(count) for store, count in behind.items()},
    }


def with_metrics(progress: Any, options: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A query's progress as JSON has it, with the `metrics` of our sources. With the `options` of the source, the
    stores are asked since when its oldest message waits (`secondsBehindLatest`). Raises OptionError."""
    found: dict[str, Any] = json.loads(progress if isinstance(progress, str) else progress.json)
    for source in found["sources"]:
        made = metrics(source)
        if made and options is not None:
            waited = behind(found, options).seconds
            made |= {} if waited is None else {SECONDS: f"{waited:.3f}"}
        source["metrics"] = {**(source.get("metrics") or {}), **made}
    return found


class MetricsListener(StreamingQueryListener):
    """`report` is called with the progress of each batch of each query, `with_metrics`; `options` as there.

    spark.streams.addListener(MetricsListener(lambda progress: …))
    """

    def __init__(self, report: Callable[[dict[str, Any]], None], options: Mapping[str, str] | None = None) -> None:
        self._report = report
        self._options = options

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._report(with_metrics(event.progress, self._options))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """There is nothing to tell."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """There is nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """There is nothing to tell."""


def _numbers(said: Any) -> Offsets:
    """Offsets of ours: a number for each store. Empty if it is something else."""
    given = json.loads(said) if isinstance(said, str) else said
    if not isinstance(given, Mapping) or not all(type(each) is int for each in given.values()):
        return {}
    return {str(store): position for store, position in given.items() if store != "version"}


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
