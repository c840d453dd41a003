"""The spool: numbers, ranges, bounds, and what is left of it after a crash at any byte."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.pipeline.mqtt.record import Arrival, RecordStream
from headwater.pipeline.mqtt.segment import segment_paths
from headwater.pipeline.mqtt.spool import DamagedSpool, Released, Spool, Unknown

PLENTY = 1 << 30


def opened(folder: Path, most_bytes: int = PLENTY, most_messages: int = PLENTY, segment_bytes: int = 200) -> Spool:
    return Spool(folder, most_bytes, most_messages, segment_bytes)


def arrival(number: int, size: int = 10) -> Arrival:
    return Arrival(f"topic/{number}", bytes([number % 256]) * size, 1, packet_id=number % 65_535 + 1, session=1)


def read(spool: Spool, first: int, next: int) -> list[Arrival]:
    stream = RecordStream()
    found: list[Arrival] = []
    for piece in spool.slices(first, next):
        found += stream.feed(piece.path.read_bytes()[piece.begin : piece.end])
    return found


def test_ranges_are_read_as_they_were_written_over_many_segments(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    everything = [arrival(number) for number in range(100)]
    for at in range(0, 100, 3):
        assert spool.append(everything[at : at + 3]) == at
    assert len(list(segment_paths(tmp_path))) > 5
    for first, next in ((0, 100), (7, 8), (50, 50), (99, 100), (13, 77)):
        assert read(spool, first, next) == everything[first:next]
    assert read(opened(tmp_path), 13, 77) == everything[13:77]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append([arrival(number) for number in range(10)])
    spool.release(4)
    with pytest.raises(Released, match="before 4"):
        spool.slices(3, 10)
    with pytest.raises(Unknown, match="up to 10, not 11"):
        spool.slices(4, 11)
    with pytest.raises(Unknown):
        spool.release(11)
    assert read(spool, 4, 10) == [arrival(number) for number in range(4, 10)]


def test_released_segments_are_deleted_and_numbers_go_on(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for number in range(50):
        spool.append([arrival(number)])
    spool.release(50)
    assert len(list(segment_paths(tmp_path))) == 1
    spool.release(10)  # old news
    again = opened(tmp_path)
    assert (again.released, again.next, again.id, again.bytes) == (50, 50, spool.id, 0)
    assert again.append([arrival(50)]) == 50


def test_it_is_full_by_messages_and_by_bytes_until_something_is_released(tmp_path: Path) -> None:
    by_messages = opened(tmp_path / "a", most_messages=3)
    seen = []
    for number in range(3):
        seen.append((by_messages.room[0], by_messages.is_full))
        by_messages.append([arrival(number)])
    seen.append((by_messages.room[0], by_messages.is_full))
    assert seen == [(3, False), (2, False), (1, False), (0, True)]
    assert opened(tmp_path / "a", most_messages=3).is_full
    by_messages.release(1)
    assert by_messages.room[0] == 1
    by_bytes = opened(tmp_path / "b", most_bytes=500)
    by_bytes.append([arrival(0, 600)])
    assert by_bytes.room[1] < 0
    by_bytes.release(1)
    assert by_bytes.bytes == 0 and not by_bytes.is_full


def test_a_tail_cut_at_any_byte_leaves_the_whole_records_before_it(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    spool = opened(whole, segment_bytes=PLENTY)
    everything = [arrival(number) for number in range(5)]
    ends = []
    for each in everything:
        spool.append([each])
        ends.append(next(segment_paths(whole)).stat().st_size)
    for cut in range(ends[-1] + 1):
        copy = tmp_path / str(cut)
        shutil.copytree(whole, copy)
        path = next(segment_paths(copy))
        path.write_bytes(path.read_bytes()[:cut])
        left = opened(copy, segment_bytes=PLENTY)
        count = sum(end <= cut for end in ends)
        assert left.next == count
        assert read(left, 0, count) == everything[:count]
        assert left.append([arrival(77)]) == count
        assert read(opened(copy), 0, count + 1) == [*everything[:count], arrival(77)]


def test_a_tail_of_rubbish_is_cut_off(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append([arrival(0)])
    path = next(segment_paths(tmp_path))
    for rubbish in (bytes(64), b"\xff" * 64, path.read_bytes()[:-1]):
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(rubbish)
        assert opened(tmp_path).next == 1
        assert path.stat().st_size == size


def test_damage_that_no_crash_makes_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    spool = opened(tmp_path / "whole")
    for number in range(20):
        spool.append([arrival(number)])
    for name, spoil in (
        ("changed", lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!")),
        ("cut", lambda path: path.write_bytes(path.read_bytes()[:30])),
        ("gone", Path.unlink),
    ):
        for victim in (0, 1):
            copy = tmp_path / f"{name}{victim}"
            shutil.copytree(tmp_path / "whole", copy)
            spoil(list(segment_paths(copy))[victim])
            with pytest.raises(DamagedSpool, match="failOnSpoolLoss=false"):
                opened(copy)


def test_a_flipped_byte_is_an_error_unless_it_is_in_the_last_record(tmp_path: Path) -> None:
    """Else numbers that Spark has logged would be given to other messages."""
    spool = Spool(tmp_path / "whole", 1 << 20, 1000)
    for number in range(4):
        spool.append([arrival(number)])
    [path] = segment_paths(tmp_path / "whole")
    whole = path.read_bytes()
    last = spool.slices(3, 4)[0].begin
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        if at < last:
            with pytest.raises(DamagedSpool, match="whole records follow from byte"):
                opened(tmp_path / "whole")
        else:
            assert opened(tmp_path / "whole").next == 3


def test_what_was_released_is_not_missed_when_a_disk_forgot_the_rest(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append([arrival(number) for number in range(10)])
    spool.release(8)
    for path in segment_paths(tmp_path):
        path.unlink()
    left = opened(tmp_path)
    assert (left.released, left.next) == (8, 8)
    assert left.append([arrival(8)]) == 8


def test_released_is_on_disk_before_anybody_can_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else a broker could be told of what a crash takes back."""
    spool = opened(tmp_path)
    spool.append([arrival(0)])
    seen = []
    original = Path.exists
    monkeypatch.setattr(
        "headwater.pipeline.mqtt.progress.write_whole", lambda path, text: seen.append((spool.released, original(path)))
    )
    spool.release(1)
    assert seen == [(0, True)]
    assert spool.released == 1


