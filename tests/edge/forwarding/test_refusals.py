"""What is given up, and what is sent again when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.edge.forwarding.refusals import LONGEST_WAIT, DeadLetters, GivenUp, wait
from headwater.store.entry import Entry


def given_up(position: int, payload: bytes = b"p") -> GivenUp:
    return GivenUp(Entry(position, "t", payload, 1, False, "d", 0, 1_000_000, None), 0x95, "too large")


def test_it_waits_longer_each_time() -> None:
    assert [wait(attempts) for attempts in (1, 2, 3, 7, 1000)] == [1.0, 2.0, 4.0, LONGEST_WAIT, LONGEST_WAIT]


def test_dead_letters_say_what_was_where_and_why(tmp_path: Path) -> None:
    path = tmp_path / "new" / "letters"
    letters = DeadLetters(path, 10_000)
    letters.write("s", [given_up(1), given_up(2, b"\xff")])
    letters.write("s", [given_up(3)])
    first, second, third = [json.loads(line) for line in path.read_text().splitlines()]
    assert first == {
        "position": "s:1",
        "topic": "t",
        "arrival": "1970-01-01T00:00:01.000000Z",
        "reason": 0x95,
        "text": "too large",
        "payload": "p",
    }
    assert second["payload_base64"] == "/w=="
    assert third["position"] == "s:3"


def test_dead_letters_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    letters = DeadLetters(path, 1000)
    for position in range(100):
        letters.write("s", [given_up(position)])
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2000
    assert {each.name for each in tmp_path.iterdir()} == {"letters", "letters.1"}
    assert json.loads(path.read_text().splitlines()[-1])["position"] == "s:99"


def test_without_a_file_they_are_not_written() -> None:
    DeadLetters(None, 1000).write("s", [given_up(1)])


def test_a_disk_that_does_not_take_them(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        DeadLetters(tmp_path, 1_000_000).write("s", [given_up(1)])
