"""Rows of one task to the broker: what an executor does for the writer.

Rows are published in their order, up to `inflight` at a time, and noted in the ledger when the broker has acknowledged
them. Each carries the user property `headwater-batch: query:batch:partition:name:n`, by which a receiver knows a row
that comes again: `name` is made of what the row says, `n` counts equal rows of the partition. QoS 0 is sent and
forgotten, as always.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.client import Client, MqttError
from headwater.pipeline.mqtt.ledger import NAME_BYTES, Ledger
from headwater.pipeline.mqtt.options import WriteOptions
from headwater.pipeline.mqtt.properties import from_json
from headwater.routing.topics import LONGEST_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_PROPERTY: Final = "headwater-batch"


class BadRow(ValueError):
    """A row that cannot be a message."""


class NotPublished(Exception):
    """The broker did not take a row, or did not answer."""


@dataclass(frozen=True)
class Task:
    """Which rows these are: the same again if Spark repeats them."""

    query: str
    batch: int
    partition: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.query}:{self.batch}:{self.partition}"


class Row(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: str | None

    def name(self) -> bytes:
        """The same for rows that say the same."""
        digest = hashlib.blake2b(digest_size=NAME_BYTES)
        for part in (self.topic.encode(), self.payload, (self.properties or "").encode()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        digest.update(bytes((self.qos, self.retain)))
        return digest.digest()


class Named(NamedTuple):
    row: Row
    name: bytes
    text: str


def rows(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Iterator[Row]:
    """Rows of the writer's columns; what is not there, or null, is as the options say."""
    for batch in batches:
        listed: dict[str, list[Any]] = batch.to_pydict()
        count = batch.num_rows
        topics, payloads = listed.get("topic", [None] * count), listed["payload"]
        qos, retain = listed.get("qos", [None] * count), listed.get("retain", [None] * count)
        properties = listed.get("properties", [None] * count)
        for fields in zip(topics, payloads, qos, retain, properties, strict=True):
            yield _row(*fields, options=options)


def publish(batches: Iterator[pa.RecordBatch], options: WriteOptions, task: Task, ledger: Ledger) -> int:
    """How many rows were sent now; returns when the broker has them all."""
    wanted = (each for each in _named(rows(batches, options), task) if each.name not in ledger)
    first = next(wanted, None)
    if first is None:
        return 0
    return asyncio.run(_publish(first, wanted, options, task, ledger))


async def _publish(first: Named, others: Iterator[Named], options: WriteOptions, task: Task, ledger: Ledger) -> int:
    host, port = options.address
    user, password = options.credentials
    name = f"{options.client_id}-{task.partition}-{task.attempt}" if options.client_id is not None else ""
    client = Client(host, port, tls=options.tls(), client_id=name, username=user, password=password)
    sent = 0
    window = [first, *islice(others, options.inflight - 1)]
    async with client:
        while window:
            await _send(client, window, options)
            ledger.note(each.name for each in window)
            sent += len(window)
            window = list(islice(others, options.inflight))
    return sent


async def _send(client: Client, window: list[Named], options: WriteOptions) -> None:
    sending = asyncio.gather(*(_send_one(client, each, options.mark) for each in window))
    try:
        await asyncio.wait_for(sending, options.timeout)
    except TimeoutError:
        raise NotPublished(f"{len(window)} rows were not all acknowledged in {options.timeout:g} seconds") from None


async def _send_one(client: Client, named: Named, mark: bool) -> None:
    row = named.row
    properties = from_json(row.properties)
    if mark:
        others = [pair for pair in properties.user_properties or [] if pair[0] != BATCH_PROPERTY]
        properties.user_properties = [*others, (BATCH_PROPERTY, named.text)]
    try:
        await client.publish(row.topic, row.payload, qos=row.qos, retain=row.retain, properties=properties)
    except MqttError as error:
        raise NotPublished(f"a message to {row.topic!r} was not published: {error}") from error


def _named(found: Iterator[Row], task: Task) -> Iterator[Named]:
    counts: Counter[bytes] = Counter()
    for row in found:
        content = row.name()
        number = counts[content]
        counts[content] += 1
        name = hashlib.blake2b(content + number.to_bytes(8, "little"), digest_size=NAME_BYTES).digest()
        yield Named(row, name, f"{task}:{content.hex()}:{number}")


def _row(topic: Any, payload: Any, qos: Any, retain: Any, properties: Any, *, options: WriteOptions) -> Row:
    topic = topic if topic is not None else options.topic
    if not topic:
        raise BadRow("a row has no topic: fill the column topic, or give the option topic")
    if set(topic) & {"+", "#", "\0"} or len(topic.encode()) > LONGEST_TOPIC:
        raise BadRow(f"{topic[:100]!r} is no topic to publish to: wildcards are for subscriptions")
    level = options.qos if qos is None else int(qos)
    if level not in (0, 1, 2):
        raise BadRow(f"the QoS of a row for {topic!r} is {level}; there are 0, 1 and 2")
    try:
        from_json(properties)
    except ValueError as error:
        raise BadRow(f"the properties of a row for {topic!r}: {error}") from error
    data = b"" if payload is None else payload.encode() if isinstance(payload, str) else bytes(payload)
    return Row(topic, data, level, options.retain if retain is None else bool(retain), properties)
