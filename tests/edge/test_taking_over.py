"""Taking a store over, without processes: what the source may say, and what comes damaged."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.disk.errors import StorageError
from headwater.edge import taking_over as module
from headwater.edge.http_source import LARGEST, HttpSource
from headwater.edge.taking_over import SourceAway, SourceRefuses, TakeOverError, Took, take_over
from headwater.store.disk_store import DiskStore
from headwater.store.hand_over import HandedOver, check_own, read_fence, read_take_over
from tests.store.messages import Writer, found


class SomeSource:
    """A store in this process; `before_fence` happens when the fence is asked for."""

    url = "http://old"

    def __init__(self, folder: Path) -> None:
        self.store = DiskStore(folder / "old", id="s1", block_messages=7)
        self.writer = Writer(self.store)
        self._folder = folder
        self._copies = 0
        self.frozen = False
        self.released = 0
        self.fetched: list[str] = []
        self.before_fence: Callable[[], None] = lambda: None
        self.spoil: Callable[[str, bytes], bytes] = lambda name, data: data
        self.is_away = False
        self.begun = 0

    def write(self, count: int) -> None:
        self.writer.write(*[f"plant/{number % 5}" for number in range(count)])

    def ask(self, path: str, order: dict[str, Any] | None = None) -> dict[str, Any]:
        if self.is_away:
            raise SourceAway("http://old does not answer")
        what = path.rpartition("/")[2]
        if what == "":
            if order is None:
                fence = read_fence(self.store.path)
                return {"fence": None if fence is None else fence._asdict()}
            self.begun += 1
            return {"hand_over": f"h{self.begun}", "store": "s1"}
        if what == "copy":
            return self._copied()
        if what == "freeze":
            self.frozen = True
        elif what == "release":
            self.released += 1
            self.frozen = False
        elif what == "fence":
            assert order is not None
            self.before_fence()
            if self.store.next - 1 != order["position"]:
                raise SourceRefuses("more was taken")
            self.store.hand_over(path.split("/")[1], "new")
        return {}

    def _copied(self) -> dict[str, Any]:
        self._copies += 1
        path = self._folder / f"copy{self._copies}"
        self.store.prepare_checkpoint()
        self.store.checkpoint(path)
        files = sorted(each for each in path.rglob("*") if each.is_file())
        described = [
            {"name": str(each.relative_to(path)), "size": each.stat().st_size, "sha256": module._sum_of(each)}
            for each in files
        ]
        return {"files": described, "first": self.store.first, "next": self.store.next}

    def fetch(self, hand_over: str, name: str) -> Iterator[bytes]:
        self.fetched.append(name)
        data = (self._folder / f"copy{self._copies}" / name).read_bytes()
        yield self.spoil(name, data)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SomeSource]:
    made = SomeSource(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new"


@pytest.fixture
def httpserver_of() -> Iterator[Callable[[bytes], str]]:
    """A server that answers everything with these bytes."""
    said = [b""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(said[0])))
            self.end_headers()
            with contextlib.suppress(OSError):  # who has read enough
                self.wfile.write(said[0])

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def of(body: bytes) -> str:
            said[0] = body
            return f"http://127.0.0.1:{server.server_port}"

        yield of
        server.shutdown()


def take(folder: Path, source: SomeSource) -> Took:
    return take_over(folder, source, "new")


def test_all_of_it_is_there_with_its_id_and_positions(source: SomeSource, folder: Path) -> None:
    source.write(40)
    source.store.commit("lake", 17)
    expected = found(source.store)
    took = take(folder, source)
    assert (took.store, took.position, took.messages) == ("s1", 40, 40)
    with pytest.raises(HandedOver):
        source.write(1)
    store = DiskStore(folder, block_messages=7)
    try:
        assert store.id == "s1"
        assert found(store) == expected
        assert store.reader("lake").position == 17
        Writer(store).write("plant/1")
        assert store.next == 42
    finally:
        store.close()
    assert source.released == 0, "who has the topics now is not said yet"


def test_a_note_of_the_other_nodes_sessions_stays_there(source: SomeSource, folder: Path) -> None:
    source.writer.take("plant/1")
    source.writer.append(b"changes of sessions")
    source.store.sync()
    assert source.store.note()
    take(folder, source)
    store = DiskStore(folder)
    assert store.note() == b""
    store.close()


def test_a_round_fetches_what_has_come_since(source: SomeSource, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", -1)
    monkeypatch.setattr(module, "MOST_ROUNDS", 3)
    source.write(40)
    took = take(folder, source)
    assert took.rounds == 4
    assert len([name for name in source.fetched if name.endswith(".sst")]) == len(
        {name for name in source.fetched if name.endswith(".sst")}
    ), "sorted files never change"


def test_what_came_before_the_fence_takes_another_round(source: SomeSource, folder: Path) -> None:
    source.write(5)
    wills = [3]

    def will() -> None:
        if wills:
            source.write(wills.pop())

    source.before_fence = will
    took = take(folder, source)
    assert took.position == 8
    store = DiskStore(folder)
    assert len(found(store)) == 8
    store.close()


def test_if_more_comes_with_every_round_the_source_keeps_it(source: SomeSource, folder: Path) -> None:
    source.before_fence = lambda: source.write(1)
    with pytest.raises(TakeOverError, match="more came with every round"):
        take(folder, source)
    assert source.released == 1
    assert not source.frozen
    source.write(1)
    with pytest.raises(StorageError, match="is being taken over from http://old"):
        DiskStore(folder)
    source.before_fence = lambda: None
    assert take(folder, source).position == source.store.next - 1


@pytest.mark.parametrize("how", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"?" + data[1:]])
def test_a_file_that_came_damaged_ends_it(source: SomeSource, folder: Path, how: Callable[[bytes], bytes]) -> None:
    source.write(20)
    source.spoil = lambda name, data: how(data) if name.endswith(".sst") else data
    with pytest.raises(TakeOverError, match="came damaged"):
        take(folder, source)
    assert source.released == 1
    source.spoil = lambda name, data: data
    assert take(folder, source).messages == 20


@pytest.mark.parametrize(
    "name", ["../x", "db/../../x", "/etc/passwd", "db/", "db/..", "x", "db/a/b", "taking-over.json", "db/a\0b"]
)
def test_no_file_is_written_elsewhere(source: SomeSource, folder: Path, name: str) -> None:
    real = source._copied
    source._copied = lambda: {**real(), "files": [{"name": name, "size": 0, "sha256": ""}]}  # type: ignore[method-assign]
    with pytest.raises(TakeOverError, match="which no store has"):
        take(folder, source)
    assert source.fetched == []


def test_a_copy_that_is_not_what_was_said_is_not_taken(source: SomeSource, folder: Path) -> None:
    source.write(4)
    real = source._copied
    source._copied = lambda: {**real(), "next": 9}  # type: ignore[method-assign]
    with pytest.raises(TakeOverError, match="expected were s1, 1 to 8"):
        take(folder, source)
    assert read_fence(source.store.path) is None


def test_a_folder_with_a_store_is_not_touched(source: SomeSource, folder: Path) -> None:
    DiskStore(folder, id="mine").close()
    with pytest.raises(TakeOverError, match="there is a store in"):
        take(folder, source)
    assert source.begun == 0
    with pytest.raises(TakeOverError, match="was handed over to new itself"):
        source.store.hand_over("h", "new")
        take(source.store.path, source)


def test_a_source_that_is_away_at_the_end_is_asked_again(source: SomeSource, folder: Path) -> None:
    source.write(4)

    def gone() -> None:
        source.store.hand_over("h1", "new")
        source.is_away = True
        raise SourceAway("http://old does not answer")

    source.before_fence = gone
    with pytest.raises(SourceAway):
        take(folder, source)
    taking = read_take_over(folder)
    assert taking is not None and taking.step == "ready"
    with pytest.raises(SourceAway):
        take(folder, source)
    source.is_away = False
    assert take(folder, source).pause == 0.0
    check_own(folder)


def test_a_fence_of_another_hand_over_is_not_ours(source: SomeSource, folder: Path) -> None:
    source.write(4)
    source.before_fence = lambda: (_ for _ in ()).throw(SourceAway("gone"))
    with pytest.raises(SourceAway):
        take(folder, source)
    fence = source.store.hand_over("another", "somebody")
    with pytest.raises(TakeOverError, match="handed over to somebody, not in this hand-over"):
        take(folder, source)
    assert json.loads((source.store.path / "handed-over.json").read_text()) == fence._asdict()


@pytest.mark.parametrize("wrong", [{"store": "s2"}, {"position": 9}])
def test_a_fence_of_something_else_than_was_copied_adopts_nothing(
    source: SomeSource, folder: Path, wrong: dict[str, Any]
) -> None:
    source.write(4)
    source.before_fence = lambda: (_ for _ in ()).throw(SourceAway("gone"))
    with pytest.raises(SourceAway):
        take(folder, source)
    fence = source.store.hand_over("h1", "new")
    with pytest.raises(TakeOverError, match="not of what was copied"):
        take_over(folder, source, "new", fence=fence._replace(**wrong))
    assert read_take_over(folder) is not None


@pytest.mark.parametrize(
    "answer", [{}, {"files": 7, "first": 1, "next": 1}, {"files": [{}]}, {"files": [7]}, {"files": [{"name": 7}]}]
)
def test_a_source_that_answers_something_else(source: SomeSource, folder: Path, answer: dict[str, Any]) -> None:
    source._copied = lambda: answer  # type: ignore[method-assign]
    with pytest.raises(TakeOverError, match="answers something else"):
        take(folder, source)
    assert source.released == 1


def test_an_answer_that_is_none_ends_it(httpserver_of: Callable[[bytes], str]) -> None:
    for body in (b"<html>", b"[1]", b"[" * 100_000, b" " * (LARGEST + 1)):
        with pytest.raises(SourceRefuses, match="is it the admin API"):
            HttpSource(httpserver_of(body), "token").ask("")


def test_a_fence_that_cannot_be_read_opens_nothing(source: SomeSource) -> None:
    source.store.close()
    (source.store.path / "handed-over.json").write_text("{")
    with pytest.raises(StorageError, match="is damaged"):
        DiskStore(source.store.path)
    (source.store.path / "handed-over.json").unlink()
    source.store = DiskStore(source.store.path)
