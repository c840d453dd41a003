"""What is said when a folder cannot be used."""

from __future__ import annotations

import pytest

from headwater.disk.errors import storage_error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("IO error: No space left on device: While appending to file: /d/1.log: No space left on device", "full"),
        ("IO error: While open a file for appending: /d/LOG: Read-only file system", "the file system is read-only"),
        ("IO error: While pwrite to file: /d/1.log: Input/output error", "the disk does not work as it should"),
        ("IO error: While lock file: /d/LOCK: Resource temporarily unavailable", "another process has it open"),
        ("IO error: While mkdir: /d: Permission denied", "this user may not"),
        ("Strange: never seen", "cannot open the store /d: Strange: never seen"),
    ],
)
def test_reasons(text: str, said: str) -> None:
    assert said in str(storage_error("open the store /d", text))
    assert text in str(storage_error("open the store /d", text))
