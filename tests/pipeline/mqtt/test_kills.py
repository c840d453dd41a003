"""Spooler and query are killed again and again while messages come: a checker that knows what was published.

What has to hold: a batch that was logged has the same rows whenever it is read, until it is committed; every message is
in a committed batch. A message may be there twice only if Spark had committed it and the broker had not heard of it
when the spooler died.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import both_brokers
from tests.pipeline.mqtt.queries import Query, Row, numbered, publish, query, wait_until

MESSAGES = 4000
SPOOL = 400


class Killer(threading.Thread):
    """Kills the spooler at any moment, as often as there is time for."""

    def __init__(self, victim: Query, seed: int) -> None:
        super().__init__()
        self._victim = victim
        self._chance = random.Random(seed)
        self.is_enough = threading.Event()
        self.pids: set[int] = set()

    def run(self) -> None:
        while not self.is_enough.wait(self._chance.uniform(0.1, 0.5)):
            self.pids.add(self._victim.kill_spooler())


@both_brokers
@pytest.mark.parametrize("qos", [1, 2])
def test_whoever_is_killed_and_whenever_nothing_is_missing(broker: int, tmp_path: Path, qos: int) -> None:
    chance = random.Random(qos)
    committed: list[Row] = []
    more = {"qos": str(qos), "connections": "2", "spoolMessages": str(SPOOL), "maxRowsPerBatch": "150"}
    with query(broker, tmp_path / f"spool{qos}", **more) as reading:
        reading.plan()
        publisher = threading.Thread(target=publish, args=(broker, numbered(0, MESSAGES)), kwargs={"qos": qos})
        publisher.start()
        wait_until(lambda: reading.status["next"] > 0, "messages come")
        killer = Killer(reading, qos)
        killer.start()
        while publisher.is_alive() or len({row["payload"] for row in committed}) < MESSAGES:
            if reading.plan():
                rows = reading.read()
                if chance.random() < 0.2:
                    reading.restart()
                    assert reading.read() == rows
                committed += rows
                reading.commit()
            if len(killer.pids) == 8:
                killer.is_enough.set()
        publisher.join()
        killer.is_enough.set()
        killer.join()
        reading.settle()
    counts = Counter(row["payload"] for row in committed)
    assert counts.keys() == set(numbered(0, MESSAGES))
    assert len(killer.pids) > 2
    repeats = sum(counts.values()) - MESSAGES
    print(f"{len(killer.pids)} kills, {repeats} repeats")
    assert repeats <= SPOOL * len(killer.pids)
