"""A node's id is kept, and its boot grows with each start, whatever the clock says."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest

from headwater.node.links import identity
from headwater.node.links.identity import EPOCH, FILE, begin_life
from headwater.node.persistence.folder import NOT_A_COPY
from headwater.node.settings import ConfigError
from headwater.peering.frames.fields import is_node_id
from headwater.peering.frames.frame import MAX_BOOT


def test_a_node_without_an_id_makes_one_up_and_keeps_it(tmp_path: Path) -> None:
    first, second = begin_life(tmp_path, ""), begin_life(tmp_path, "")
    assert is_node_id(first.node)
    assert second.node == first.node
    assert second.boot > first.boot
    assert begin_life(None, "").node != begin_life(None, "").node


def test_lives_are_told_apart_though_they_begin_in_one_second(tmp_path: Path) -> None:
    boots = [begin_life(tmp_path, "a").boot for _ in range(5)]
    assert boots == sorted(set(boots))


def test_lives_without_a_folder_are_told_apart_too() -> None:
    boots = [begin_life(None, "b").boot for _ in range(5)]
    assert boots == sorted(set(boots))


def test_processes_that_follow_each_other_at_once_have_lives_of_their_own() -> None:
    """Without a data folder, nothing but the clock tells them apart; here, not even the start of Python."""
    context = multiprocessing.get_context("fork")
    boots: list[int] = []
    for _ in range(4):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=lambda sender: sender.send(begin_life(None, "forked").boot), args=(sender,))
        process.start()
        boots.append(receiver.recv())
        process.kill()
        process.join()
    assert boots == sorted(set(boots))


def test_a_life_without_a_folder_does_not_begin_before_its_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [EPOCH + 1000.1]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    assert begin_life(None, "quartered").boot == 4001
    assert clock[0] == pytest.approx(EPOCH + 1000.25)


def test_with_a_folder_or_an_id_of_its_own_a_life_begins_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    begin_life(tmp_path, "a")
    begin_life(None, "")


def test_boots_are_quarters_of_a_second_and_fit_for_decades(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = {"2027-01-01T00:00:00+00:00": 4 * 365 * 86400, "2060-01-01T00:00:00+00:00": 4 * 1_072_915_200}
    for moment, boot in moments.items():
        monkeypatch.setattr(time, "time", datetime.fromisoformat(moment).timestamp)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        assert begin_life(None, f"at-{moment[:4]}").boot == boot + 1 < MAX_BOOT


def test_a_clock_that_goes_back_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin_life(tmp_path, "a")
    monkeypatch.setattr(time, "time", lambda: 5.0)
    identity._last.clear()  # as in another process
    assert begin_life(tmp_path, "a").boot == first.boot + 1


def test_a_boot_of_a_clock_that_was_ahead_is_outranked(tmp_path: Path) -> None:
    far = int(time.time())
    (tmp_path / FILE).write_text(json.dumps({"node": "a", "boot": far}))
    assert begin_life(tmp_path, "a").boot == far + 1


def test_who_cannot_come_back_says_so(tmp_path: Path) -> None:
    assert begin_life(tmp_path, "").is_kept
    assert begin_life(None, "a").is_kept
    assert not begin_life(None, "").is_kept


def test_the_folder_of_another_node_is_refused_with_advice(tmp_path: Path) -> None:
    begin_life(tmp_path, "a")
    with pytest.raises(ConfigError, match="is the data folder of node 'a'"):
        begin_life(tmp_path, "b")
    assert begin_life(tmp_path, "").node == "a"


# ---- copies of a folder ----------------------------------------------------------------------------------------------


def test_spools_keep_their_names_as_long_as_the_folder_is_no_copy(tmp_path: Path) -> None:
    first = begin_life(tmp_path, "a")
    assert first.since == first.boot
    assert [begin_life(tmp_path, "a").since for _ in range(3)] == [first.since] * 3
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert begin_life(moved, "a").since == first.since


def test_a_copy_of_a_folder_is_known_by_the_times_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    begin_life(tmp_path / "a", "a")
    subprocess.check_call(["cp", "-a", tmp_path / "a", tmp_path / "copy"])
    copied = begin_life(tmp_path / "copy", "a")
    assert copied.since == copied.boot
    assert begin_life(tmp_path / "copy", "a").since == copied.boot


def test_one_that_comes_back_to_the_place_of_the_original_is_known_too(tmp_path: Path) -> None:
    """Its files may have the same inodes."""
    folder = tmp_path / "a"
    folder.mkdir()
    first = begin_life(folder, "a")
    subprocess.check_call(["cp", "-a", folder, tmp_path / "copy"])
    begin_life(folder, "a")
    shutil.rmtree(folder)
    subprocess.check_call(["cp", "-a", tmp_path / "copy", folder])
    assert begin_life(folder, "a").since > first.since


def test_what_was_restored_or_mended_is_taken_for_a_copy(tmp_path: Path) -> None:
    begin_life(tmp_path, "a")
    (tmp_path / NOT_A_COPY).unlink()
    found = begin_life(tmp_path, "a")
    assert found.since == found.boot


def test_a_start_that_was_cut_off_forgets_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_life(tmp_path, "a")
    (tmp_path / NOT_A_COPY).unlink()
    with monkeypatch.context() as patched, pytest.raises(OSError, match="cut off"):
        patched.setattr(identity, "write_whole", fail)
        begin_life(tmp_path, "a")
    found = begin_life(tmp_path, "a")
    assert found.since == found.boot


def fail(*arguments: object) -> None:
    raise OSError("cut off")


# ---- files that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"node": 1, "boot": 2}', '{"node": "a", "boot": "x"}', "null"]
)
def test_a_file_that_makes_no_sense_is_refused_with_advice(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ConfigError, match="delete it to be a new node"):
        begin_life(tmp_path, "a")


@pytest.mark.parametrize("node", ["", "two words", "x" * 33, "ä"])
def test_an_id_that_no_node_may_have_is_refused(tmp_path: Path, node: str) -> None:
    (tmp_path / FILE).write_text(json.dumps({"node": node, "boot": 1}))
    with pytest.raises(ConfigError, match="delete it to be a new node"):
        begin_life(tmp_path, "")


@pytest.mark.parametrize("boot", [-1, MAX_BOOT + 1, True])
def test_a_boot_that_no_life_may_have_is_refused(tmp_path: Path, boot: int) -> None:
    (tmp_path / FILE).write_text(json.dumps({"node": "a", "boot": boot}))
    with pytest.raises(ConfigError, match="delete it to be a new node"):
        begin_life(tmp_path, "")


def test_an_interrupted_write_leaves_the_former_life(tmp_path: Path) -> None:
    first = begin_life(tmp_path, "a")
    (tmp_path / f"{FILE}.new").write_text('{"node": "a"')
    assert begin_life(tmp_path, "a").boot > first.boot
