"""Spooler and query are killed again and again while messages come: a checker that knows what was published.

What has to hold: a batch that was logged has the same rows whenever it is read, until it is committed; every message is
in a committed batch. A message may be there twice only if Spark had committed it and the broker had not heard of it
when the spooler died.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import both_brokers
from tests.pipeline.mqtt.queries import Query, Row, numbered, publish, query

SPOOL = 400
CHUNK = 200
AHEAD = 2000
LONGEST = 120.0
KILLS = 5


class Publisher(threading.Thread):
    """Publishes numbers until it is enough, `count` of them; not many more than were `taken`, for brokers drop what
    nobody takes."""

    def __init__(self, port: int, qos: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._qos = qos
        self.is_enough = threading.Event()
        self.count = 0
        self.taken: set[bytes] = set()

    def run(self) -> None:
        while not self.is_enough.wait(0.01):
            if self.count - len(self.taken) > AHEAD:
                continue
            publish(self._port, numbered(self.count, self.count + CHUNK), qos=self._qos)
            self.count += CHUNK


class Killer(threading.Thread):
    """Kills the spooler at any moment, so many times."""

    def __init__(self, victim: Query, seed: int) -> None:
        super().__init__(daemon=True)
        self._victim = victim
        self._chance = random.Random(seed)
        self._never = threading.Event()
        self.pids: set[int] = set()

    def run(self) -> None:
        while len(self.pids) < KILLS:
            self._never.wait(self._chance.uniform(0.1, 0.5))
            self.pids.add(self._victim.kill_spooler())


@both_brokers
@pytest.mark.parametrize("qos", [1, 2])
def test_whoever_is_killed_and_whenever_nothing_is_missing(broker: int, tmp_path: Path, qos: int) -> None:
    chance = random.Random(qos)
    committed: list[Row] = []
    more = {"qos": str(qos), "connections": "2", "spoolMessages": str(SPOOL), "maxRowsPerTrigger": "150"}
    with query(broker, tmp_path / f"spool{qos}", **more) as reading:
        reading.plan()
        publisher, killer = Publisher(broker, qos), Killer(reading, qos)
        publisher.start()
        killer.start()
        until = time.monotonic() + LONGEST
        while publisher.is_alive() or len(publisher.taken) < publisher.count:
            assert time.monotonic() < until, f"{len(publisher.taken)} of {publisher.count} came"
            if not killer.is_alive():
                publisher.is_enough.set()
            if reading.plan():
                rows = reading.read()
                if chance.random() < 0.2:
                    reading.restart()
                    assert reading.read() == rows
                committed += rows
                publisher.taken.update(row["payload"] for row in rows)
                reading.commit()
        reading.settle()
        publisher.join()
    counts = Counter(row["payload"] for row in committed)
    assert counts.keys() == set(numbered(0, publisher.count))
    repeats = sum(counts.values()) - publisher.count
    print(f"{publisher.count} messages, {KILLS} kills, {repeats} repeats")
    assert repeats <= SPOOL * KILLS
