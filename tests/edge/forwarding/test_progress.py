"""How far a forward has come, as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.disk.errors import StorageError
from headwater.edge.forwarding.progress import Progress, ProgressFile, Span, read
from headwater.edge.forwarding.ranges import Ranges

positions = st.integers(1, 10_000)
ranges = st.lists(st.tuples(positions, positions)).map(lambda some: Ranges((min(each), max(each)) for each in some))
spans = st.builds(Span, positions, positions, positions, st.integers(0, 3))
progresses = st.builds(
    Progress,
    st.text(),
    positions,
    st.lists(ranges, min_size=1, max_size=4),
    st.just([["#"], ["a/+"]]),
    st.text(),
    st.dictionaries(st.integers(1, 65_535), spans),
    st.sets(st.integers(1, 65_535)),
)


@given(progresses)
def test_it_is_read_as_it_was_written(progress: Progress) -> None:
    found = read(progress.written())
    assert found.written() == progress.written()
    assert [list(each) for each in found.owed] == [list(each) for each in progress.owed]
    assert (found.sent, found.releasing, found.live) == (progress.sent, progress.releasing, progress.live)
    assert found.position == progress.position


def test_the_position_is_in_front_of_all_that_is_owed() -> None:
    progress = Progress("s", 100, [Ranges(), Ranges([(40, 50), (70, 80)])])
    assert progress.position == 39
    progress.owed[1].remove(40, 50)
    assert progress.position == 69
    progress.owed[1].remove(70, 80)
    assert progress.position == 99


def test_a_former_targets_ids_mean_nothing_to_another() -> None:
    progress = Progress("s", 9, [Ranges([(1, 9)])], [], "one", {3: Span(1, 1, 2, 0)}, {4})
    progress.meant_for("one")
    assert (progress.sent, progress.releasing) == ({3: Span(1, 1, 2, 0)}, {4})
    progress.meant_for("two")
    assert (progress.sent, progress.releasing) == ({}, set())
    assert list(progress.owed[0]) == [(1, 9)]


def test_with_other_wishes_what_is_owed_may_be_of_any_class() -> None:
    progress = Progress("s", 9, [Ranges([(1, 3)]), Ranges([(5, 7)])], [["#"], ["a"]], "t", {3: Span(1, 1, 2, 0)})
    progress.wished([["#"], ["a"]], 2)
    assert progress.sent
    progress.wished([["#"], ["b", "c"]], 3)
    assert [list(each) for each in progress.owed] == [[(1, 3), (5, 7)]] * 3
    assert (progress.sent, progress.releasing) == ({}, {3})  # it is sent again, under another id


def test_what_a_store_that_has_gone_back_does_not_have() -> None:
    sent = {3: Span(4, 4, 5, 0), 4: Span(8, 8, 9, 0)}
    progress = Progress("s", 10, [Ranges([(4, 5), (8, 9)])], [], "t", sent)
    progress.cut_off(6)
    assert (progress.live, list(progress.owed[0])) == (6, [(4, 5)])
    assert (list(progress.sent), progress.releasing) == ([3], {4})


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"format":"headwater-forward","schema":2}', b"\xff"])
def test_what_is_none_of_ours(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cloud.json"
    path.write_bytes(text)
    with pytest.raises(StorageError, match="delete it: the forward goes on behind what its reader has committed"):
        ProgressFile(path).load()


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "forward" / "cloud.json")
    assert file.load() is None
    for live in (1, 2):
        file.save(Progress("s", live, [Ranges()]).written())
        found = file.load()
        assert found is not None and found.live == live
    assert [each.name for each in (tmp_path / "forward").iterdir()] == ["cloud.json"]


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    (tmp_path / "forward").write_text("a file")
    with pytest.raises(StorageError, match="cannot write"):
        ProgressFile(tmp_path / "forward" / "cloud.json").save(b"{}")
