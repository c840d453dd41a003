"""Data folders that are new, old, newer, others', used, or not to be had."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.node.persistence.backend import Backend
from headwater.node.persistence.folder import DESCRIPTION, UNFINISHED
from headwater.node.persistence.schema import SCHEMA, open_folder


def refused(path: Path) -> str:
    with pytest.raises(StorageError) as error:
        open_folder(path).close()
    return str(error.value)


def in_another_process(path: Path, before: str = "") -> str:
    """What opening says there."""
    script = f"""
{before}
from pathlib import Path
from headwater.disk.errors import StorageError
from headwater.node.persistence.schema import open_folder
try:
    open_folder(Path({str(path)!r})).close()
except StorageError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


def test_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    open_folder(folder).close()
    described = json.loads((folder / DESCRIPTION).read_text())
    assert (described["format"], described["schema"]) == ("headwater-data", SCHEMA)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (folder / UNFINISHED).exists()


def test_an_empty_folder_and_a_fresh_disk(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    backend = open_folder(tmp_path)
    backend.write([(b"a", b"1")], [])
    backend.close()
    backend = open_folder(tmp_path)
    assert backend.get(b"a") == b"1"
    backend.close()


def test_a_making_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    open_folder(folder).close()
    os.replace(folder / DESCRIPTION, folder / UNFINISHED)
    open_folder(folder).close()
    assert (folder / DESCRIPTION).exists()


def test_a_store_that_vanished_is_not_begun_anew(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    shutil.rmtree(tmp_path / "data" / "store")
    assert "it is not there; restore a backup" in refused(tmp_path / "data")


def test_a_newer_schema(tmp_path: Path) -> None:
    open_folder(tmp_path / "data", schema=SCHEMA + 1).close()
    said = refused(tmp_path / "data")
    assert f"has schema {SCHEMA + 1} and was written by a newer headwater" in said
    assert "upgrade headwater, or restore a backup" in said


def to_capitals(backend: Backend) -> None:
    backend.write([(key, value.upper()) for key, value in backend.scan(b"")], [])


def to_pairs(backend: Backend) -> None:
    backend.write([(key, value * 2) for key, value in backend.scan(b"") if len(value) == 1], [])


def test_an_older_schema_is_migrated_in_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backend = open_folder(tmp_path / "data")
    backend.write([(b"k", b"v")], [])
    backend.close()
    steps = {SCHEMA: to_capitals, SCHEMA + 1: to_pairs}
    with caplog.at_level(logging.INFO):
        backend = open_folder(tmp_path / "data", schema=SCHEMA + 2, migrations=steps)
    assert backend.get(b"k") == b"VV"
    backend.close()
    assert [line.partition("from ")[2] for line in caplog.messages] == ["schema 1 to 2", "schema 2 to 3"]
    backend = open_folder(tmp_path / "data", schema=SCHEMA + 2, migrations={})
    assert backend.get(b"k") == b"VV"
    backend.close()


def test_a_migration_that_fails_is_done_again_from_its_step(tmp_path: Path) -> None:
    backend = open_folder(tmp_path / "data")
    backend.write([(b"k", b"v")], [])
    backend.close()

    def fail(backend: Backend) -> None:
        backend.write([(b"half", b"x")], [])
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        open_folder(tmp_path / "data", schema=SCHEMA + 2, migrations={SCHEMA: to_capitals, SCHEMA + 1: fail})
    assert json.loads((tmp_path / "data" / DESCRIPTION).read_text())["schema"] == SCHEMA + 1
    backend = open_folder(tmp_path / "data", schema=SCHEMA + 2, migrations={SCHEMA: to_capitals, SCHEMA + 1: to_pairs})
    assert backend.get(b"k") == b"VV"
    backend.close()


def test_an_older_schema_without_a_way(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    with pytest.raises(StorageError, match=f"has schema {SCHEMA}, which this headwater cannot bring to schema"):
        open_folder(tmp_path / "data", schema=SCHEMA + 2, migrations={SCHEMA + 1: to_pairs})


def test_a_folder_of_others(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text("precious")
    said = refused(tmp_path)
    assert "is not a data folder and not empty: it has a, b, c and 1 more" in said
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c", "d", "lock"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is damaged"),
        ("[]", "does not describe a data folder"),
        ('{"format": "another", "schema": 1}', "does not describe a data folder"),
        ('{"format": "headwater-data", "schema": "1"}', "does not describe a data folder"),
        ('{"format": "headwater-data", "schema": true}', "does not describe a data folder"),
    ],
)
def test_a_description_that_is_none(content: str, said: str, tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    (tmp_path / "data" / DESCRIPTION).write_text(content)
    assert said in refused(tmp_path / "data")
    assert (tmp_path / "data" / DESCRIPTION).read_text() == content


def test_no_parent_and_no_folder(tmp_path: Path) -> None:
    assert f"there is no {tmp_path / 'a'}; make that one first" in refused(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    assert "is not a folder" in refused(tmp_path / "file")


def test_one_at_a_time(tmp_path: Path) -> None:
    backend = open_folder(tmp_path / "data")
    expected = f"is used by another running process (process {os.getpid()}); stop that one first"
    assert expected in refused(tmp_path / "data")
    assert expected in in_another_process(tmp_path / "data")
    backend.close()
    assert in_another_process(tmp_path / "data") == ""


def test_a_folder_is_free_after_a_failure(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    open_folder(folder).close()
    (folder / DESCRIPTION).write_text("{")
    assert "is damaged" in refused(folder)
    assert "is damaged" in refused(folder)


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """Root may everything, so another user tries."""
    os.chmod(tmp_path, 0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            os.chmod(folder, 0o755)
    folder = tmp_path / "data"
    folder.mkdir()
    os.chmod(folder, 0o555)
    before = "import headwater.node.persistence.schema, os\nif os.getuid() == 0: os.setuid(65534)"
    assert "cannot use the data folder" in (said := in_another_process(folder, before))
    assert "Permission denied" in said and "give the folder to the user that runs the broker" in said
    assert "cannot use the data folder" in in_another_process(tmp_path / "new", before)


def test_a_folder_where_none_can_be_made() -> None:
    assert "nothing can be made in /proc; name another folder" in refused(Path("/proc/headwater"))
