"""WebSocket frames: whatever the pieces, the same bytes come out; what breaks RFC 6455 is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    FrameError,
    FrameReader,
    close_payload,
    exclusive_or,
    frame_head,
    masked_frame,
)

MASK = b"\x37\xfa\x21\x3d"
FRAGMENT = 0x7F  # takes the final bit away


def frame(opcode: int, payload: bytes = b"", final: bool = True, masked: bool = True) -> bytes:
    data = masked_frame(opcode, payload, MASK) if masked else frame_head(opcode, len(payload)) + payload
    return data if final else bytes([data[0] & FRAGMENT]) + data[1:]


def test_an_example_of_the_standard() -> None:
    """RFC 6455, 5.7: a masked "Hello", there as a text frame."""
    assert frame(BINARY, b"Hello") == bytes.fromhex("82 85 37 fa 21 3d 7f 9f 4d 51 58")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 200_000])
def test_lengths(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    assert FrameReader(masked=True).feed(frame(BINARY, payload)) == payload
    assert FrameReader(masked=False).feed(frame(BINARY, payload, masked=False)) == payload
    head = frame_head(BINARY, size)
    assert len(head) == (2 if size < 126 else 4 if size < 65536 else 10)


@given(
    masked=st.booleans(),
    messages=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=5),
    cuts=st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_any_fragments_in_any_pieces(masked: bool, messages: list[list[bytes]], cuts: list[int]) -> None:
    data = b""
    for parts in messages:
        for number, part in enumerate(parts):
            opcode = CONTINUATION if number else BINARY
            data += frame(opcode, part, final=number == len(parts) - 1, masked=masked)
            data += frame(PONG, b"between fragments", masked=masked)
    data += frame(PING, b"are you there?", masked=masked)
    reader = FrameReader(masked)
    got = b""
    at = number = 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        got += reader.feed(data[at : at + size])
        at += size
        number += 1
    assert got == b"".join(part for parts in messages for part in parts)
    assert reader.ping == b"are you there?"


def test_nothing_is_kept_of_a_long_frame() -> None:
    reader = FrameReader(masked=True)
    reader.feed(frame(BINARY, bytes(1 << 20))[: 1 << 19])
    assert not reader._head


def test_behind_a_close_nothing_is_read() -> None:
    reader = FrameReader(masked=True)
    data = frame(BINARY, b"a") + frame(CLOSE, close_payload(1001)) + frame(TEXT, b"b")
    assert reader.feed(data) == b"a"
    assert reader.closed == close_payload(1001)
    assert reader.feed(frame(BINARY, b"c")) == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(BINARY, b"x", masked=False), 1002),
        (frame(TEXT, b"x"), 1003),
        (frame(CONTINUATION, b"x"), 1002),
        (frame(BINARY, b"x", final=False) + frame(BINARY, b"x"), 1002),
        (frame(BINARY, b"x", final=False) + frame(TEXT, b"x"), 1003),
        (frame(PING, b"x", final=False), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(3, b"x"), 1002),
        (frame(0xB, b"x"), 1002),
        (frame(CLOSE, b"x"), 1002),
        (b"\xc2\x81" + MASK + b"x", 1002),
        (b"\x92\x81" + MASK + b"x", 1002),
        (b"\x82\xfe\x00\x7d" + MASK, 1002),
        (b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff" + MASK, 1002),
        (b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00" + MASK, 1002),
    ],
    ids=[
        *("unmasked", "text", "continues nothing", "message in a message", "text in a message", "fragmented ping"),
        *("long ping", "unknown data", "unknown control", "half a code", "compressed", "reserved"),
        *("125 in two bytes", "65535 in eight bytes", "negative"),
    ],
)
def test_what_breaks_the_standard(data: bytes, code: int) -> None:
    with pytest.raises(FrameError) as caught:
        FrameReader(masked=True).feed(data)
    assert caught.value.code == code
    reader = FrameReader(masked=True)
    with pytest.raises(FrameError):
        for byte in data:
            reader.feed(bytes([byte]))


def test_a_server_may_not_mask() -> None:
    with pytest.raises(FrameError):
        FrameReader(masked=False).feed(frame(BINARY, b"x"))


def test_exclusive_or() -> None:
    assert exclusive_or(b"\x00\xff\x01\x10\x00", b"\x01\x02\x03\x04") == b"\x01\xfd\x02\x14\x01"
