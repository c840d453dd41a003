"""What a broker with a delivery store must have stored: the second half of the verdict.

Every message that was acknowledged is at some position; one with QoS 2, or a will, at one only; one with QoS 1 at no
more than it was sent. Positions have no gaps, and what anybody has ever seen at one, by MQTT or REST, in whichever life
of the broker, is there in the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from headwater.store.disk_store import DiskStore
from headwater.store.query import Query
from headwater_lab.chaos.checker import Violation
from headwater_lab.chaos.history import Acknowledged, History, Note, Received, Sent, message_in
from headwater_lab.chaos.listened import Listened, tell
from headwater_lab.chaos.lives import BrokerFailed

STORED_KINDS: Final = ("not stored", "stored twice", "gap", "changed", "not ours", "out of order")
FOLDER: Final = "messages"


class Row(NamedTuple):
    """What is at a position; the message's number stands for the payload, which names it and shows that it is whole."""

    position: int
    topic: str
    message: int
    size: int
    qos: int
    publisher: str


def row_of(position: int, topic: str, payload: bytes, qos: int, publisher: str) -> Row:
    return Row(position, topic, message_in(payload), len(payload), qos, publisher)


def stored_rows(data: Path, log: Path) -> list[Row]:
    """Of the store in a data folder that nobody uses. Another process reads it: who has threads cannot fork."""
    told = Listened(partial(_tell_rows, data / FOLDER), log).all()
    if not told or told[-1] != "all":
        raise BrokerFailed(f"the store cannot be read; {log.read_text(errors='replace')[-2000:]}")
    return [Row(*json.loads(line)) for line in told[:-1]]


def _tell_rows(folder: Path) -> int:
    store = DiskStore(folder, create=False, seal_in_background=False)
    for chunk in store.select(Query()):
        for entry in chunk.entries():
            tell(json.dumps(row_of(entry.position, entry.topic, entry.payload, entry.qos, entry.publisher)))
    store.close()
    tell("all")
    return 0


class StoredChecker:
    """`seen` are rows that were read while the broker lived."""

    def __init__(self, history: History, rows: list[Row], seen: list[Row]) -> None:
        self.history = history
        self.rows = rows
        self.seen = seen
        self.sent = Counter(event.message for event in history.events if isinstance(event, Sent))
        self.acknowledged = {event.message for event in history.events if isinstance(event, Acknowledged)}
        self.place = len(history.events)

    def check(self) -> list[Violation]:
        found = (self._gaps, self._strange, self._counts, self._cleared, self._seen, self._order)
        return [Violation(kind, self.place, text) for each in found for kind, text in each()]

    def _gaps(self) -> Iterator[tuple[str, str]]:
        expected = 1
        for row in self.rows:
            if row.position != expected:
                yield "gap", f"position {row.position} comes after {expected - 1}"
            expected = row.position + 1

    def _strange(self) -> Iterator[tuple[str, str]]:
        for row in self.rows:
            note = self.history.notes.get(row.message)
            if row.message and (note is None or not _is_of(row, note)):
                yield "not ours", f"{row} is not {note}"

    def _counts(self) -> Iterator[tuple[str, str]]:
        times = Counter(row.message for row in self.rows)
        for number, note in self.history.notes.items():
            if not note.size:
                continue
            if number in self.acknowledged and not times[number]:
                yield "not stored", f"{note} was acknowledged"
            most = 1 if note.qos == 2 or note.will else self.sent[number]
            if times[number] > most:
                yield "stored twice", f"{note} is there {times[number]} times, and was sent {self.sent[number]} times"

    def _cleared(self) -> Iterator[tuple[str, str]]:
        """Empty payloads have no names: they are counted by topic."""
        there = Counter(row.topic for row in self.rows if not row.message)
        least: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for number, note in self.history.notes.items():
            if not note.size:
                least[note.topic] += number in self.acknowledged
                most[note.topic] += 1 if note.qos == 2 else self.sent[number]
        for topic in {*there, *most}:
            if not least[topic] <= there[topic] <= most[topic]:
                kind = "not stored" if there[topic] < least[topic] else "stored twice"
                yield kind, f"{topic} has {there[topic]} empty messages, not {least[topic]} to {most[topic]}"

    def _seen(self) -> Iterator[tuple[str, str]]:
        at = {row.position: row for row in self.rows}
        for row in self.seen:
            if at.get(row.position) != row:
                yield "changed", f"REST has shown {row}, and there is {at.get(row.position)}"
        for event in self.history.events:
            if isinstance(event, Received) and event.position:
                there = at.get(event.position)
                if there is None or (there.message, there.topic) != (event.message, event.topic):
                    yield "changed", f"{event.client} got {event}, and there is {there}"

    def _order(self) -> Iterator[tuple[str, str]]:
        """The first time that they are there, messages of one publisher, topic and QoS are in the order of sending."""
        last: dict[tuple[str, str, int], int] = {}
        known: set[int] = set()
        for row in self.rows:
            if row.message > 0 and row.message not in known:
                known.add(row.message)
                order = row.publisher, row.topic, row.qos
                if row.message < last.get(order, 0):
                    yield "out of order", f"{row} comes after message {last[order]}"
                last[order] = row.message


def _is_of(row: Row, note: Note) -> bool:
    return (row.topic, row.size, row.qos, row.publisher) == (note.topic, note.size, note.qos, note.publisher)
