"""`df.writeStream.format("mqtt")` and `df.write.format("mqtt")`: rows as messages.

Executors publish; the driver has nothing to do but to check the columns. A batch counts as written when the broker has
acknowledged each of its rows. If it is written again, rows that the ledger knows are not sent again, and the others
carry the same mark as before (see `publishing`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.pipeline.mqtt.ledger import Ledger
from headwater.pipeline.mqtt.options import BadOption, WriteOptions, on_disk
from headwater.pipeline.portable import Portable

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "topic": ("string",),
    "payload": ("string", "binary"),
    "qos": ("tinyint", "smallint", "int", "bigint"),
    "retain": ("boolean",),
    "properties": ("string",),
}
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
IN_CHECKPOINT: Final = "mqtt-sent"


@dataclass
class Sent(WriterCommitMessage):
    """Rows that a task has sent; those that were known to be sent before do not count."""

    rows: int


class MqttStreamWriter(Portable, DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, checkpoint: str | None) -> None:
        check_columns(schema, options)
        self._options = options
        self._ledger = ledger_folder(options, checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return _write(iterator, self._options, self._ledger, "")


class MqttWriter(Portable, DataSourceArrowWriter):
    """A write of its own has no number that would say that it is the same again: `run` may be that. In foreachBatch it
    has that of the batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._ledger = ledger_folder(options, None)
        self._once = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return _write(iterator, self._options, self._ledger, self._once)


def _write(iterator: Iterator[pa.RecordBatch], options: WriteOptions, folder: Path | None, once: str) -> Sent:
    from headwater.pipeline.mqtt.publishing import Task, publish

    context = TaskContext.get()
    assert context is not None
    stream, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    query, batch = batch_name(stream, number, options.run, once)
    task = Task(query, batch, context.partitionId(), context.taskAttemptId())
    with Ledger(folder, query, batch, task.partition, task.attempt) as ledger:
        return Sent(publish(iterator, options, task, ledger))


def batch_name(stream: str | None, number: str | None, run: str | None, once: str) -> tuple[str, int]:
    """Which batch of which query this is: of a stream, if there is one; else of the run, or of nothing that comes again
    (`once`)."""
    if stream is not None and number is not None:
        return (stream if run is None else f"{stream}-{run}"), int(number)
    return run or once, 0


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises BadOption if rows of this kind cannot be messages."""
    kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
    for name, kind in kinds.items():
        if name not in COLUMNS:
            raise BadOption(f"there is no use for the column {name}; columns are {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise BadOption(f"the column {name} is {' or '.join(COLUMNS[name])}, not {kind}; cast it")
    if "payload" not in kinds:
        raise BadOption('the column payload is missing: .selectExpr("topic", "to_json(struct(*)) AS payload")')
    if "topic" not in kinds and options.topic is None:
        raise BadOption("there is neither a column topic nor an option topic")


def ledger_folder(options: WriteOptions, checkpoint: str | None) -> Path | None:
    """None: there is none, as for a checkpoint that is not on a disk."""
    if options.ledger is not None:
        return None if options.ledger.lower() == "none" else on_disk(options.ledger)
    try:
        return None if checkpoint is None else on_disk(checkpoint) / IN_CHECKPOINT
    except ValueError:
        return None
