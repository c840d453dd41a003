"""A store whose log is damaged: what is lost is told and recorded, and all that is whole is there again."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.disk.repair import DamagedLog
from headwater.disk.wal import Batch, changes_of, read_log
from headwater.store.disk_store import DiskStore
from headwater.store.mending import examine_messages, repair_messages
from headwater.store.page import rows_in
from headwater.store.query import Query
from headwater.store.retention import Retention
from headwater.store.shelf import LOG, TOPIC, position_in
from tests.disk.killed import copy_as_killed
from tests.store.messages import NOON, SECOND, Writer, found, positions

AGED = Retention(age=100 * SECOND)


def opened(path: Path) -> DiskStore:
    return DiskStore(path, cache=1 << 20, block_messages=4, seal_in_background=False, retention=AGED)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with 60 messages in 30 commits of which 8 were removed, as a kill leaves it; blocks were made all the
    while."""
    store = opened(tmp_path / "messages")
    writer = Writer(store)
    for number in range(30):
        for part in (1, 2):
            writer.take(f"t/{number // 8}", b"%d.%d" % (number, part), arrival=NOON + number * 10 * SECOND)
        writer.sync()
        if number % 5 == 4 and number < 20:
            store.seal()
        if number == 15:
            store.trim(NOON + 145 * SECOND)
    store.commit("reader", store.next - 3)
    copy = copy_as_killed(tmp_path / "messages", tmp_path / "copy")
    store.close()
    return copy


def the_log(folder: Path) -> Path:
    [log] = (folder / "db").glob("*.log")
    return log


def flipped(folder: Path, at: int, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.rmtree(to.with_name("aside"), ignore_errors=True)
    shutil.copytree(folder, to)
    content = bytearray(the_log(to).read_bytes())
    content[at] ^= 0x20
    the_log(to).write_bytes(content)
    return to


def lost_with(batch: Batch) -> tuple[set[int], set[str]]:
    """Positions and names of topics that only this batch had."""
    positions: set[int] = set()
    names: set[str] = set()
    for change in changes_of(batch):
        if change.value is not None and change.key.startswith(LOG) and change.family == 0:
            first = position_in(change.key)
            positions.update(range(first, first + rows_in(change.value)))
        if change.value is not None and change.key.startswith(TOPIC) and change.family == 0:
            names.add(change.value.decode())
    return positions, names


def test_any_damaged_batch_is_told_of_and_all_others_are_there_again(made: Path, tmp_path: Path) -> None:
    store = opened(shutil.copytree(made, tmp_path / "whole"))
    whole = {entry.position: (entry.topic, entry.payload) for entry in found(store)}
    first, next = store.first, store.next
    unsealed = next - store.statistics().unsealed
    store.close()
    batches = [each for each in read_log(the_log(made)) if isinstance(each, Batch)]
    assert len(batches) > 45
    for batch in [*batches[:-8:5], *batches[-8:-1]]:  # all of them have been tried
        damaged = flipped(made, batch.begin + 10, tmp_path / "damaged")
        lost, names = lost_with(batch)
        lost = {position for position in lost if position >= unsealed}  # the others are in a block as well
        with pytest.raises(DamagedLog):
            opened(damaged)
        mended = repair_messages(damaged, tmp_path / "aside")
        gaps = set().union(*(range(*each) for each in mended.lost))
        if next - 1 in lost:  # nothing says how many they were
            assert lost < gaps
            assert len(mended.lost) == 1
        else:
            assert gaps == lost
        store = opened(damaged)
        there = {entry.position: (entry.topic, entry.payload) for entry in found(store)}
        assert {at: payload for at, (_, payload) in there.items() if at in whole} == {
            at: payload for at, (_, payload) in whole.items() if at not in lost
        }
        for at, (topic, _) in there.items():
            if at in whole:
                assert topic == whole[at][0] or (topic.startswith("$lost/") and whole[at][0] in names)
        assert store.next == max(next, max(gaps, default=0) + 1)
        assert store.first <= first
        behind = store.next
        Writer(store).write("t/0")
        store.seal(everything=True)
        assert positions(store, Query(after=next - 1)) == [behind]
        store.close()
        store = opened(damaged)
        assert len(found(store)) == len(there) + 1
        store.trim(NOON * 2)
        assert store.next == behind + 1
        store.close()


def test_what_is_lost_is_said_in_figures_and_at_every_start(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [each for each in read_log(the_log(made)) if isinstance(each, Batch)]
    hit = next(each for each in batches if min(lost_with(each)[0], default=0) > 45)
    [first, last] = sorted(lost_with(hit)[0])
    damaged = flipped(made, hit.begin + 20, tmp_path / "damaged")
    with pytest.raises(DamagedLog, match=f"lost: messages {first} to {last}; nothing was changed: restore a backup"):
        opened(damaged)
    [damage], text = examine_messages(damaged / "db")
    assert (damage.begin, damage.end) == (hit.begin, hit.end)
    assert text == f"messages {first} to {last}"
    assert f"positions lost: {first} to {last};" in str(repair_messages(damaged, tmp_path / "aside"))
    assert repair_messages(damaged, tmp_path / "aside").lost == []  # a second time there is nothing to do
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            opened(damaged).close()
        assert f"repaired without them: {first} to {last}" in caplog.text
    store = opened(damaged)
    assert store.reader("reader").position == 58
    store.close()


def test_without_damage_nothing_changes(made: Path, tmp_path: Path) -> None:
    assert examine_messages(made / "db") == ([], "")
    assert str(repair_messages(made, tmp_path / "aside")) == "all messages are there"
    assert not (tmp_path / "aside").exists()
    with pytest.raises(StorageError, match="there is no store of messages"):
        repair_messages(tmp_path / "nowhere", tmp_path / "aside")
