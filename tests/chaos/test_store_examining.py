"""What a store was promised, and what is found: every way in which it may be wrong is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from headwater.store.intake import Intake
from headwater.store.shelf import BLOCK, EXTENT, LOG, PAGES, TOPIC, page_key, position_key
from headwater_lab.store_chaos.account import FORGOTTEN, Account
from headwater_lab.store_chaos.examining import examine
from headwater_lab.store_chaos.living import Settings, opened
from headwater_lab.store_chaos.messages import message_at, take

SETTINGS = Settings("kills", 7, 5, 3, 1 << 20, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With positions 1 to 10 of life 1, in blocks up to 8, and of life 2, up to 12."""
    for life, end in ((1, 11), (2, 13)):
        store = opened(tmp_path / "messages", SETTINGS, seal=False)
        intake = Intake(store.next)
        while intake.next < end:
            for _ in range(min(2, end - intake.next)):
                take(intake, SETTINGS.seed, life)
            taken = intake.hand_over()
            assert taken is not None
            store.append(taken)
            store.sync()
            if intake.next in (5, 9):
                store.seal(everything=True)
        store.commit("spark", 4)
        store.close()
    return tmp_path / "messages"


def promised(*lines: str) -> Account:
    account = Account(SETTINGS.seed)
    told = {1: ["begin 1", "acknowledged 11"], 2: ["begin 11", "acknowledged 13", "reader spark 4", "committed spark"]}
    for life, said in told.items():
        account.life = life
        for line in said:
            account.hear(line)
    for line in lines:
        account.hear(line)
    return account


def kinds(folder: Path, account: Account) -> set[str]:
    return {text.partition(":")[0] for text in examine(folder, SETTINGS, account)["wrong"]}


def test_what_is_right_is_acquitted(folder: Path) -> None:
    found = examine(folder, SETTINGS, promised("seen 13", "trimmed 1"))
    assert found["wrong"] == []
    assert (found["first"], found["next"], found["readers"]) == (1, 13, {"spark": 4})


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("acknowledged 14", "lost"),
        ("seen 14", "lost"),
        ("trimmed 2", "back"),
        ("begin 12", "changed"),  # position 11 would be of the first life, and is of the second
        ("reader mirror 7\ncommitted mirror", "reader"),
        ("reader spark 5\ncommitted spark", "reader"),
    ],
)
def test_a_promise_that_was_not_kept(line: str, kind: str, folder: Path) -> None:
    account = promised()
    if line.startswith("begin"):
        account.runs = [(1, 1), (12, 2)]
    else:
        for each in line.splitlines():
            account.hear(each)
    assert kinds(folder, account) == {kind}


def test_what_was_about_to_happen_may_have_happened(folder: Path) -> None:
    assert kinds(folder, promised("reader spark 5", "reader mirror 7")) == set()
    account = promised()
    account.readers = {"spark": {FORGOTTEN}}
    assert kinds(folder, account) == {"reader"}
    account.hear("reader spark 4")
    assert kinds(folder, account) == set()


def change(folder: Path, family: str | None, key: bytes, value: bytes | None) -> None:
    options = {name: Options(raw_mode=True) for name in ("default", PAGES)}
    database: Any = Rdict(str(folder / "db"), Options(raw_mode=True), options)
    kept = database if family is None else database.get_column_family(family)
    if value is None:
        assert key in kept
        del kept[key]
    else:
        kept[key] = value
    if family is not None:
        kept.close()
    database.close()


@pytest.mark.parametrize(
    ("family", "key", "value", "kind"),
    [
        (None, position_key(LOG, 9), None, "broken"),
        (None, position_key(BLOCK, 1), None, "left over"),
        (None, position_key(EXTENT, 5), None, "broken"),
        (PAGES, page_key(5, 0), None, "broken"),
        (PAGES, page_key(3, 0), b"", "left over"),
        (None, TOPIC + b"\x00\x00\x00\x00", b"other", "changed"),
    ],
)
def test_a_folder_that_is_not_as_it_was(
    family: str | None, key: bytes, value: bytes | None, kind: str, folder: Path
) -> None:
    change(folder, family, key, value)
    assert kind in kinds(folder, promised())


def test_messages_follow_from_life_and_position() -> None:
    assert message_at(1, 2, 3) == message_at(1, 2, 3)
    others = {message_at(1, 2, 3), message_at(2, 2, 3), message_at(1, 3, 3), message_at(1, 2, 4)}
    assert len({entry.payload + entry.topic.encode() for entry in others}) == 4
