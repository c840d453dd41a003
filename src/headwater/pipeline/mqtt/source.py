"""`format("mqtt")` as Spark sees it: the stream source, and where the writers come from.

Offsets are `{"spool": id, "next": number}`: all messages before `number` of that spool. Spark calls the reader's
methods in one process on the driver, except `read`, which executors call; the messages are in the spooler.

When is a batch committed? Spark calls `commit(end)` only when it has planned the batch behind it. If that were all, the
broker could wait for acknowledgements of a full window, and Spark for further messages, for ever. But Spark asks for
`latestOffset(start)` only when the batch that ended at `start` is in its commit log: so that is taken for a commit too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.pipeline.mqtt.available import Available
from headwater.pipeline.mqtt.options import BadOption, ReadOptions, WriteOptions
from headwater.pipeline.mqtt.remote import Address, records
from headwater.pipeline.mqtt.rows import COLUMNS, batches, ddl, names, shape
from headwater.pipeline.mqtt.writer import MqttStreamWriter, MqttWriter
from headwater.pipeline.options import OF_SPARK
from headwater.pipeline.portable import Portable
from headwater.suggestion import unknown

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.pipeline.mqtt.supervisor import SpoolerSupervisor

FIRST_CONNECTION: Final = 15.0
"""Seconds that a new query waits for its subscription before it fails."""
LONG_POLL: Final = 0.1
"""Seconds that a question for news waits for some."""


class SpoolLost(Exception):
    """The checkpoint is of another spool than the one that is there."""


class MqttSource(Portable, DataSource):
    """`spark.dataSource.register(MqttSource)`"""

    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> str:
        return ddl(names(ReadOptions.of(self.options).positions))

    def streamReader(self, schema: StructType) -> MqttStreamReader:
        options = ReadOptions.of(self.options)
        return MqttStreamReader(options, _checked(schema, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        raise BadOption("MQTT has no past to read from: use spark.readStream, with trigger(availableNow=True) for once")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise BadOption('messages cannot be overwritten: use mode("append")')
        return MqttWriter(WriteOptions.of(self.options, OF_SPARK), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return MqttStreamWriter(WriteOptions.of(self.options, OF_SPARK), schema, self.options.get("checkpointLocation"))


def _checked(schema: StructType, options: ReadOptions) -> dict[str, bool]:
    """The columns that are wanted, all or those that the user has named, and whether they are nullable to Spark."""
    known = names(options.positions)
    for each in schema.fields:
        if each.name not in known:
            if each.name in COLUMNS:
                raise BadOption(f"there is no column {each.name}: positions=true")
            raise BadOption(unknown("column", each.name, known, " of format('mqtt')"))
        kind = COLUMNS[each.name].kind
        if each.dataType.simpleString() != kind:
            raise BadOption(f"the column {each.name} is {kind}, not {each.dataType.simpleString()}; cast it later")
    return {each.name: each.nullable for each in schema.fields}


@dataclass
class SpoolRange(InputPartition):
    """Messages `first` to before `next`."""

    address: Address
    first: int
    next: int


class MqttStreamReader(Portable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: Mapping[str, bool] | None = None) -> None:
        self._options = options
        self._shape = shape(columns or dict.fromkeys(names(options.positions), True))
        self._supervisor: SpoolerSupervisor | None = None
        """Only where Spark asks for offsets; the others are copies on executors."""
        self._available: Available | None = None

    # ---- on the driver -----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        status = self._subscribed()
        return {"spool": status["id"], "next": status["released"]}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._subscribed()
        self._available = Available(self._spooler().advance, self._options.settle)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        available = self._available
        if available is not None and start["next"] >= available.target:
            available.committed(start)
        wait = LONG_POLL if available is None else 0.0
        status = self._spooler().advance(released=start, beyond=start["next"], wait=wait)
        self._check_spool(start, status)
        first = start["next"] if start["spool"] == status["id"] else status["released"]
        last = status["next"] if available is None else max(first, available.target)
        if isinstance(limit, ReadMaxRows):
            last = min(last, first + limit.max_rows)
        elif isinstance(limit, ReadMinRows) and last - first < limit.min_rows and available is None:
            last = first
        return {"spool": status["id"], "next": last}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        status = self._spooler().advance()
        return {"spool": status["id"], "next": status["next"]}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        status = self._spooler().advance()
        self._check_spool(end, status)
        if end["spool"] != status["id"]:
            return []
        first = start["next"] if start["spool"] == status["id"] else status["released"]
        step = self._options.partition_rows
        address = self._spooler().address
        return [SpoolRange(address, at, min(at + step, end["next"])) for at in range(first, end["next"], step)]

    def commit(self, end: dict[str, Any]) -> None:
        self._spooler().advance(released=end)

    def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()

    def _spooler(self) -> SpoolerSupervisor:
        if self._supervisor is None:
            from headwater.pipeline.mqtt.supervisor import SpoolerSupervisor

            self._supervisor = SpoolerSupervisor(self._options)
        return self._supervisor

    def _subscribed(self) -> dict[str, Any]:
        """How things are once the broker has granted the subscription."""
        until = time.monotonic() + FIRST_CONNECTION
        while not (status := self._spooler().advance())["is_subscribed"]:
            if time.monotonic() > until:
                why = status["trouble"] or "it does not answer the subscription"
                host = self._options.address[0]
                raise ConnectionError(f"no subscription at {host} within {FIRST_CONNECTION:g} seconds: {why}")
            time.sleep(0.02)
        return status

    def _check_spool(self, offset: dict[str, Any], status: dict[str, Any]) -> None:
        folder = self._options.folder
        if offset["spool"] != status["id"] and self._options.fail_on_loss:
            raise SpoolLost(
                f"the checkpoint goes on in the spool {offset['spool']}, but {folder} is {status['id']}. Give the "
                f"folder that the query had (option spool), or failOnSpoolLoss=false: the broker then sends again "
                f"what was not committed, if clientId is what it was"
            )
        if offset["spool"] == status["id"] and offset["next"] > status["next"]:
            raise SpoolLost(
                f"the checkpoint has messages up to {offset['next']}, but the spool {folder} ends at {status['next']}: "
                f"its disk has lost some, or an older copy was put in its place. Move the folder away, and use "
                f"failOnSpoolLoss=false: the broker sends again what was not committed"
            )

    # ---- on executors ------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolRange)
        return batches(records(partition.address, partition.first, partition.next), self._shape)
