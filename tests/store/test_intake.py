from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.store.intake import RETAIN, Intake


def test_messages_become_columns() -> None:
    intake = Intake(7)
    assert intake.take(b"a", b"x", 1, "device", 100) == 7
    assert intake.take(b"a/b", b"", 2 | RETAIN, "", -5, {"properties": b'{"user":[]}'}) == 8
    taken = intake.hand_over()
    assert taken is not None
    assert len(taken) == 2
    assert (taken.first, taken.topics, taken.payloads) == (7, [b"a", b"a/b"], [b"x", b""])
    assert (taken.flags, taken.publishers, taken.arrivals) == ([1, 6], ["device", ""], [100, -5])
    assert taken.optional == {"properties": {1: b'{"user":[]}'}}


def test_nothing_is_handed_over_as_none() -> None:
    intake = Intake(1)
    assert intake.hand_over() is None
    intake.take(b"a", b"", 0, "", 0)
    assert intake.hand_over() is not None
    assert intake.hand_over() is None
    assert intake.next == 2


def test_what_was_handed_over_does_not_change() -> None:
    intake = Intake(1)
    intake.take(b"a", b"1", 0, "", 0, {"properties": b"{}"})
    first = intake.hand_over()
    intake.take(b"b", b"2", 0, "", 0)
    second = intake.hand_over()
    assert first is not None and second is not None
    assert (first.first, first.topics, first.optional) == (1, [b"a"], {"properties": {0: b"{}"}})
    assert (second.first, second.topics, second.optional) == (2, [b"b"], {})


@given(st.integers(1, 2**60), st.lists(st.integers(0, 5), max_size=20))
def test_positions_have_no_gaps(first: int, batches: list[int]) -> None:
    intake = Intake(first)
    expected = first
    for batch in batches:
        for _ in range(batch):
            assert intake.take(b"a", b"", 0, "", 0) == expected
            expected += 1
        taken = intake.hand_over()
        assert (taken is None) is (batch == 0)
        if taken is not None:
            assert (taken.first, len(taken)) == (expected - batch, batch)
    assert intake.next == expected


def test_the_size_covers_all_that_a_message_holds_in_memory() -> None:
    def size(topic: bytes = b"a", payload: bytes = b"", properties: bytes = b"") -> int:
        intake = Intake(1)
        intake.take(topic, payload, 0, "device", 0, {"properties": properties})
        return intake.taken.size

    assert size() >= 100
    assert size(payload=bytes(1000)) == size() + 1000
    assert size(properties=bytes(1000)) == size() + 1000
    assert size(topic=bytes(1001)) == size() + 1000
