"""Sinks that do not keep their promises, to show that this is found."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.pipeline.lake.files import WrittenFile
from headwater.pipeline.lake.log import Positions
from headwater.pipeline.lake.sink import FIRST, DeltaSink, Message, Sink, StreamWriter


class ForgetfulWriter(StreamWriter):
    """Does not ask the table what it has: a batch that comes again is there twice."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        files = _files(messages)
        notes, ends = _notes(files, self.sink.app, batchId)
        self.sink.log(files).commit(files, notes, job=self.sink.app, positions=ends)


class HastyWriter(StreamWriter):
    """Says how far the table goes before it does: a batch that was said to be there is never there."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        files = _files(messages)
        log = self.sink.log(files)
        notes, ends = _notes(files, self.sink.app, batchId)
        known = log.positions(self.sink.app)
        if any(last > known.get(store, 0) for store, last in ends.items()):
            log.commit([], notes, job=self.sink.app, positions=ends)
            log.commit(files, {})


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [file for message in messages if isinstance(message, Message) for file in message.files]


def _notes(files: list[WrittenFile], app: str, batch: int) -> tuple[dict[str, int], Positions]:
    ends: Positions = {}
    for file in files:
        for store, (_, last) in file.stores.items():
            ends[store] = max(ends.get(store, 0), last)
    return {app: batch, **{f"{FIRST}/{store}": 1 for store in ends}}, ends


class ForgetfulSink(DeltaSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return ForgetfulWriter(Sink(self.options, schema, needs_app=True), overwrite)


class HastySink(DeltaSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return HastyWriter(Sink(self.options, schema, needs_app=True), overwrite)


SINKS: Final[dict[str, type[DeltaSink]]] = {"forgetful": ForgetfulSink, "hasty": HastySink}
HONEST: Final = "honest"
