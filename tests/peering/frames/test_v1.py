"""Frames of version 1: bytes are frozen, any bytes are frames or malformed, and how they are cut does not matter."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.peering.frames import v1
from headwater.peering.frames.frame import (
    MAC,
    MAX_STATE,
    MAX_STREAMS,
    PART,
    Ack,
    Change,
    Frame,
    Gossip,
    Have,
    Heartbeat,
    InterestAck,
    Leave,
    MalformedFrame,
    Neighbours,
    Proof,
    Publisher,
    Refuse,
    Resume,
    RetainedItem,
    Run,
    Spool,
    Stamp,
    StateBegin,
    StateEnd,
    StatePart,
    Synced,
)
from headwater.peering.frames.reading import FrameReader
from headwater.peering.retained import clock as retained_clock
from headwater.peering.retained.reconciling import Branches, Entries, Leaves, Want
from headwater.peering.retained.replica import Entry

LARGEST_RUN = 1000
STAMP = Stamp(7, 300)
KEPT: list[tuple[Frame, str]] = [
    (Run(5, 0, 2, 9, 256, "", 7, 0, b"\x30\x03\0\x01a" * 2),
     "010000001f05000002000000090000000000000100000000070030030001613003000161"),
    (Run(4, 3, 1, 9, 5, "n-1", 7, 66, b"\x32\x00"),
     "0200000022000000000000004204030001000000090000000000000005000000070" + "36e2d313200"),
    (Proof(bytes(range(MAC))), "0300000020" + bytes(range(32)).hex()),
    (Have(True, (("n1", STAMP), ("b", Stamp(1, 2)))),
     "0400000020010002026e3100000007000000000000012c0162000000010000000000000002"),
    (Synced(), "0500000000"),
    (StateBegin("n1", STAMP, "bloom", ("n2", "n3"), 70000),
     "0600000021026e3100000007000000000000012c05626c6f6f6d000111700002026e32026e33"),
    (StatePart(b"abc"), "0700000003616263"),
    (StateEnd(), "0800000000"),
    (Change("n1", STAMP, b"+\0\1a"), "0900000013026e3100000007000000000000012c2b000161"),
    (Neighbours("n1", STAMP, ("n2",)), "0a00000014026e3100000007000000000000012c0001026e32"),
    (InterestAck("n1", STAMP), "0b0000000f026e3100000007000000000000012c"),
    (Spool(3, 17), "0c0000001000000000000000030000000000000011"),
    (Resume(3, 16), "0d0000001000000000000000030000000000000010"),
    (Publisher(9, 5, "pump-é"), "0e0000000c000000090570756d702dc3a9"),
    (Ack(260), "0f000000080000000000000104"),
    (Heartbeat(4, 3, 1000), "1000000018000000000000000400000000000000030000000000" + "0003e8"),
    (Gossip(b"\x01\x02"), "11000000020102"),
    (Refuse("no"), "12000000026e6f"),
    (Leave(True), "130000000101"),
    (Branches((1,) * 256), "1400000800" + "0000000000000001" * 256),
    (Leaves(3, (2,) * 256), "150000080103" + "0000000000000002" * 256),
    (Entries(515, "a", "b", (("b", Entry(retained_clock.Stamp(9, "n1"), True)),)),
     "160000001902030001610001620001000162000000000000000" + "9026e3101"),
    (Want(("a", "é")), "1700000009000200016100" + "02c3a9"),
    (RetainedItem(9, "n1", b"\x31\x03\0\x01a"), "18000000100000000000000009026e313103000161"),
]  # fmt: skip

nodes = st.from_regex(r"\A[A-Za-z0-9._-]{1,32}\Z")
u16, u32, u64 = st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
stamps = st.builds(Stamp, u32, u64)
some_nodes = st.lists(nodes, max_size=5).map(tuple)
names = st.from_regex(r"\A[\x21-\x7e]{1,16}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
counters = st.integers(0, 2**63)
entries = st.builds(Entry, st.builds(retained_clock.Stamp, u64, nodes), st.booleans())
runs = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        Run,
        st.sampled_from((4, 5)),
        st.integers(0, 255),
        st.just(count),
        u32,
        counters,
        st.one_of(st.just(""), nodes),
        u32,
        counters,
        st.binary(min_size=2 * count, max_size=60),
    )
)
frames = st.one_of(
    runs,
    st.builds(Proof, st.binary(min_size=MAC, max_size=MAC)),
    st.builds(Have, st.booleans(), st.lists(st.tuples(nodes, stamps), max_size=4).map(tuple)),
    st.builds(Synced),
    st.builds(StateBegin, nodes, stamps, names, some_nodes, st.integers(0, MAX_STATE)),
    st.builds(StatePart, st.binary(max_size=50)),
    st.builds(StateEnd),
    st.builds(Change, nodes, stamps, st.binary(max_size=50)),
    st.builds(Neighbours, nodes, stamps, some_nodes),
    st.builds(InterestAck, nodes, stamps),
    st.builds(Spool, u64, u64),
    st.builds(Resume, u64, u64),
    st.builds(Publisher, u32, st.sampled_from((4, 5)), texts),
    st.builds(Ack, u64),
    st.builds(Heartbeat, u64, u64, u64),
    st.builds(Gossip, st.binary(max_size=50)),
    st.builds(Refuse, texts),
    st.builds(Leave, st.booleans()),
    st.builds(Branches, st.just(tuple(range(256)))),
    st.builds(Leaves, st.integers(0, 255), st.just(tuple(range(256)))),
    st.builds(Entries, u16, texts, texts, st.lists(st.tuples(texts, entries), max_size=4).map(tuple)),
    st.builds(Want, st.lists(texts, max_size=4).map(tuple)),
    st.builds(RetainedItem, u64, nodes, st.binary(max_size=50)),
)


@given(runs, st.data())
def test_parts_of_a_run(run: Run, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, run.messages - 1))
    rest = run.behind(count, b"rest")
    assert (rest.messages, rest.counter, rest.packets) == (run.messages - count, run.counter + count, b"rest")
    assert rest.position == (run.position + count if run.position else 0)
    first = run.first(count + 1)
    assert (first.messages, first.counter, first.position) == (count + 1, run.counter, run.position)
    assert (first == run) == (count + 1 == run.messages)
    assert run.behind(0, run.packets) == run and hash(run.behind(0, run.packets)) == hash(run)


def read_all(pieces: list[bytes], reader: FrameReader | None = None) -> tuple[list[Frame], str]:
    """All frames, and what is wrong with the rest."""
    reader = reader or FrameReader(LARGEST_RUN)
    found: list[Frame] = []
    for piece in pieces:
        reader.feed(piece)
        try:
            while (frame := reader.next_frame()) is not None:
                found.append(frame)
        except MalformedFrame as error:
            return found, str(error)
    return found, ""


@pytest.mark.parametrize(("frame", "kept"), KEPT, ids=lambda value: type(value).__name__)
def test_bytes_are_frozen(frame: Frame, kept: str) -> None:
    assert v1.encode(frame).hex() == kept
    assert read_all([bytes.fromhex(kept)]) == ([frame], "")


def test_every_kind_is_kept() -> None:
    assert {type(frame) for frame, _ in KEPT} == set(v1._KINDS) | {Run}
    assert len({kept[:2] for _, kept in KEPT}) == len(KEPT)


@given(st.lists(frames, max_size=5), st.data())
def test_what_is_written_is_read_however_it_is_cut(said: list[Frame], data: st.DataObject) -> None:
    whole = b"".join(map(v1.encode, said))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read_all([whole]) == (said, "")
    assert read_all(pieces) == (said, "")
    assert read_all([bytes((byte,)) for byte in whole]) == (said, "")


@settings(max_examples=400)
@given(st.one_of(st.binary(max_size=80), frames.map(v1.encode)), st.integers(0, 80), st.binary(max_size=4))
@example(b"\x01\xff\xff\xff\xff", 0, b"")
@example(b"\x04\0\0\0\x03\x01\xff\xff", 0, b"")
def test_any_bytes_are_frames_or_malformed(data: bytes, at: int, other: bytes) -> None:
    """Also bytes that were a frame once. Whole or one by one: the same frames, the same error; and one form only."""
    data = data[:at] + other + data[at + len(other) :]
    found, error = read_all([data])
    assert read_all([bytes((byte,)) for byte in data]) == (found, error)
    assert data.startswith(b"".join(map(v1.encode, found)))


@given(frames, st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_a_size_that_is_not_allowed_is_refused_before_its_bytes_come(frame: Frame, kind: int, size: int) -> None:
    reader = FrameReader(LARGEST_RUN)
    _, error = read_all([v1.HEAD.pack(kind, size)], reader)
    try:
        is_allowed = size <= v1.largest_body(kind, LARGEST_RUN)
    except MalformedFrame:
        is_allowed = False
    assert is_allowed or error
    assert v1.largest_body(1, LARGEST_RUN) <= LARGEST_RUN + 100
    assert max(v1.largest_body(kind, 0) for kind in range(1, 20)) <= 300_000


def test_after_an_error_nothing_comes_any_more() -> None:
    reader = FrameReader(LARGEST_RUN)
    assert read_all([b"\xff\0\0\0\0"], reader)[1]
    assert read_all([v1.encode(Synced())], reader) == ([], "there is no frame of kind 255 in version 1")


def test_no_more_is_kept_than_one_frame() -> None:
    reader = FrameReader(LARGEST_RUN)
    part = v1.encode(StatePart(bytes(PART)))
    for at in range(0, len(part) - 1, 1000):
        read_all([part[at : at + 1000][: len(part) - 1 - at]], reader)
    assert reader.kept == len(part) - 1
    assert len(read_all([part[-1:] + b"\x05"], reader)[0]) == 1
    assert reader.kept == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (2, "00000000000000000403000100000009000000000000000500000007036e2d313200"),  # position 0
        (1, "0300000100000009000000000000010000000007003000"),  # protocol 3
        (1, "0500000000000009000000000000010000000007003000"),  # no messages
        (1, "0500000200000009000000000000010000000007003000"),  # two messages in two bytes
        (1, "05000001000000090000000000000100000000072130" + "61" * 33),  # an origin of 33 bytes
        (1, "05"),
        (15, "00000000000001"),
        (15, "000000000000000001"),
        (19, "02"),  # a flag that is 2
        (6, "026e3100000007000000000000012c0161ffffffff0000"),  # a state that is too large
        (6, "026e3100000007000000000000012c0120000000010000"),  # a method of blanks
        (4, "010401"),  # too many streams
        (11, "022f3100000007000000000000012c"),  # a node's id with a slash
        (18, "ff"),
        (14, "000000090361"),  # MQTT 3.1
    ],
)
def test_malformed(kind: int, body: str) -> None:
    data = bytes.fromhex(body)
    found, error = read_all([v1.HEAD.pack(kind, len(data)) + data])
    assert not found
    assert error


def test_bounds_of_lists() -> None:
    many = tuple(f"n{number}" for number in range(MAX_STREAMS))
    have = Have(True, tuple((node, STAMP) for node in many))
    assert read_all([v1.encode(have) + v1.encode(Neighbours("a", STAMP, many))])[1] == ""