def test_sessions_and_filters_are_remembered(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert spool.session_of(0) == 0 and spool.connections == 0
    spool.new_session(0)
    spool.new_session(3)
    spool.new_session(3)
    spool.remember_filters(["a/#"])
    again = opened(tmp_path)
    assert [again.session_of(each) for each in (0, 1, 3)] == [1, 0, 2]
    assert again.connections == 2 and again.filters == ["a/#"]


class AnyLife(RuleBasedStateMachine):
    """Appends, releases, crashes with a torn tail: the spool is always what was appended, from `released` on."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.spool = opened(self.folder)
        self.all: list[Arrival] = []
        self.released = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        new = [arrival(len(self.all) + number, size) for number, size in enumerate(sizes)]
        assert self.spool.append(new) == len(self.all)
        self.all += new

    @rule(part=st.floats(0, 1))
    def release(self, part: float) -> None:
        self.released += round((len(self.all) - self.released) * part)
        self.spool.release(self.released)

    @rule(torn=st.binary(max_size=30))
    def crash(self, torn: bytes) -> None:
        with list(segment_paths(self.folder))[-1].open("ab") as file:
            file.write(torn)
        self.spool = opened(self.folder)
        assert self.spool.unreleased_at_start == list(enumerate(self.all))[self.released :]

    @invariant()
    def it_is_what_was_appended(self) -> None:
        assert (self.spool.released, self.spool.next) == (self.released, len(self.all))
        assert read(self.spool, self.released, len(self.all)) == self.all[self.released :]
        assert self.spool.first <= self.released


AnyLife.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestAnyLife = AnyLife.TestCase
