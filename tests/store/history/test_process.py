"""The process that brings blocks to object storage: killed at every step, and with a real S3 server that comes late."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import SecretStr

from headwater.disk.crash_points import HISTORY_POINTS, VARIABLE
from headwater.node.delivery import history as process
from headwater.node.delivery.history import HistoryProcess
from headwater.node.delivery.history_settings import HistorySettings
from headwater.objects import open_place
from headwater.store.disk_store import DiskStore
from headwater.store.history.manifest import Catalog
from headwater.store.history.reading import History
from headwater.store.history.rows import Topics, Wanted
from headwater.store.history.tiered import TieredStore
from headwater.store.retention import Retention
from tests.objects.s3_server import S3Server, s3_server
from tests.store.messages import MICROSECONDS, SECOND, Writer, found, positions

PATIENCE = 60.0


class Node:
    """A store, and the process that takes its blocks away."""

    def __init__(self, folder: Path, settings: HistorySettings) -> None:
        self.store = DiskStore(
            folder / "messages", id="s1", extraction=MICROSECONDS, retention=Retention(age=SECOND), block_messages=10,
            seal_in_background=False, has_history=True,
        )  # fmt: skip
        self.writer = Writer(self.store)
        self.history = HistoryProcess(self.store, settings)
        self.place = open_place(settings.url, settings.revealed())
        reading = History(settings.url, "s1", settings.revealed())
        self.tiered = TieredStore(self.store, reading, lambda: self.store.in_history)

    def write(self, blocks: int) -> None:
        for _ in range(blocks):
            for _ in range(10):
                now = time.time_ns() // 1000 - 5 * SECOND
                self.writer.take(f"t/{self.writer.next % 3}", b"%d" % self.writer.next, arrival=now)
            self.writer.sync()
            self.store.seal(everything=True)

    def drop(self) -> None:
        self.store.trim(time.time_ns() // 1000)

    def close(self) -> None:
        self.history.stop()
        self.store.close()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_killed_at_any_step_nothing_is_lost_and_nothing_is_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(process, "LONGEST_PAUSE", 0.01)
    orders = tmp_path / "orders"
    orders.write_text("".join(f"{point}:2\n" for point in HISTORY_POINTS if point != "history-before-delete"))
    monkeypatch.setenv(VARIABLE, f"@{orders}")
    place = tmp_path / "place"
    node = Node(tmp_path, HistorySettings(url=place.as_uri(), after=0.5))
    try:
        node.write(8)
        expected = found(node.store)
        node.history.start()
        while node.store.first < 81:
            node.drop()
            assert found(node.tiered) == expected
            time.sleep(0.01)
        assert len((tmp_path / "orders.done").read_text().splitlines()) == len(HISTORY_POINTS) - 1
        catalog = Catalog(node.place, "s1")
        named = [(entry.first, entry.end, entry.rows) for entry in catalog.entries(catalog.load())]
        assert named == [(first, first + 10, 10) for first in range(1, 81, 10)]
        assert len(list(node.place.list("s1/messages"))) == 8  # what was put twice has one name
    finally:
        node.close()


def test_what_was_to_be_deleted_by_one_that_was_killed_is_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FIRST_PAUSE", 0.01)
    orders = tmp_path / "orders"
    orders.write_text("history-before-delete:1\n")
    monkeypatch.setenv(VARIABLE, f"@{orders}")
    node = Node(tmp_path, HistorySettings(url=(tmp_path / "place").as_uri(), after=0.5, keep_for=4.0))
    try:
        node.write(3)
        node.history.start()
        wait_until((tmp_path / "orders.done").exists)
        wait_until(lambda: node.store.in_history == (31, 31))
        node.drop()
        assert positions(node.tiered) == []
        catalog = Catalog(node.place, "s1")
        assert catalog.sweep(catalog.load(), older=-1.0) == 3
        assert [each.name for each in node.place.list()] == ["s1/manifest.json"]
    finally:
        node.close()


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def settings(url: str, options: dict[str, str]) -> HistorySettings:
    quick = {**options, "max_retries": "1", "retry_timeout": "1s"}
    return HistorySettings(url=url, after=0.5, options={name: SecretStr(value) for name, value in quick.items()})


def test_blocks_stay_while_object_storage_is_away_and_go_when_it_is_back(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    listening.close()
    node = Node(tmp_path, settings(f"{s3.bucket()}/deep/down", s3.options(port)))
    try:
        node.write(4)
        expected = found(node.store)
        node.history.start()
        wait_until(lambda: node.history.seen.failures > 0)
        node.drop()
        assert node.store.trim(time.time_ns() // 1000).held_by == "object storage"
        assert node.store.first == 1
        assert found(node.tiered) == expected
        assert "object storage is away, blocks stay on the disk until it is back" in caplog.text
        assert "hush-hush" not in f"{caplog.text}{node.history.view()}{node.history._settings!r}"
        with Forwarded(port, s3.port):
            wait_until(lambda: node.history.seen.end == 41)
            assert (node.history.seen.failure, node.history.seen.objects) == ("", 4)
            node.drop()
            assert node.store.first == 41
            assert found(node.tiered) == expected
            reading = History(node.history.seen.url, "s1", s3.options(port))
            some = Wanted(topics=Topics("t/1"), beginning="t/1", after=4)
            rows = pa.Table.from_batches(reading.parts(some, 41, ("position", "payload")))
            assert rows.column("position").to_pylist() == list(range(7, 41, 3))
    finally:
        node.close()


class Forwarded:
    """A port from which connections lead to another, as long as the context."""

    def __init__(self, port: int, to: int) -> None:
        self._to = to
        self._listening = socket.create_server(("127.0.0.1", port))
        self._ends: list[socket.socket] = []

    def __enter__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        for each in self._ends:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._ends += [caller, server]
            for source, target in ((caller, server), (server, caller)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
