"""Bytes in which filters travel."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest.filter import Incompatible
from headwater.interest.written import MAGIC, VERSION, Reading, Writing

numbers = st.integers(0, 2**63 - 1)


@given(st.lists(numbers), st.binary(), st.lists(st.tuples(st.integers(0, 255), st.integers(1, 300)), max_size=9))
def test_what_is_written_is_read(several: list[int], block: bytes, runs: list[tuple[int, int]]) -> None:
    row = b"".join(bytes((value,)) * count for value, count in runs)
    made = Writing("kind")
    for each in several:
        made.number(each)
    made.block(block)
    made.runs(row)
    read = Reading(made.done())
    assert read.kind == "kind"
    assert [read.number() for _ in several] == several
    assert read.block() == block
    assert read.runs(len(row)) == row
    read.end()


def test_runs_are_not_longer_than_they_may_be() -> None:
    made = Writing("kind")
    made.runs(b"a" * 10**6)
    data = made.done()
    assert len(data) < 30
    with pytest.raises(Incompatible):
        Reading(data).runs(10**6 - 1)


def test_another_version_is_refused() -> None:
    data = MAGIC + bytes((VERSION + 1,)) + b"\4kind"
    with pytest.raises(Incompatible, match=f"version {VERSION + 1} is not known here; this is version {VERSION}"):
        Reading(data + zlib.crc32(data).to_bytes(4, "little"))


def test_something_behind_the_end() -> None:
    made = Writing("kind")
    made.number(1)
    read = Reading(made.done())
    with pytest.raises(Incompatible, match="behind its end"):
        read.end()
    assert read.number() == 1
    with pytest.raises(Incompatible, match="ends too early"):
        read.number()
