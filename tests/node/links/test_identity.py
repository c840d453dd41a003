"""A node's id is kept, and its boot grows with each start, whatever the clock says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headwater.node.links.identity import FILE, begin_life
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


def test_a_clock_that_goes_back_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin_life(tmp_path, "a")
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert begin_life(tmp_path, "a").boot == first.boot + 1


def test_a_boot_of_a_clock_that_was_ahead_is_outranked(tmp_path: Path) -> None:
    far = int(time.time()) + 100_000
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
