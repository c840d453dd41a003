"""The folder of a store: one process, one id for ever, and no guesses about what is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.disk.errors import StorageError
from headwater.store import messages_folder
from headwater.store.disk_store import DiskStore
from headwater.store.messages_folder import DESCRIPTION, GOOD_ID, MessagesFolder
from headwater.store.query import Query
from tests.store.messages import Writer, positions


def opened(path: Path, id: str | None = None, create: bool = True) -> DiskStore:
    return DiskStore(path, id=id, create=create, cache=1 << 20)


def test_the_id_is_for_ever(tmp_path: Path) -> None:
    store = opened(tmp_path / "messages")
    assert GOOD_ID.fullmatch(store.id)
    store.close()
    for id in (None, store.id):
        again = opened(tmp_path / "messages", id, create=False)
        assert again.id == store.id
        again.close()
    with pytest.raises(StorageError, match="an id is for ever"):
        opened(tmp_path / "messages", "other")


def test_an_id_may_be_chosen(tmp_path: Path) -> None:
    store = opened(tmp_path / "messages", "plant-7.A_b")
    assert store.id == "plant-7.A_b"
    store.close()


@pytest.mark.parametrize("id", ["", "-a", "a b", "a:b", "a" * 65, "é", "a\n"])
def test_what_is_no_id(id: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is no id"):
        opened(tmp_path / "messages", id)
    assert not (tmp_path / "messages").exists()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = opened(tmp_path / "messages")
    with pytest.raises(StorageError, match="used by"):
        opened(tmp_path / "messages")
    store.close()
    opened(tmp_path / "messages").close()


def test_nothing_is_made_unless_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no store of messages"):
        opened(tmp_path / "messages", create=False)
    assert not (tmp_path / "messages").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "does not describe"),
        (b"[]", "does not describe"),
        (b'{"format": "headwater-data", "schema": 1, "id": "a"}', "does not describe"),
        (b'{"format": "headwater-messages", "schema": 1}', "does not describe"),
        (b'{"format": "headwater-messages", "schema": 1, "id": 7}', "does not describe"),
        (b'{"format": "headwater-messages", "schema": 2, "id": "a"}', "has schema 2"),
    ],
)
def test_a_description_that_is_not_ours(content: bytes, complaint: str, tmp_path: Path) -> None:
    opened(tmp_path / "messages").close()
    (tmp_path / "messages" / DESCRIPTION).write_bytes(content)
    for _ in range(2):  # the lock is let go of
        with pytest.raises(StorageError, match=complaint):
            opened(tmp_path / "messages")


def test_making_that_was_cut_off_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(path: Path, id: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(messages_folder, "describe", cut_off)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "messages", "a")
    monkeypatch.undo()
    assert (tmp_path / "messages" / "db").exists()
    store = opened(tmp_path / "messages", "b")
    assert (store.id, store.next) == ("b", 1)
    store.close()


def test_messages_are_not_deleted_because_their_description_is_missing(tmp_path: Path) -> None:
    store = opened(tmp_path / "messages")
    Writer(store).write("a")
    store.close()
    description = (tmp_path / "messages" / DESCRIPTION).read_bytes()
    (tmp_path / "messages" / DESCRIPTION).unlink()
    with pytest.raises(StorageError, match="nothing was deleted"):
        opened(tmp_path / "messages")
    (tmp_path / "messages" / DESCRIPTION).write_bytes(description)
    store = opened(tmp_path / "messages")
    assert positions(store) == [1]
    store.close()


def test_positions_do_not_begin_again_because_the_messages_are_missing(tmp_path: Path) -> None:
    opened(tmp_path / "messages").close()
    (tmp_path / "messages" / "db").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        opened(tmp_path / "messages")


def test_a_checkpoint_is_a_store_with_the_same_id(tmp_path: Path) -> None:
    store = opened(tmp_path / "messages")
    Writer(store).write("a", "b")
    store.checkpoint(tmp_path / "copy")
    with pytest.raises(StorageError, match="copy"):
        store.checkpoint(tmp_path / "copy")
    Writer(store).write("c")
    store.close()
    copy = opened(tmp_path / "copy", create=False)
    assert (copy.id, positions(copy, Query())) == (store.id, [1, 2])
    copy.close()


def test_a_folder_says_who_made_it_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = MessagesFolder(tmp_path / "messages", "a", True)
    assert folder.is_new and not (tmp_path / "messages" / DESCRIPTION).exists()
    folder.made(empty=True)
    folder.release()
    found = json.loads((tmp_path / "messages" / DESCRIPTION).read_bytes())
    assert found.keys() == {"format", "schema", "id", "made_by"}
    assert (tmp_path / "messages").stat().st_mode & 0o777 == 0o700
