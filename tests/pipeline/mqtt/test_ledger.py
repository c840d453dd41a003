"""The ledger of sent rows: whose notes count, and which are removed."""

from __future__ import annotations

from pathlib import Path

from headwater.pipeline.mqtt.ledger import Ledger

ONE, TWO, THREE = (bytes([number]) * 16 for number in (1, 2, 3))


def test_notes_of_other_attempts_of_the_same_task_count_and_no_others(tmp_path: Path) -> None:
    with Ledger(tmp_path, "q", 5, 0, 1) as first:
        first.note([ONE, TWO])
        assert ONE not in first  # equal rows of one attempt have different names anyway
    with Ledger(tmp_path, "q", 5, 0, 2) as second:
        assert ONE in second and TWO in second and THREE not in second
        second.note([THREE])
    with Ledger(tmp_path, "q", 5, 0, 3) as third:
        assert all(each in third for each in (ONE, TWO, THREE))
    for query, batch, partition in (("q", 5, 1), ("q", 6, 0), ("r", 5, 0)):
        with Ledger(tmp_path, query, batch, partition, 4) as other:
            assert ONE not in other


def test_a_name_that_was_cut_is_none(tmp_path: Path) -> None:
    with Ledger(tmp_path, "q", 0, 0, 1) as ledger:
        ledger.note([ONE, TWO])
    path = tmp_path / "q" / "0" / "0-1.sent"
    for cut in range(33):
        path.write_bytes((ONE + TWO)[:cut])
        with Ledger(tmp_path, "q", 0, 0, 2) as again:
            assert [ONE in again, TWO in again] == [cut >= 16, cut >= 32]


def test_the_last_two_batches_are_kept(tmp_path: Path) -> None:
    for batch in (8, 9, 10):
        with Ledger(tmp_path, "q", batch, 0, 1) as ledger:
            ledger.note([ONE])
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == ["10", "9"]


def test_without_a_folder_nothing_is_known(tmp_path: Path) -> None:
    with Ledger(None, "q", 0, 0, 1) as ledger:
        ledger.note([ONE])
    with Ledger(None, "q", 0, 0, 1) as again:
        assert ONE not in again
