"""Folders that are used, or not to be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.disk.lock import LOCK, FolderLock, InUse, locked, make_folder

LOCKING = """
import sys
from pathlib import Path
from headwater.disk.lock import FolderLock, InUse
try:
    FolderLock(Path(sys.argv[1]))
except InUse as error:
    print(error)
"""


def in_another_process(folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", LOCKING, str(folder)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


def test_one_at_a_time_until_it_is_released(tmp_path: Path) -> None:
    expected = f"is used by another running process (process {os.getpid()}); stop that one first"
    lock = FolderLock(tmp_path)
    with pytest.raises(InUse) as error:
        FolderLock(tmp_path)
    assert expected in str(error.value)
    assert expected in in_another_process(tmp_path)
    lock.release()
    lock.release()
    assert in_another_process(tmp_path) == ""
    FolderLock(tmp_path).release()  # the other process has ended, and its right with it


def test_for_the_time_of_a_block(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(InUse):
        FolderLock(tmp_path)
    said = f"cannot use the data folder {tmp_path}: a part of it is missing"
    with pytest.raises(StorageError, match=said), locked(tmp_path):
        (tmp_path / "not there").read_bytes()
    FolderLock(tmp_path).release()
    with pytest.raises(StorageError, match="cannot use the data folder"), locked(tmp_path / "not there"):
        raise AssertionError("there is nothing to lock")


def test_what_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises(StorageError, match="Is a directory"), locked(tmp_path):
        raise AssertionError("there is nothing to lock")


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    for path, said in (
        (tmp_path / "b" / "c", f"there is no {tmp_path / 'b'}; make that one first"),
        (tmp_path / "file", "is not a folder"),
        (Path("/proc/headwater"), "nothing can be made in /proc; name another folder"),
    ):
        with pytest.raises(StorageError) as error:
            make_folder(path)
        assert said in str(error.value)
