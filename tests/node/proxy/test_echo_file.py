"""What is outstanding is the same after a start."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy.echo import DIGEST, ENTRY, FENCES, Outstanding
from headwater.node.proxy.echo_file import LEAST, RECORD, EchoFile

KEYS = st.sampled_from([bytes([number]) * DIGEST for number in range(3)])
STEPS = st.one_of(
    st.tuples(st.just("hand over"), KEYS),
    st.tuples(st.just("came"), KEYS),
    st.tuples(st.just("came with DUP"), KEYS),
    st.tuples(st.just("fence"), st.none()),
    st.tuples(st.just("fence came"), st.none()),
    st.tuples(st.just("connected"), st.booleans()),
    st.tuples(st.just("written anew"), st.none()),
)


def key(number: int) -> bytes:
    return number.to_bytes(DIGEST, "big")


@given(st.lists(STEPS, max_size=60), st.sampled_from([4, 1000]))
def test_another_process_knows_the_same(steps: list[tuple[str, object]], most: int) -> None:
    """Whenever the first one was killed, and whether or not the file was written anew before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "echoes"
        echoes = Outstanding(most * ENTRY)
        file = EchoFile(path, echoes)
        for step, what in steps:
            if isinstance(what, bytes):
                if step == "hand over":
                    echoes.handed_over(what, 0.0)
                else:
                    echoes.swallows(what, 0.0, step == "came with DUP")
            elif step == "connected":
                echoes.connected(bool(what))
            elif step == "fence":
                echoes.fence()
            elif step == "written anew":
                file._limit = 0
            elif echoes.fences:
                for qos in FENCES:
                    echoes.fence_came(max(echoes.fences, default=0), qos)
        file.close()
        found = Outstanding(most * ENTRY)
        EchoFile(path, found).close()
        assert list(found.notes_of_all()) == list(echoes.notes_of_all())
        assert found.count == echoes.count


def test_half_a_record_at_the_end_is_none(tmp_path: Path) -> None:
    path = tmp_path / "echoes"
    echoes = Outstanding(1 << 20)
    file = EchoFile(path, echoes)
    for number in range(2):
        echoes.handed_over(key(number), 0.0)
    file.close()
    path.write_bytes(path.read_bytes()[:-1])
    found = Outstanding(1 << 20)
    EchoFile(path, found)
    assert found.count == 1
    assert found.swallows(key(0), 0.0)


def test_the_file_does_not_grow_with_what_came(tmp_path: Path) -> None:
    path = tmp_path / "echoes"
    echoes = Outstanding(1 << 20)
    EchoFile(path, echoes)
    largest = 0
    for number in range(3 * LEAST // RECORD):
        echoes.handed_over(key(number), 0.0)
        assert echoes.swallows(key(number), 0.0)
        if number % 50 == 0:
            fence = echoes.fence()
            for qos in FENCES:
                echoes.fence_came(fence, qos)
        largest = max(largest, path.stat().st_size)
    assert LEAST <= largest <= LEAST + RECORD


def test_a_file_that_cannot_be_written_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it says is not true any more, so it is removed; echoes are counted as before."""
    path = tmp_path / "echoes"
    echoes = Outstanding(1 << 20)
    file = EchoFile(path, echoes)
    echoes.handed_over(key(0), 0.0)
    file._limit = 0
    path.with_suffix(".new").mkdir()
    with caplog.at_level(logging.WARNING, "headwater.proxy"):
        echoes.handed_over(key(1), 0.0)
        echoes.handed_over(key(2), 0.0)
    assert len([each for each in caplog.records if "cannot write" in each.getMessage()]) == 1
    assert not path.exists()
    assert echoes.count == 3


def test_a_file_that_is_not_needed_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "echoes"
    echoes = Outstanding(1 << 20)
    file = EchoFile(path, echoes)
    echoes.handed_over(key(0), 0.0)
    assert path.exists()
    file.remove()
    echoes.handed_over(key(1), 0.0)
    assert not path.exists()
