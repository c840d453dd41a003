"""Lineage: an event of OpenLineage for each commit of a table, with the positions that it brought.

Theory. A table's commits say what they contain, so lineage is read from them and needs no hook in any step: whoever
follows the logs can tell all of it. After each round the commits behind the last one told are read. Each that changed
rows is one run of the job that makes the table:

    inputs      for bronze, the stores, as datasets `headwater://STORE` with the topic filters that they store by; for
                any other table, those of which it is made (tables.py)
    outputs     the table, with rows, bytes, files, its version and its columns
    positions   facet `headwater_positions` of the output: for each store the positions of this commit, first and last

The run's id is a function of the lake, the table and the version: an event that is told again, by a pipeline that was
killed before it noted that it had told it, is the same run. How far it is, is a file of the lake (`lineage.json`).
Commits that the log has forgotten meanwhile are counted as missed.

Telling waits for nobody: events go through a queue of a stated size to a thread that sends them. While the receiver is
away the oldest are dropped and counted; tables and steps do not wait.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater import __version__
from headwater.metric import counter, gauge
from headwater.objects import Missing
from headwater.pipeline.jobs.status import JOBS
from headwater.pipeline.lake.commits import Commit, commits_behind
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.tables import BRONZE, named

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, RunEvent
    from openlineage.client.facet_v2 import DatasetFacet

PRODUCER: Final = f"urn:headwater:{__version__}"
NAMESPACE: Final = "headwater"
STATE: Final = "lineage.json"
MOST_WAITING: Final = 1_000
"""Commits that wait for the receiver."""
TRIES: Final = 8
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries: three minutes in all."""
FAREWELL: Final = 5.0
"""Seconds that a pipeline which ends waits for events to be sent."""
RUNS: Final = uuid.UUID("6f6d1a52-6f0b-5f7e-9d0e-7a1a5d9b7c11")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LineageSeen:
    sent: int = counter("Commits of which the receiver has taken the events.", name="lineage_commits")
    failures: int = counter("Commits of which the receiver did not take the events.", name="lineage_failed_commits")
    dropped: int = counter("Commits that were not told, as too many waited.", name="lineage_dropped_commits")
    missed: int = counter(
        "Commits without an event, as the table's log had forgotten them.", name="lineage_missed_commits"
    )
    waiting: int = gauge("Commits that wait for the receiver.", name="lineage_waiting_commits")


@dataclass(frozen=True)
class Told:
    """One commit of a table, with what is known around it."""

    lake: str
    """Its id."""
    url: str
    table: str
    commit: Commit
    before: Mapping[str, int]
    """Positions that the table had before, by store."""
    columns: tuple[tuple[str, str], ...]
    filters: tuple[str, ...] = ()


class Follower:
    """Reads what was committed since it was asked last, also by an earlier pipeline. Belongs to one thread."""

    def __init__(self, lake: Lake, filters: tuple[str, ...] = ("#",)) -> None:
        self.lake = lake
        self.missed = 0
        self._filters = filters
        self._known: dict[str, dict[str, Any]] = self._read()
        self._has_news = False
        """There is something to note."""

    def new(self) -> Iterator[Told]:
        """The commits that changed rows, of each table from its first one on. Where the log has forgotten some, it goes
        on behind what is there now."""
        id = self.lake.id() or ""
        for name, snapshot in self.lake.existing().items():
            log = self.lake.reading(named(name))
            state = self._known.setdefault(name, {"version": -1, "positions": {}})
            if state["version"] >= snapshot.version:
                continue
            self._has_news = True
            columns = tuple((each.name, str(each.type)) for each in snapshot.schema)
            filters = self._filters if name == BRONZE.name else ()
            for commit in commits_behind(log, state["version"]):
                before = dict(state["positions"])
                state["version"] = commit.version
                if name in JOBS:
                    state["positions"] |= commit.positions(JOBS[name])
                if commit.changes:
                    yield Told(id, log.place.url, name, commit, before, columns, filters)
            if state["version"] < snapshot.version:
                self.missed += snapshot.version - state["version"]
                state["version"] = snapshot.version
                state["positions"] = snapshot.positions(JOBS[name]) if name in JOBS else {}

    def note(self) -> None:
        """All that was yielded has been told."""
        if self._has_news:
            self.lake.place.put(STATE, json.dumps(self._known).encode())
            self._has_news = False

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(self.lake.place.get(STATE).data)
        except (Missing, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


# ---- events ----------------------------------------------------------------------------------------------------------


def run_id(told: Told) -> str:
    return str(uuid.uuid5(RUNS, f"{told.lake}/{told.table}/{told.commit.version}"))


def ranges_of(told: Told) -> dict[str, tuple[int, int]]:
    """Of each store the first and last position that the commit brought."""
    job = JOBS.get(told.table)
    after = {} if job is None else told.commit.positions(job)
    return {
        store: (told.before.get(store, 0) + 1, last)
        for store, last in sorted(after.items())
        if last > told.before.get(store, 0)
    }


def events_of(told: Told) -> tuple[RunEvent, RunEvent]:
    """As OpenLineage has it: a run starts and completes."""
    from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, output_statistics_output_dataset

    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=told.commit.rows, size=sum(each.size for each in told.commit.added), fileCount=len(told.commit.added)
    )
    is_stream = told.table == BRONZE.name
    kind = job_type_job.JobTypeJobFacet("STREAMING" if is_stream else "BATCH", "HEADWATER", "JOB")
    job = Job(NAMESPACE, f"{told.lake}.{told.table}", {"jobType": kind})
    moment = told.commit.made.isoformat(timespec="milliseconds")
    common: Any = {"eventTime": moment, "run": Run(run_id(told)), "job": job, "producer": PRODUCER}
    output = OutputDataset(*_named(told.url), {"outputStatistics": statistics}, facets=_output_facets(told))
    inputs = _inputs(told)
    return (
        RunEvent(eventType=RunState.START, inputs=inputs, **common),
        RunEvent(eventType=RunState.COMPLETE, inputs=inputs, outputs=[output], **common),
    )


