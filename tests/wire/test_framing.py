from __future__ import annotations

import sys
import tracemalloc
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.wire import PacketReader, RemoteProtocolError, encode, encode_varint
from headwater.wire.reasons import MALFORMED_PACKET, PACKET_TOO_LARGE

from .strategies import Sent, sent_packets


class Outcome(NamedTuple):
    frames: list[tuple[int, bytes]]
    reason: int | None


def read_pieces(pieces: list[bytes], max_packet_size: int = 10_000) -> Outcome:
    reader = PacketReader(max_packet_size)
    frames: list[tuple[int, bytes]] = []
    for piece in pieces:
        reader.feed(piece)
        try:
            frames.extend(reader)  # keeps what came before the error
        except RemoteProtocolError as error:
            return Outcome(frames, error.reason)
    return Outcome(frames, None)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def check_that_pieces_do_not_matter(stream: bytes, places: list[int]) -> Outcome:
    whole = read_pieces([stream], 200)
    assert read_pieces([bytes((byte,)) for byte in stream], 200) == whole
    assert read_pieces(cut(stream, places), 200) == whole
    return whole


places_to_cut = st.lists(st.integers(0, 10_000), max_size=6)


@given(st.lists(sent_packets, max_size=4), places_to_cut)
@settings(max_examples=150)
def test_whole_equals_byte_by_byte_equals_random_pieces(sent: list[Sent], places: list[int]) -> None:
    packets = [encode(one.packet, one.version) for one in sent]
    outcome = check_that_pieces_do_not_matter(b"".join(packets), places)
    if all(len(packet) <= 200 for packet in packets):
        rebuilt = [bytes((first,)) + encode_varint(len(body)) + body for first, body in outcome.frames]
        assert (rebuilt, outcome.reason) == (packets, None)


headers = st.builds(bytes, st.tuples(st.integers(0, 255), st.sampled_from([0, 1, 2, 5, 0x7F, 0x80, 0xFF])))


@given(st.lists(headers | st.binary(max_size=8), max_size=12), places_to_cut)
@settings(max_examples=150)
def test_garbage_in_pieces_ends_where_whole_garbage_ends(parts: list[bytes], places: list[int]) -> None:
    check_that_pieces_do_not_matter(b"".join(parts), places)


def test_frames_before_a_bad_header_are_handed_out() -> None:
    assert read_pieces([b"\xc0\x00\x30\x03abc\x30\x80\x00\xc0\x00"]) == Outcome(
        [(0xC0, b""), (0x30, b"abc")], MALFORMED_PACKET
    )


@pytest.mark.parametrize("header", ["c0 80 00", "c0 ff 00", "30 80 80 80 00", "30 80 80 80 80", "30 ff ff ff ff"])
def test_malformed_remaining_length(header: str) -> None:  # [MQTT-1.5.5-1]
    assert read_pieces([bytes.fromhex(header)]) == Outcome([], MALFORMED_PACKET)


@pytest.mark.parametrize("header", ["", "30", "30 80", "30 ff ff", "30 80 80 80", "30 02 61"])
def test_incomplete_packet_waits(header: str) -> None:
    assert read_pieces([bytes.fromhex(header)]) == Outcome([], None)


@pytest.mark.parametrize(("size", "limit"), [(0, 2), (10, 12), (127, 129), (128, 131), (16_384, 16_388)])
def test_limit_counts_the_whole_packet(size: int, limit: int) -> None:  # 3.1.2.11.4
    packet = b"\x30" + encode_varint(size) + b"x" * size
    assert read_pieces([packet], limit).frames == [(0x30, b"x" * size)]
    assert read_pieces([packet], limit - 1) == Outcome([], PACKET_TOO_LARGE)


def test_too_long_packet_is_refused_at_its_header() -> None:
    reader = PacketReader(1000)
    reader.feed(b"\x30\xe6")
    assert list(reader) == []
    reader.feed(b"\x07")
    with pytest.raises(RemoteProtocolError) as caught:
        list(reader)
    assert caught.value.reason == PACKET_TOO_LARGE


def test_largest_packet_is_within_the_default_limit() -> None:
    reader = PacketReader()
    reader.feed(b"\x30\xff\xff\xff\x7f")
    assert reader.next_frame() is None


def test_after_an_error_nothing_is_read_any_more() -> None:
    reader = PacketReader(10)
    reader.feed(b"\x30\x7f")
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            reader.next_frame()
        reader.feed(b"\xc0\x00")


def test_feeding_twice_before_looking() -> None:
    reader = PacketReader()
    reader.feed(b"\x30\x03a")
    reader.feed(b"")
    reader.feed(b"bc\xc0")
    reader.feed(b"\x00\xd0")
    assert list(reader) == [(0x30, b"abc"), (0xC0, b"")]
    reader.feed(b"\x00")
    assert list(reader) == [(0xD0, b"")]


def test_large_packet_in_small_pieces_takes_memory_in_proportion() -> None:
    size = 1_000_000
    reader = PacketReader()
    reader.feed(b"\x30" + encode_varint(size))
    tracemalloc.start()
    try:
        for _ in range(size // 4):
            reader.feed(b"%04d" % (size % 7))
            reader.next_frame()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * size


def test_read_pieces_are_not_kept_for_the_sake_of_a_few_unread_bytes() -> None:
    reader = PacketReader()
    piece = b"\xc0\x00" * 1000 + b"\x30"
    before = sys.getrefcount(piece)
    reader.feed(piece)
    assert len(list(reader)) == 1000
    assert sys.getrefcount(piece) == before
    reader.feed(b"\x00")
    assert list(reader) == [(0x30, b"")]
