from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.node.proxy.scanner import Found, Scanner
from headwater.wire.packets import DISCONNECT, SUBSCRIBE

TYPES = 1 << SUBSCRIBE | 1 << DISCONNECT
MOST = 300


def packet(first_byte: int, body: bytes) -> bytes:
    size = len(body)
    header = bytearray((first_byte,))
    while True:
        header.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes(header) + body


def scanned(pieces: list[bytes], scanner: Scanner | None = None) -> list[tuple[int, bytes, bool]]:
    scanner = scanner or Scanner(TYPES, True, MOST)
    found: list[Found] = []
    for piece in pieces:
        here = scanner.scan(piece) or []
        for each in here:
            assert 0 <= each.start <= each.end <= len(piece)
            assert len(each.body) <= MOST
        found += here
    return [(each.first_byte, each.body, each.is_whole) for each in found]


def cut(data: bytes, where: list[int]) -> list[bytes]:
    at = sorted({each % (len(data) + 1) for each in where} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(at)]


PACKETS = st.lists(
    st.tuples(
        st.sampled_from((0x30, 0x31, 0x33, 0x3D, 0x40, 0x82, 0xC0, 0xE0, 0xF0, 0x00)),
        st.one_of(st.binary(max_size=5), st.integers(0, 20_000).map(bytes)),
    ),
    max_size=12,
)


@given(PACKETS, st.lists(st.integers(0, 1 << 20), max_size=8))
def test_what_is_found_does_not_depend_on_the_cut(packets: list[tuple[int, bytes]], where: list[int]) -> None:
    data = b"".join(packet(*each) for each in packets)
    expected = [
        (first, body[:MOST], len(body) <= MOST)
        for first, body in packets
        if first >> 4 in (SUBSCRIBE, DISCONNECT) or first & 0xF1 == 0x31
    ]
    assert scanned([data]) == expected
    assert scanned(cut(data, where)) == expected


@given(PACKETS)
def test_byte_by_byte(packets: list[tuple[int, bytes]]) -> None:
    data = b"".join(packet(first, body[:200]) for first, body in packets)
    assert scanned([data[i : i + 1] for i in range(len(data))]) == scanned([data])


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_hostile_bytes_raise_nothing_and_are_the_same_in_any_cut(data: bytes, where: list[int]) -> None:
    whole, parts = Scanner(TYPES, True, MOST), Scanner(TYPES, True, MOST)
    assert scanned([data], whole) == scanned(cut(data, where), parts)
    assert whole.is_lost == parts.is_lost
    assert whole.packets == parts.packets


def test_a_length_of_five_bytes_is_no_mqtt() -> None:
    scanner = Scanner(TYPES, True, MOST)
    assert scanner.scan(packet(0xE0, b"") + b"\x30\xff\xff\xff\xff\x01") is not None
    assert scanner.is_lost
    assert scanner.scan(packet(0xE0, b"")) is None


def test_where_a_packet_stands() -> None:
    scanner = Scanner(TYPES, False, MOST)
    first, second = packet(0x30, b"0123"), packet(0x82, b"abc")
    [found] = scanner.scan(first + second + first) or []
    assert (found.start, found.end) == (6, 11)
    assert scanner.scan(first + second[:3]) is None
    [found] = scanner.scan(second[3:] + first) or []
    assert (found.start, found.end, found.body) == (0, 2, b"abc")
    assert scanner.scan(second[:1]) is None
    [found] = scanner.scan(second[1:]) or []
    assert (found.start, found.end, found.body) == (0, 4, b"abc")


def test_of_a_large_packet_only_the_beginning_is_kept() -> None:
    """256 MB of a SUBSCRIBE are announced, and come in pieces."""
    scanner = Scanner(TYPES, False, MOST)
    found = scanner.scan(b"\x82\xff\xff\xff\x7f" + bytes(100))
    assert found is None
    assert scanner.kept == 100
    [seen] = scanner.scan(bytes(65536)) or []
    assert (len(seen.body), seen.is_whole) == (MOST, False)
    assert scanner.kept == 0
    for _ in range(100):
        assert scanner.scan(bytes(65536)) is None
    assert scanner.kept == 0


def test_what_does_not_matter_is_not_kept() -> None:
    scanner = Scanner(TYPES, False, MOST)
    assert scanner.scan(b"\x31\xff\xff\xff\x7f" + bytes(1000)) is None
    assert scanner.kept == 0
