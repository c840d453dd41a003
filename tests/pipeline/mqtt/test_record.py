"""Records of the spool: what goes in comes out, whatever it is, and nothing else is taken for a record."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.mqtt.record import Arrival, DamagedRecord, RecordStream, encode, whole_records

text = st.text(st.characters(exclude_categories=["Cs"]))
arrivals = st.builds(
    Arrival,
    topic=text,
    payload=st.binary(),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    properties=text,
    received=st.integers(-(2**63), 2**63 - 1),
    store=text.filter(lambda each: len(each.encode()) < 256),
    position=st.integers(-1, 2**63 - 1),
    connection=st.integers(0, 255),
    session=st.integers(0, 2**32 - 1),
    packet_id=st.integers(0, 65_535),
)


@given(st.lists(arrivals), st.integers(1, 40))
def test_records_come_out_as_they_went_in_however_they_are_cut(given: list[Arrival], size: int) -> None:
    data = b"".join(encode(each) for each in given)
    stream = RecordStream()
    found = [each for at in range(0, len(data), size) for each in stream.feed(data[at : at + size])]
    assert found == given
    assert [each for _, each in whole_records(data)] == given


def test_a_changed_byte_is_seen_wherever_it_is() -> None:
    data = encode(Arrival("a/b", b"payload", 1, True, '{"user":[]}', 5, "store", 7, 1, 2, 3))
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert list(whole_records(changed)) == []
        stream = RecordStream()
        if at < 4:  # a length that is too long waits for the rest
            with contextlib.suppress(DamagedRecord):
                assert list(stream.feed(changed)) == []
        else:
            with pytest.raises(DamagedRecord):
                list(stream.feed(changed))


def test_zeros_are_no_records() -> None:
    """Some file systems leave them behind after a power cut."""
    assert list(whole_records(bytes(100))) == []
