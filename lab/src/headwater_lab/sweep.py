"""A pure function over a grid of parameters: in this process, or as a Spark job over the same points.

Points travel as pickles, and their results come back in the order of the grid. A result depends on nothing but its
point, so it is the same to the bit wherever it is computed, and Spark may compute one again if a machine is lost.
Neighbours in a grid take about equally long, so points are dealt to Spark's tasks as cards are.

What needs real sockets and real time cannot be swept: points side by side would disturb each other.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Point = TypeVar("Point")
Result = TypeVar("Result")
Watch = Callable[[int, int], None]
"""Is told how many points are done, and of how many; on Spark to within a task."""

MOST_TASKS: Final = 100
LOOK: Final = 0.5
"""Seconds between two looks at how far Spark is."""
COLUMNS: Final = "place long, result binary, trouble string"


class PointFailed(Exception):
    """The function has raised an exception; `point` is the first in the grid for which it has, `trace` tells where."""

    def __init__(self, point: object, trace: str) -> None:
        super().__init__(f"it fails for {point!r}: {trace.strip().splitlines()[-1]}")
        self.point = point
        self.trace = trace


def sweep(
    function: Callable[[Point], Result],
    grid: Iterable[Point],
    spark: SparkSession | None = None,
    watch: Watch = lambda done, count: None,
) -> list[Result]:
    """The function's results for all points, in their order. `spark` is a session of pipeline.session.make_session,
    to which the function's package was shipped (pipeline.session.ship); None: in this process. Function, points and
    results can be pickled. Raises PointFailed."""
    points = list(grid)
    if not points:
        return []
    return _here(function, points, watch) if spark is None else _on_spark(function, points, spark, watch)


def _here(function: Callable[[Point], Result], points: Sequence[Point], watch: Watch) -> list[Result]:
    results = []
    for point in points:
        try:
            results.append(function(point))
        except Exception as error:
            raise PointFailed(point, traceback.format_exc()) from error
        watch(len(results), len(points))
    return results


def _on_spark(
    function: Callable[[Point], Result], points: Sequence[Point], spark: SparkSession, watch: Watch
) -> list[Result]:
    tasks = min(len(points), MOST_TASKS)
    dealt = [place for first in range(tasks) for place in range(first, len(points), tasks)]
    frame = spark.range(0, len(points), 1, tasks).mapInArrow(_task(function, points, dealt), COLUMNS)
    with _watched(spark, lambda done: watch(done * len(points) // tasks, len(points))):
        rows = frame.toArrow().sort_by("place").to_pylist()
    watch(len(points), len(points))
    for row in rows:
        if row["trouble"] is not None:
            raise PointFailed(points[row["place"]], row["trouble"])
    return [pickle.loads(row["result"]) for row in rows]


def _task(
    function: Callable[[Any], Any], points: Sequence[Any], dealt: Sequence[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its share of the numbers of `dealt`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = trouble = None
                try:
                    result = pickle.dumps(function(points[dealt[number]]))
                except Exception:
                    trouble = traceback.format_exc()
                columns = [
                    pyarrow.array([dealt[number]], pyarrow.int64()),
                    pyarrow.array([result], pyarrow.binary()),
                    pyarrow.array([trouble], pyarrow.string()),
                ]
                yield pyarrow.RecordBatch.from_arrays(columns, ["place", "result", "trouble"])

    return run


# ---- progress ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(spark: SparkSession, tell: Callable[[int], None]) -> Iterator[None]:
    """While it lasts, `tell` gets to know how many tasks of the job are done."""
    from pyspark.sql.utils import is_remote

    if not is_remote():
        with _watched_by_tracker(spark, tell):
            yield
        return

    def heard(stages: Iterable[Any] | None, **_: Any) -> None:
        tell(sum(each.num_completed_tasks for each in stages or ()))

    spark.registerProgressHandler(heard)  # type: ignore[arg-type] # Spark calls it with keywords
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)  # type: ignore[arg-type]


@contextlib.contextmanager
def _watched_by_tracker(spark: SparkSession, tell: Callable[[int], None]) -> Iterator[None]:
    group = f"sweep {uuid.uuid4()}"
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        while not ended.wait(LOOK):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            tell(sum(stage.numCompletedTasks for stage in stages if stage))

    spark.sparkContext.setJobGroup(group, "a sweep", interruptOnCancel=True)
    looking = threading.Thread(target=look, name="sweep", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # None removes it
