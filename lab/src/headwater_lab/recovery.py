"""How long a broker takes to take up what it kept: `scripts/bench recovery`, or `python -m headwater_lab.recovery`.

A data folder with a million retained messages, a hundred thousand absent sessions with a subscription each and some
messages that wait for them is written as a broker would have left it; then a broker is started on it. Measured: seconds
until it answers a client, and memory then, with an empty folder and with that one.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headwater.message import Message, Subscription
from headwater.node.persistence.records import (
    MESSAGE,
    SESSION,
    delivery_key,
    delivery_record,
    number_key,
    record_of,
    retained_key,
    session_record,
    subscription_key,
    subscription_record,
)
from headwater.node.persistence.schema import open_folder
from headwater.session.journaled import DurableDelivery, JournaledMessage
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.waiting import Budget
from headwater.wire import encode
from headwater.wire.packets import Connect
from headwater.wire.primitives import FOR_EVER
from headwater_lab import machine
from headwater_lab.contenders import running
from headwater_lab.results import dated, write_json

BATCH: Final = 5000
PAYLOAD: Final = 100
PATIENCE: Final = 300.0


class Writer:
    """Puts in batches, with numbers as a journal gives them."""

    def __init__(self, folder: Path) -> None:
        self.backend = open_folder(folder)
        self.number = 0
        self._puts: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._puts.append((key, value))
        if len(self._puts) >= BATCH:
            self.flush()

    def flush(self) -> None:
        self.backend.write(self._puts, [])
        self._puts = []

    def next(self) -> int:
        self.number += 1
        return self.number


def fill(folder: Path, retained: int, sessions: int, waiting: int) -> None:
    """Write a folder as a broker with so many retained messages and absent sessions leaves it."""
    writer = Writer(folder)
    for number in range(retained):
        topic = f"devices/{number:07}/status"
        writer.put(retained_key(topic), record_of(Message(topic, bytes(PAYLOAD), 1, True, publisher="fleet"), 0.0))
    for number in range(sessions):
        _session(writer, f"device-{number:06}", waiting)
    writer.flush()
    writer.backend.sync()
    writer.backend.close()


def _session(writer: Writer, client_id: str, waiting: int) -> None:
    session = Session(client_id, Outbound(Budget(0), 0, 0, 0))
    session.number = writer.next()
    session.durable = True
    session.expiry_interval = FOR_EVER
    writer.put(number_key(SESSION, session.number), session_record(session, 0.0))
    subscription = Subscription(f"commands/{client_id}/#", 1)
    writer.put(subscription_key(session.number, subscription.name), subscription_record(subscription))
    for _ in range(waiting):
        message = Message(f"commands/{client_id}/go", bytes(PAYLOAD), 1)
        journaled = JournaledMessage(writer.next(), message, b"", b"", 0, "")
        entry = DurableDelivery(writer.next(), session.number, journaled, 1)
        writer.put(number_key(MESSAGE, journaled.number), record_of(message, 0.0))
        size = message.size()
        writer.put(delivery_key(session.number, entry.number), delivery_record(entry, size, ""))


def start(folder: Path, scratch: Path) -> tuple[float, int]:
    """Seconds until a broker on this folder has answered a client, and its memory then."""

    def command(port: int, _: Path) -> list[str]:
        words = [sys.executable, "-m", "headwater", "broker", "--port", str(port), "--log-level", "error"]
        return [*words, "--data-dir", str(folder), "--set", "max_sessions=10000000", "--set", "max_retained=10000000"]

    began = time.monotonic()
    with running(command, scratch) as broker, socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(encode(Connect("prober", 5), 5))
        client.settimeout(PATIENCE)
        if not client.recv(1):
            raise SystemExit("the broker does not answer")
        return time.monotonic() - began, broker.resident_bytes()


def measure(retained: int, sessions: int, waiting: int, tell: Callable[[str], None]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        empty_seconds, empty_bytes = start(scratch / "empty", scratch)
        tell(f"empty folder: answers after {empty_seconds:.2f} s, {empty_bytes / 2**20:.0f} MiB")
        began = time.monotonic()
        fill(scratch / "full", retained, sessions, waiting)
        took = time.monotonic() - began
        tell(f"{retained:,} retained, {sessions:,} sessions, {waiting} waiting for each: written in {took:.0f} s")
        seconds, size = start(scratch / "full", scratch)
        tell(f"full folder: answers after {seconds:.2f} s, {size / 2**20:.0f} MiB")
    return {
        "retained": retained,
        "sessions": sessions,
        "waiting_per_session": waiting,
        "seconds_empty": empty_seconds,
        "bytes_empty": empty_bytes,
        "seconds": seconds,
        "bytes": size,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench recovery", description=__doc__.split("\n\n")[0])
    parser.add_argument("--retained", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=3, help="messages that wait for each session")
    parser.add_argument("--json", type=Path, default=None, help="where the result is kept; default: docs/results")
    chosen = parser.parse_args(arguments)
    result = measure(chosen.retained, chosen.sessions, chosen.waiting, lambda text: print(text, flush=True))
    file = chosen.json or dated(Path("docs/results"), "recovery")
    write_json(file, {"machine": machine.describe("headwater broker --data-dir DIR"), **result})
    print(f"kept in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
