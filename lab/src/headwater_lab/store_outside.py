"""A whole node measured from outside: by MQTT what it takes, by HTTP what it gives."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from headwater.store.entry import microseconds
from headwater.store.reader import StoreReader
from headwater_lab.load import LoadError
from headwater_lab.store_inside import Answer, Cost, Question
from headwater_lab.store_load import Publishers
from headwater_lab.store_messages import Readings
from headwater_lab.store_node import HOST, Node, on_core, running_node
from headwater_lab.store_proof import Proof, Returned

LOOK: Final = 0.02
"""Seconds between two looks at how far a node has come."""
MOST: Final = 10_000
"""Messages of an answer."""


class Intake(NamedTuple):
    """`cost` is the node's; `load` the processor time of the publishers."""

    cost: Cost
    load: float
    commits: float
    resident: int
    differences: list[str]

    @property
    def group(self) -> int:
        """Messages of a commit, on average."""
        return max(1, round(self.cost.rows / max(1.0, self.commits)))


def intake(
    folder: Path, cores: tuple[int, int], rounds: Callable[[], Iterable[Readings]], qos: int, window: int
) -> Intake:
    """A fresh node takes all messages, which are then read back and compared. `cores` are its own and ours."""
    proof = Proof()
    for each in rounds():
        proof.add(each)
    with (
        running_node(folder, cores[0]) as node,
        on_core(cores[1]),
        closing(Publishers(node.port, rounds(), qos)) as publishers,
    ):
        reader = StoreReader(node.url)
        commits, cpu, load = node.commits(), node.cpu_seconds(), time.process_time()
        began = time.perf_counter()
        if qos == 0:
            publishers.send_all()
            _wait_for(node, reader, proof.messages)
            seconds = time.perf_counter() - began
        else:
            seconds = publishers.send_acknowledged(window)
        cpu, load = node.cpu_seconds() - cpu, time.process_time() - load
        commits = node.commits() - commits
        resident = node.resident_bytes()
        returned = proof.returned()
        for batch in reader.read():
            returned.add(batch)
    return Intake(Cost(proof.messages, seconds, cpu), load, commits, resident, returned.differences())


def _wait_for(node: Node, reader: StoreReader, messages: int) -> None:
    node.wait(lambda: bool(reader.status()["next"] > messages), f"storing {messages:,} messages", LOOK)


def read(node: Node, returned: Returned) -> tuple[Cost, float]:
    """Everything as Arrow; the node's cost, and our processor time. A second time it is compared with what was sent."""
    reader = StoreReader(node.url)
    rows = 0
    cpu, own = node.cpu_seconds(), time.process_time()
    began = time.perf_counter()
    for batch in reader.read():
        rows += batch.num_rows
    seconds = time.perf_counter() - began
    cost = Cost(rows, seconds, node.cpu_seconds() - cpu)
    own = time.process_time() - own
    for batch in reader.read():
        returned.add(batch)
    return cost, own


def ask(node: Node, asked: list[Question]) -> tuple[list[float], list[Answer]]:
    """Milliseconds of each question over one connection, until its answer is there; and the answers."""
    connection = http.client.HTTPConnection(HOST, node.rest_port, timeout=60)
    taken: list[float] = []
    bodies = []
    for question in asked:
        path = "/v1/messages?" + urlencode(
            {"topic": question.topic, "from": question.start, "to": question.end, "limit": MOST}
        )
        began = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        taken.append((time.perf_counter() - began) * 1e3)
        if response.status != 200:
            raise LoadError(f"a question was answered with {response.status}: {body[:200]!r}")
        bodies.append(body)
    connection.close()
    return taken, [_answer(json.loads(body)["messages"]) for body in bodies]


def _answer(messages: list[dict[str, Any]]) -> Answer:
    found: Answer = []
    for each in messages:
        made = microseconds(datetime.fromisoformat(each["time"]))
        found.append((each["position"], made, each["value"], each["payload"].encode()))
    return found
