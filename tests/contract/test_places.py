"""What every place of objects promises: whole objects, conditions, order. A folder, this process's memory, and S3."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headwater.objects import Missing, Place, PlaceError, open_place
from headwater.objects.arrow import filesystem, output
from headwater.objects.place import PART
from headwater_lab.pipeline_chaos.storage import ObjectStore
from tests.objects.s3_server import S3Server, s3_server

KINDS = ["folder", "memory", "s3", "kept"]
"""`kept` is the campaigns' S3 server, which may be killed."""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[ObjectStore]:
    made = ObjectStore(tmp_path / "objects")
    yield made
    made.kill()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return open_place(tmp_path / "a place")
    if request.param == "memory":
        return open_place(f"memory://{uuid.uuid4().hex}/some/where")
    if request.param == "kept":
        return open_place("s3://bucket/some where/", request.getfixturevalue("kept").options)
    server: S3Server = request.getfixturevalue("s3")
    return open_place(f"{server.bucket()}/some where/", server.options())


def names(place: Place, folder: str = "", after: str | None = None) -> list[str]:
    return [each.name for each in place.list(folder, after)]


def test_what_was_put_is_there(place: Place) -> None:
    assert place.is_empty()
    assert place.head("a") is None
    first = place.put("a", b"one")
    assert place.get("a").data == b"one"
    assert place.get("a").item == place.head("a")
    item = place.head("a")
    assert item is not None
    assert (item.name, item.size, item.etag) == ("a", 3, first)
    assert item.modified > 1.7e9
    second = place.put("a", b"another")
    assert second != first
    assert place.get("a").data == b"another"
    assert not place.is_empty()


def test_what_is_not_there_is_missing(place: Place) -> None:
    with pytest.raises(Missing, match="there is no a/b"):
        place.get("a/b")
    with pytest.raises(Missing, match="there is no a/b"):
        place.read("a/b", 0, 1)
    with pytest.raises(Missing, match="there is no a/b"):
        place.open("a/b").read()
    assert names(place) == [] == names(place, "a")
    assert place.level("a") == ([], [])
    place.delete(["a/b"])


def test_the_first_gets_a_name(place: Place) -> None:
    etag = place.put_if_absent("x/lease", b"me")
    assert etag is not None
    assert place.put_if_absent("x/lease", b"you") is None
    assert place.get("x/lease").data == b"me"


def test_who_puts_the_same_again_has_it(place: Place) -> None:
    """As if the answer to the first had been lost."""
    etag = place.put_if_absent("lease", b"me")
    assert place.put_if_absent("lease", b"me") == etag
    assert etag is not None
    second = place.put_if_match("lease", b"me, still", etag)
    assert place.put_if_match("lease", b"me, still", etag) in (second, None)  # a folder knows no contents
    assert place.put_if_match("lease", b"else", etag) is None


def test_what_has_changed_is_not_replaced(place: Place) -> None:
    first = place.put("a", b"1")
    second = place.put_if_match("a", b"2", first)
    assert second is not None
    assert place.put_if_match("a", b"3", first) is None
    assert place.get("a").data == b"2"
    assert place.put_if_match("b", b"3", first) is None
    assert place.head("b") is None
    place.delete(["a"])
    assert place.put_if_match("a", b"4", second) is None


def test_changes_by_many_are_all_there(place: Place) -> None:
    with ThreadPoolExecutor(4) as many:
        list(many.map(lambda me: place.change("all", lambda there: there + b"%d," % me), range(8)))
    assert sorted(place.get("all").data.split(b",")[:-1]) == [b"%d" % me for me in range(8)]


def test_conditions_are_heeded(place: Place) -> None:
    place.check_conditions("x/check")
    assert names(place) == []


def test_of_many_one_gets_it(place: Place) -> None:
    with ThreadPoolExecutor(8) as many:
        got = list(many.map(lambda me: place.put_if_absent("race", b"%d" % me), range(16)))
    [winner] = [me for me, etag in enumerate(got) if etag is not None]
    found = place.get("race")
    assert found.data == b"%d" % winner
    with ThreadPoolExecutor(8) as many:
        got = list(many.map(lambda me: place.put_if_match("race", b"next %d" % me, found.item.etag), range(16)))
    [winner] = [me for me, etag in enumerate(got) if etag is not None]
    assert place.get("race").data == b"next %d" % winner


