"""The first words on a link, and how nodes agree on a version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.peering.frames import v1
from headwater.peering.frames.frame import (
    MAX_CLUSTER,
    MAX_METHOD,
    MAX_NODE_ID,
    MAX_SERVICES,
    MAX_VERSIONS,
    NONCE,
    Hello,
    MalformedFrame,
    Synced,
)
from headwater.peering.frames.hello import Refused, agree, decode_hello, encode_hello
from headwater.peering.frames.reading import FrameReader
from headwater.peering.secret import is_proven, proof

HELLO = Hello("n1", 7, "plant", (1, 2), "subscribe", True, bytes(range(NONCE)))
SERVING = HELLO._replace(services=("groups", "wills"))
KEPT = (
    "4857504c003d026e310000000705706c616e74020001000209737562736372696265" + "01" + bytes(range(NONCE)).hex()
)  # fmt: skip


def other(**changed: object) -> Hello:
    return HELLO._replace(node="n2", **changed)  # type: ignore[arg-type]


def read(pieces: list[bytes]) -> Hello | None:
    reader = FrameReader(100)
    for piece in pieces:
        reader.feed(piece)
        found = reader.next_hello()
        if found is not None:
            return found
    return None


def test_bytes_are_frozen() -> None:
    assert encode_hello(HELLO).hex() == KEPT
    assert decode_hello(bytes.fromhex(KEPT)) == HELLO


def test_services_stand_behind_it() -> None:
    """Bytes of these, too, are for ever."""
    assert encode_hello(SERVING)[6:].hex() == KEPT[12:] + "02" + "0667726f757073" + "0577696c6c73"
    assert decode_hello(encode_hello(SERVING)) == SERVING


def test_what_later_versions_add_is_kept_as_it_came() -> None:
    for hello in (HELLO, SERVING):
        newer = hello._replace(later=b"later")
        assert decode_hello(encode_hello(newer)) == newer


@pytest.mark.parametrize("behind", [b"\x00", b"\x11" + b"\x01a" * 17, b"\x01", b"\x01\x00", b"\x01\x21" + b"a" * 33])
def test_malformed_services(behind: bytes) -> None:
    data = bytes.fromhex(KEPT) + behind
    with pytest.raises(MalformedFrame):
        decode_hello(data[:4] + (len(data) - 6).to_bytes(2, "big") + data[6:])


def test_the_largest_hello_fits() -> None:
    services = tuple(f"{number:032}" for number in range(MAX_SERVICES))
    versions = tuple(range(MAX_VERSIONS))
    largest = Hello("n" * MAX_NODE_ID, 1, "c" * MAX_CLUSTER, versions, "m" * MAX_METHOD, True, bytes(NONCE), services)
    assert decode_hello(encode_hello(largest)) == largest


def test_frames_may_follow_at_once() -> None:
    reader = FrameReader(100)
    reader.feed(encode_hello(HELLO) + v1.encode(Synced()))
    assert reader.next_hello() == HELLO
    assert reader.next_frame() == Synced()
    assert reader.next_frame() is None


@given(st.one_of(st.binary(max_size=80), st.just(bytes.fromhex(KEPT))), st.integers(0, 80), st.binary(max_size=3))
def test_any_bytes_are_a_hello_or_malformed(data: bytes, at: int, changed: bytes) -> None:
    data = data[:at] + changed + data[at + len(changed) :]

    def outcome(pieces: list[bytes]) -> object:
        try:
            return read(pieces)
        except MalformedFrame as error:
            return str(error)

    assert outcome([data]) == outcome([bytes((byte,)) for byte in data])


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"\x10\x10\0\4MQTT", b"HWPL\xff\xff"])
def test_strangers_are_refused_as_soon_as_they_are_known(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read([data])


def test_the_highest_version_that_both_speak() -> None:
    assert agree(HELLO, other(versions=(2, 3))) == 2
    assert agree(other(versions=(2, 3)), HELLO) == 2
    assert agree(HELLO, other(versions=(1,))) == 1


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (other(versions=(3, 4)), "the peer speaks frames of version 3, 4, this node 1, 2"),
        (other(cluster="mill"), "the peer is of the cluster 'mill', this node of 'plant'"),
        (HELLO._replace(boot=8), "the peer has this node's own id 'n1'"),
    ],
)
def test_who_cannot_be_linked(peer: Hello, said: str) -> None:
    with pytest.raises(Refused) as refused:
        agree(HELLO, peer)
    assert str(refused.value) == said


def test_the_join_secret() -> None:
    peer = other(nonce=bytes(NONCE))
    said = proof(b"secret", peer, HELLO)
    assert is_proven(b"secret", HELLO, peer, said)
    assert not is_proven(b"another", HELLO, peer, said)
    assert not is_proven(b"secret", HELLO._replace(nonce=b"x" * NONCE), peer, said), "replayed on another link"
    assert not is_proven(b"secret", peer, HELLO, said), "sent back to who made it"
