"""A contender measured in this process: how fast it takes messages, gives all of them back, and answers a question."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from headwater.store.intake import Intake, Taken
from headwater_lab.store_contenders import Contender
from headwater_lab.store_messages import DEVICES, HOUR, PERIOD, START, Readings, publisher_of, topic_of
from headwater_lab.store_proof import Proof, Returned

AT_ONCE: Final = 250_000
"""Messages that are made before they are written and timed."""

_TOPICS: Final = [topic_of(device).encode() for device in range(DEVICES)]
_PUBLISHERS: Final = [publisher_of(device) for device in range(DEVICES)]

Answer = list[tuple[int, int, float, bytes]]
Tell = Callable[[str], None]


class Cost(NamedTuple):
    """Of so many rows, or messages. `cpu` is processor time of all threads."""

    rows: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def microseconds(self) -> float:
        return self.cpu / self.rows * 1e6


class Question(NamedTuple):
    """One topic and an hour."""

    topic: str
    start: int
    end: int


class Stopwatch:
    """Adds up what happens between `go` and `stop`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0
        self._went = (0.0, 0.0)

    def go(self) -> None:
        self._went = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        self.seconds += now - self._went[0]
        self.cpu += cpu - self._went[1]


def fill(contender: Contender, rounds: Iterable[Readings], group: int, proof: Proof | None, tell: Tell) -> Cost:
    """Write all messages in groups of so many; what is put off at first is part of the time."""
    watch = Stopwatch()
    written = 0
    for groups in _batches(_groups(rounds, group, proof)):
        watch.go()
        for taken in groups:
            contender.write(taken)
        contender.catch_up()
        watch.stop()
        written += sum(map(len, groups))
        tell(f"{written:,} messages written, {written / watch.seconds:,.0f}/s")
    watch.go()
    contender.finish()
    watch.stop()
    return Cost(written, watch.seconds, watch.cpu)


def _groups(rounds: Iterable[Readings], group: int, proof: Proof | None) -> Iterator[Taken]:
    intake = Intake(1)
    for each in rounds:
        if proof is not None:
            proof.add(each)
        for device, made, payload in zip(each.device.tolist(), each.time.tolist(), each.payload, strict=True):
            intake.take(_TOPICS[device], payload, 1, _PUBLISHERS[device], made + 2000)
            if len(intake.taken) == group:
                yield from filter(None, [intake.hand_over()])
    yield from filter(None, [intake.hand_over()])


def _batches(groups: Iterable[Taken]) -> Iterator[list[Taken]]:
    batch: list[Taken] = []
    for taken in groups:
        batch.append(taken)
        if taken.first + len(taken) - batch[0].first >= AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def read(contender: Contender, returned: Returned) -> Cost:
    """Everything as Arrow; what is done with it is not counted."""
    watch = Stopwatch()
    rows = 0
    batches = iter(contender.read())
    while True:
        watch.go()
        batch = next(batches, None)
        watch.stop()
        if batch is None:
            return Cost(rows, watch.seconds, watch.cpu)
        rows += batch.num_rows
        returned.add(batch)


def questions(count: int, messages: int, seed: int) -> list[Question]:
    """Random topics, and an hour that begins at random within the time of so many messages; all of it if it is less."""
    chance = random.Random(seed)
    span = messages * PERIOD * 1000 // DEVICES
    asked = []
    for _ in range(count):
        topic = topic_of(chance.randrange(DEVICES))
        start = START * 1000 + chance.randrange(max(1, span - HOUR))
        asked.append(Question(topic, start, start + HOUR))
    return asked


def ask(contender: Contender, asked: list[Question]) -> tuple[list[float], list[Answer]]:
    """Milliseconds that each question took, and the answers."""
    taken: list[float] = []
    answers = []
    for question in asked:
        began = time.perf_counter()
        answers.append(contender.ask(*question))
        taken.append((time.perf_counter() - began) * 1e3)
    return taken, answers


def quantile(values: list[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
