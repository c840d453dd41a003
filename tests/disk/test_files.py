"""What is said to be on disk was synced; a real power cut is for the chaos bench's disks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.disk.files import sync_folder, write_whole


def test_a_file_is_synced_when_all_of_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append((name_of(number), os.fstat(number).st_size)))
    write_whole(tmp_path / "file", b"content")
    write_whole(tmp_path / "file", b"other")
    assert (tmp_path / "file").read_bytes() == b"other"
    assert synced == [(str(tmp_path / "file"), 7), (str(tmp_path / "file"), 5)]


def test_a_folder_is_synced_and_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(number), names.append(name_of(number))))
    sync_folder(tmp_path)
    assert names == [str(tmp_path)]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(synced[0])


def name_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