def test_ranges(place: Place) -> None:
    place.put("a", bytes(range(100)))
    assert place.read("a", 10, 5) == bytes(range(10, 15))
    assert place.read("a", 95, 50) == bytes(range(95, 100))
    assert place.read("a", 100, 5) == b"" == place.read("a", 200, 5) == place.read("a", 3, 0)
    with place.open("a") as file:
        assert file.seek(-10, 2) == 90
        assert file.read(4) == bytes(range(90, 94))
        assert file.tell() == 94
        assert file.read() == bytes(range(94, 100))
        assert file.read(1) == b""


def test_lists_are_in_order(place: Place) -> None:
    for name in ("b/2", "b/10", "b c", "bc", "b/x/y=1 %2F/ä", "a"):
        place.put(name, b"")
    with suppress(PlaceError):  # a folder has no file of the same name
        place.put("b", b"")
    all_names = [each for each in ("a", "b", "b c", "b/10", "b/2", "b/x/y=1 %2F/ä", "bc") if place.head(each)]
    assert len(all_names) >= 6
    assert names(place) == all_names
    assert names(place, "b") == ["b/10", "b/2", "b/x/y=1 %2F/ä"]
    assert names(place, after="b c") == ["b/10", "b/2", "b/x/y=1 %2F/ä", "bc"]
    assert names(place, "b", after="b/11") == ["b/2", "b/x/y=1 %2F/ä"]
    level = place.level("b")
    assert ([each.name for each in level.items], level.folders) == (["b/10", "b/2"], ["b/x"])
    assert [place.level().folders, place.below("b").level().folders] == [["b"], ["x"]]
    assert names(place.below("b")) == ["10", "2", "x/y=1 %2F/ä"]


def test_what_is_deleted_is_gone(place: Place) -> None:
    for name in ("a/1", "a/2", "a/3"):
        place.put(name, b"")
    place.delete(["a/1", "a/0", "a/3"])
    assert names(place) == ["a/2"]
    place.delete([])


def test_large_ones_go_in_parts(place: Place, tmp_path: Path) -> None:
    data = bytes(range(256)) * (PART // 256) * 2 + b"rest"
    with place.sink("streamed") as sink:
        for start in range(0, len(data), 1 << 20):
            sink.write(data[start : start + (1 << 20)])
    assert place.get("streamed").data == data
    (tmp_path / "file").write_bytes(data)
    etag = place.put_file("of a file", tmp_path / "file")
    found = place.get("of a file")
    assert (found.data, found.item.etag) == (data, etag)


def test_one_that_was_not_ended_does_not_appear(place: Place) -> None:
    def fail() -> None:
        with place.sink("half") as sink:
            sink.write(bytes(PART + 1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(place) == []


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\\b", "a\nb"])
def test_names_that_are_none(place: Place, name: str) -> None:
    with pytest.raises(PlaceError, match="no name of an object"):
        place.put(name, b"")


def test_it_goes_to_other_processes(place: Place) -> None:
    place.put("a", b"1")
    assert pickle.loads(pickle.dumps(place)).get("a").data == b"1"


def test_arrow_reads_from_it(place: Place) -> None:
    table = pa.table({"x": list(range(1000)), "y": ["text"] * 1000})
    for number in range(2):
        with place.sink(f"t/day={number}/part.parquet") as sink:
            pq.write_table(table, output(sink), row_group_size=100)
    files = filesystem(place)
    assert pq.read_table("t/day=1/part.parquet", filesystem=files, partitioning=None).equals(table)
    rows = ds.dataset("t", filesystem=files, format="parquet", partitioning="hive")
    assert rows.count_rows(filter=(ds.field("day") == 1) & (ds.field("x") < 10)) == 10
    with pytest.raises(FileNotFoundError):
        pq.read_table("t/none.parquet", filesystem=files)


def test_what_was_acknowledged_outlives_the_server(kept: ObjectStore) -> None:
    place = open_place("s3://bucket/lake", kept.options)
    place.put("a", b"1")
    with place.sink("large") as sink:
        sink.write(bytes(PART + 1))
    kept.kill()
    kept.start_again()
    assert place.put_if_absent("a", b"2") is None
    assert [(each.name, each.size) for each in place.list()] == [("a", 1), ("large", PART + 1)]