def _inputs(told: Told) -> list[InputDataset]:
    from openlineage.client.event_v2 import InputDataset

    from headwater.pipeline.monitoring.facets import TopicFilters

    if told.table == BRONZE.name:
        wanted = TopicFilters(list(told.filters))
        stores = [(f"headwater://{store}", "messages") for store in ranges_of(told)]
        return [InputDataset(*store, facets={"headwater_topics": wanted}) for store in stores]
    tables = told.url.rpartition("/")[0]
    return [InputDataset(*_named(f"{tables}/{name}")) for name in named(told.table).made_of]


def _output_facets(told: Told) -> dict[str, DatasetFacet]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    from headwater.pipeline.monitoring.facets import Positions, StoreRange

    columns = [schema_dataset.SchemaDatasetFacetFields(name=name, type=type) for name, type in told.columns]
    ranges = [StoreRange(store, first, last) for store, (first, last) in ranges_of(told).items()]
    return {
        "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
        "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(told.commit.version)),
        "headwater_positions": Positions(ranges),
    }


def _named(url: str) -> tuple[str, str]:
    """Namespace and name of a dataset, by OpenLineage's rules: `file` and the path, `s3://bucket` and the key."""
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return "file", rest
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


# ---- sending ---------------------------------------------------------------------------------------------------------


class Sender:
    """Sends events by a thread of its own, in order. `emit` raises if the receiver did not take one: then the same one
    is tried again, `tries` times in all, with pauses that become longer from `pause` seconds on."""

    def __init__(
        self,
        emit: Callable[[RunEvent], object],
        most: int = MOST_WAITING,
        *,
        tries: int = TRIES,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self._emit = emit
        self._tries = tries
        self._pause = pause
        self._waiting: queue.Queue[Told | None] = queue.Queue(most)
        self._sent = self._failures = self._dropped = 0
        self._open = 0
        """Commits that were handed over, and are neither sent, failed nor dropped."""
        self._lock = threading.Lock()
        self._is_away = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-lineage", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """All that was handed over is settled."""
        return self._open == 0

    def send(self, told: Told) -> None:
        self._settled(-1)
        while True:
            try:
                self._waiting.put_nowait(told)
                return
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                except queue.Empty:  # the thread was faster
                    continue
                self._dropped += 1
                self._settled(1)

    def seen(self, missed: int = 0) -> LineageSeen:
        return LineageSeen(self._sent, self._failures, self._dropped, missed, self._waiting.qsize())

    def stop(self, wait: float = FAREWELL) -> None:
        """What waits may still be sent for so many seconds; each is tried once."""
        self._ending.set()
        try:
            self._waiting.put(None, timeout=wait)
        except queue.Full:
            return
        self._thread.join(wait)

    def _settled(self, count: int) -> None:
        with self._lock:
            self._open -= count

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            if self._is_taken(told):
                self._sent += 1
            else:
                self._failures += 1
            self._settled(1)

    def _is_taken(self, told: Told) -> bool:
        for attempt in range(self._tries):
            try:
                for event in events_of(told):
                    self._emit(event)
            except Exception as error:
                if not self._is_away:
                    log.warning("lineage: the receiver does not take events: %s", error)
                self._is_away = True
                if self._ending.wait(min(LONGEST_PAUSE, self._pause * 2**attempt)):
                    return False
            else:
                if self._is_away:
                    log.info("lineage: the receiver takes events again")
                self._is_away = False
                return True
        return False
