"""What is in the stores of an edge: on disk, read by a process of its own, and by REST."""

from __future__ import annotations

import http.client
import json
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.store.disk_store import DiskStore
from headwater.store.query import Query
from headwater_lab.chaos.history import message_in
from headwater_lab.chaos.listened import Listened, tell
from headwater_lab.chaos.lives import BrokerFailed
from headwater_lab.chaos.stored import FOLDER, Row, row_of

PATIENCE: Final = 30.0
AT_A_TIME: Final = 500
"""Rows in a line of what the process tells."""


class StoredRow(NamedTuple):
    """At `node`, whose store has the id `store`; `arrival` is seconds since 1970."""

    node: str
    store: str
    row: Row
    arrival: float


def rows_on_disk(node: str, data: Path, log: Path) -> list[StoredRow]:
    """Of a node that is stopped. Another process reads them: who has threads cannot fork."""
    told = Listened(partial(_tell_rows, data / FOLDER), log).all()
    if not told or told[-1] != "all":
        raise BrokerFailed(f"the store cannot be read; its log ends with: {log.read_text(errors='replace')[-2000:]}")
    store = json.loads(told[0])
    found = []
    for line in told[1:-1]:
        for position, topic, message, size, qos, publisher, arrival in json.loads(line):
            found.append(StoredRow(node, store, Row(position, topic, message, size, qos, publisher), arrival))
    return found


def _tell_rows(folder: Path) -> int:
    store = DiskStore(folder, create=False, seal_in_background=False)
    tell(json.dumps(store.id))
    rows: list[list[Any]] = []
    for chunk in store.select(Query()):
        for entry in chunk.entries():
            row = row_of(entry.position, entry.topic, entry.payload, entry.qos, entry.publisher)
            rows.append([*row, entry.arrival / 1e6])
            if len(rows) == AT_A_TIME:
                tell(json.dumps(rows))
                rows = []
    tell(json.dumps(rows))
    store.close()
    tell("all")
    return 0


Shown = tuple[str, int, str, int]
"""By REST: store, position, topic and message."""


def rows_by_rest(port: int, scope: str, store: str = "") -> list[Shown]:
    """Of the scope `store` or `edge`; `store` is the node's own."""
    found = []
    for line in _get(port, f"/v1/messages?format=ndjson&scope={scope}").splitlines():
        each = json.loads(line)
        found.append((each.get("store", store), each["position"], each["topic"], message_in(each["payload"].encode())))
    return found


def edge_by_rest(port: int) -> Any:
    return json.loads(_get(port, "/v1/edge"))


def _get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"{path} is answered with {answer.status}: {answer.read(500)!r}")
        return answer.read()
    finally:
        connection.close()
