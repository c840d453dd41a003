"""A query without Spark, which asks a source what Spark asks it, in the order in which Spark does; and a publisher."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headwater.client import Client, Properties
from headwater.pipeline.mqtt.options import ReadOptions
from headwater.pipeline.mqtt.source import MqttStreamReader
from headwater.pipeline.mqtt.spooler import former_address
from headwater.pipeline.mqtt.supervisor import reap

PATIENCE = 20.0
Offset = dict[str, Any]
Row = dict[str, Any]


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    until = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.02)


def publish(
    port: int,
    payloads: Sequence[bytes],
    topic: str = "plant/7",
    qos: int = 1,
    properties: Properties | None = None,
) -> None:
    """Returns when the broker has them all."""

    async def all() -> None:
        async with Client("127.0.0.1", port) as client:
            for at in range(0, len(payloads), 100):
                some = payloads[at : at + 100]
                await asyncio.gather(*(client.publish(topic, each, qos=qos, properties=properties) for each in some))

    asyncio.run(all())


def numbered(first: int, next: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, next)]


def options(port: int, folder: Path, **more: str) -> ReadOptions:
    given = {"broker": f"mqtt://127.0.0.1:{port}", "topics": "plant/#", "spool": str(folder), "linger": "5"}
    return ReadOptions.of({**given, "clientId": f"{folder.parent.name}-{folder.name}"[-40:], **more})


class Query:
    """Logs an offset before it reads the batch, and commits behind it, as Spark does; `log` is its checkpoint."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.reader = MqttStreamReader(options)
        self.start: Offset = {}
        self.planned: tuple[Offset, Offset] | None = None

    def restart(self) -> None:
        """As if the driver had been killed: nothing is left but the checkpoint."""
        self.reader.stop()
        self.reader = MqttStreamReader(self.options)

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Log the next batch; whether there is one."""
        if self.planned is None:
            self.start = self.start or self.reader.initialOffset()
            end = self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())
            if end == self.start:
                return False
            self.planned = self.start, end
            self.reader.commit(self.start)
        return True

    def read(self) -> list[Row]:
        """The rows of the planned batch."""
        assert self.planned is not None
        batches: list[pa.RecordBatch] = []
        for partition in self.reader.partitions(*self.planned):
            batches += self.reader.read(partition)
        return [row for batch in batches for row in batch.to_pylist()]

    def commit(self) -> None:
        assert self.planned is not None
        self.start, self.planned = self.planned[1], None

    def run(self, count: int) -> list[Row]:
        """Batches until so many rows have come, committed in the source as well."""
        rows: list[Row] = []
        until = time.monotonic() + PATIENCE
        while len(rows) < count:
            assert time.monotonic() < until, f"{len(rows)} of {count} rows came"
            if self.plan():
                rows += self.read()
                self.commit()
        self.settle()
        return rows

    def settle(self) -> None:
        """Spark asks for news once more; there are none, and it commits nothing: the question is the commit."""
        self.reader.latestOffset(self.start, ReadAllAvailable())

    @property
    def pid(self) -> int:
        return int(former_address(self.options.folder)["pid"])

    @property
    def status(self) -> dict[str, Any]:
        return self.reader._spooler().advance()

    def kill_spooler(self) -> int:
        """And it is gone when this returns; its number."""
        pid = self.pid
        if is_spooler(pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the spooler is dead")
        return pid

    def end_spooler(self) -> None:
        self.reader.stop()
        pid = self.pid
        if is_spooler(pid):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid), "the spooler has left")
        reap()


def is_spooler(pid: int) -> bool:
    """Numbers of dead processes are given to others."""
    try:
        return b"headwater.pipeline.mqtt.spooler" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def query(port: int, folder: Path, **more: str) -> Iterator[Query]:
    made = Query(options(port, folder, **more))
    try:
        yield made
    finally:
        if former_address(folder):
            made.end_spooler()
