"""Compaction and vacuum: fewer files, the same rows and notes; and what nobody names goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headwater.pipeline.lake.files import write_files
from headwater.pipeline.lake.folder import Lake
from headwater.pipeline.lake.log import LakeError
from headwater.pipeline.lake.upkeep import tidy
from headwater.pipeline.tables import LIVE
from tests.pipeline.lake.live_rows import live_rows

HOUR = 3600.0


def filled(lake: Lake, commits: int) -> None:
    log = lake.log(LIVE)
    for number in range(1, commits + 1):
        files = write_files([live_rows("a", number, number)], str(log.folder), log.partition)
        log.commit(files, {"app": number}, job="job", positions={"a": number})


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR
    os.utime(path, (then, then))


def test_many_files_become_few_and_nothing_else_changes(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 20)
    before = lake.log(LIVE).open().to_pyarrow_table().sort_by("position")
    done = tidy(lake, LIVE)
    assert (done.before, done.after) == (20, 1)
    assert lake.log(LIVE).open().to_pyarrow_table().sort_by("position") == before
    snapshot = lake.snapshot(LIVE)
    assert snapshot.positions("job") == {"a": 20} and snapshot.note("app") == 20
    assert snapshot.files_with({"a": (0, 1)}) == snapshot.files and snapshot.files_with({"a": (20, 30)}) == []


def test_few_files_are_left_as_they_are(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 3)
    assert tidy(lake, LIVE).after == 3


def test_files_that_no_commit_names_go_when_they_are_old(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake, 2)
    folder = lake.path(LIVE)
    [young] = write_files([live_rows("a", 9, 9)], str(folder), LIVE.partition)
    [old] = write_files([live_rows("a", 8, 8)], str(folder), LIVE.partition)
    age(folder / old.path, 30)
    done = tidy(lake, LIVE, keep=24)
    assert done.removed == 1
    assert not (folder / old.path).exists() and (folder / young.path).exists()
    assert lake.snapshot(LIVE).rows == 2 and lake.log(LIVE).stores() == ["a"]


def test_one_pipeline_writes_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    refused = pytest.raises(LakeError, match=f"another pipeline writes .* \\(process {os.getpid()}\\)")
    with lake.writing(), refused, lake.writing():
        pass
    with lake.writing():
        pass
